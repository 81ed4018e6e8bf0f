"""Scores that do not add up to what their method promises say so: a warning, a share in the options, a note in every picture."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

import whence
import whence.corpus
from tests import architectures
from whence.apps.cli.main import main
from whence.apps.serve.answers import explained
from whence.errors import Incomplete
from whence.evaluate import check
from whence.render.html import compare_html
from whence.render.report import row_of
from whence.render.terminal import compare_text

TEXT = "Despite a slow start and a silly subplot, this courtroom drama grips like a vice."
SHORT = "a charming and often affecting journey"
FEW = {"steps": 1}


def change(ex: whence.Explainer, e: whence.Explanation) -> float:
    """y(x) − y(x̄), by the plain model."""
    assert ex.tokenizer is not None
    mask = ex.tokenizer.mask_token_id
    rows = [e.input_ids, [i if s else mask for i, s in zip(e.input_ids, e.special, strict=True)]]
    with torch.no_grad():
        at = [ex.model(torch.tensor([row])).logits[0, e.target_index].double() for row in rows]
    return float(at[0] - at[1])


@pytest.mark.parametrize("aggregate", ["sum", "l2"])
def test_what_too_few_steps_leave_is_warned_of(sentiment: whence.Explainer, aggregate: str) -> None:
    with pytest.warns(
        Incomplete, match=r"leaves up to [\d.]+% .* in 1 of 1 explanation .*: take more steps=.*baseline="
    ) as seen:
        e = sentiment.explain(TEXT, "integrated-gradients", aggregate=aggregate, **FEW)
    assert len(seen) == 1
    assert seen[0].filename == __file__, "it points to the call"
    share = e.options["unexplained"]
    assert share > 0.02
    assert share == pytest.approx(abs(e.options["delta"] / change(sentiment, e)), rel=1e-3)
    assert f"{share:.1%}" in str(seen[0].message)
    back = whence.Explanation.from_dict(json.loads(json.dumps(e.to_dict())))
    assert back.options["unexplained"] == share


def test_what_adds_up_is_not(sentiment: whence.Explainer) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for e in sentiment.explain(SHORT, ["integrated-gradients", "deeplift", "deeplift-shap"], steps="auto").values():
            assert 0 <= e.options["unexplained"] <= 0.02
        for name in ("gradient-shap", "smoothgrad", "gradient", "attnlrp", "shapley"):
            assert "unexplained" not in sentiment.explain(SHORT, name).options


def test_of_many_texts_those_that_miss_are_counted(sentiment: whence.Explainer) -> None:
    texts = [TEXT, "dull", SHORT, "too long , and never funny"]
    with pytest.warns(Incomplete) as seen:
        found = sentiment.explain(texts, "integrated-gradients", steps=3)
    shares = [e.options["unexplained"] for e in found]
    over = sum(share > 0.02 for share in shares)
    assert [str(w.message) for w in seen] == [str(seen[0].message)]
    assert f"up to {max(shares):.1%} of" in str(seen[0].message)
    assert f"in {over} of 4 explanations" in str(seen[0].message)
    assert over > 0
    with pytest.warns(Incomplete, match="integrated-gradients"):
        sentiment.explain(TEXT, "integrated-gradients", "all", **FEW)


def test_the_share_is_that_of_all_terms_together() -> None:
    """Start and end of an answer are explained apart where norms are taken."""
    ex, given = (
        whence.load("qa"),
        {"question": "Who wrote the play ?", "context": "The play was written by Anna Smith ."},
    )
    with pytest.warns(Incomplete):
        apart = ex.explain(given, "integrated-gradients", aggregate="l2", **FEW)
    with pytest.warns(Incomplete):
        joint = ex.explain(given, "integrated-gradients", **FEW)
    assert apart.options["unexplained"] == pytest.approx(joint.options["unexplained"], rel=1e-3)


def test_a_model_that_jumps_is_found_out() -> None:
    """Experts are chosen by jumps, that no gradient knows and no number of steps mends."""
    torch.manual_seed(0)
    sizes = {**architectures.COMMON, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 1}
    config = architectures.CONFIG_MAPPING["mixtral"](**sizes)
    model = AutoModelForSequenceClassification.from_config(config)
    architectures.draw_weights(model)
    ex = whence.load(model.eval(), architectures.tokenizer())
    with pytest.warns(Incomplete, match="another baseline="):
        e = ex.explain("the film is good and the plot is slow", "integrated-gradients", steps="auto")
    assert e.options["steps"] == 400
    assert abs(change(ex, e) - e.scores.sum()) > 0.02 * abs(change(ex, e))


def test_deeplift_says_what_rounding_took(sentiment: whence.Explainer, monkeypatch: pytest.MonkeyPatch) -> None:
    from whence.run import paths as runner

    multipliers = runner.multipliers

    def rounded(*given: Any) -> Any:
        gradient, difference = multipliers(*given)
        return gradient * 0.9, difference

    monkeypatch.setattr(runner, "multipliers", rounded)
    for method in ("deeplift", "deeplift-shap"):
        with pytest.warns(Incomplete, match=rf"{method} leaves up to 10\.0% .*dtype='float64'"):
            assert sentiment.explain(SHORT, method).options["unexplained"] == pytest.approx(0.1, rel=1e-3)


def test_a_difference_of_nothing_leaves_nothing(sentiment: whence.Explainer) -> None:
    """Where text and baseline are the same to the model, what is left is rounding, however large a share of it."""
    model = architectures.build("bert", torch.float64)
    with torch.no_grad():
        model.classifier.weight.zero_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = whence.load(model, architectures.tokenizer()).explain("good film", ["integrated-gradients", "deeplift"])
    assert {e.options["unexplained"] for e in found.values()} == {0.0}


@pytest.fixture(scope="module")
def short_of(sentiment: whence.Explainer) -> whence.Explanation:
    with pytest.warns(Incomplete):
        e: whence.Explanation = sentiment.explain(TEXT, "integrated-gradients", **FEW)
    return e


def test_every_picture_says_it(short_of: whence.Explanation, sentiment: whence.Explainer) -> None:
    note = f"({short_of.options['unexplained']:.1%} unexplained)"
    whole = sentiment.explain(TEXT, "attnlrp")
    both = {"attnlrp": whole, "integrated-gradients": short_of}
    for shown in (
        short_of.to_text(color=False),
        short_of.to_text(color=True),
        compare_text(both, color=False),
        short_of.to_html(),
        compare_html(both),
        short_of.to_latex().replace(r"\%", "%"),
        str(row_of(short_of, None)),
    ):
        assert note in shown
    titles = [text.get_text() for text in short_of.figure("bars").findobj(match=lambda a: hasattr(a, "get_text"))]
    assert any(note in " ".join(title.split()) for title in titles)
    assert explained(short_of)["gap"] == note.strip("()")
    assert explained(whole)["gap"] == ""
    assert "unexplained" not in whole.to_text(color=False) + whole.to_html()


def test_the_command_line_says_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["whence", "explain", TEXT, "--method", "integrated-gradients", "--option", "steps=1"]
    monkeypatch.setattr("sys.argv", command)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code
    out, err = capsys.readouterr()
    assert "unexplained)" in out
    assert err.startswith("whence: integrated-gradients leaves up to ")
    assert err.count("\n") == 1


def test_check_fails_what_is_not_complete(sentiment: whence.Explainer) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the finding says it, once
        verdict = check(sentiment, "integrated-gradients", [TEXT, SHORT], steps=1)
    finding = verdict.findings[2]
    assert finding.verdict == "fails"
    assert finding.figures["largest share missing"] > 0.02
    assert "is missing: use more steps" in finding.sentence


def test_a_corpus_counts_and_keeps_it(sentiment: whence.Explainer, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = whence.corpus.run([TEXT, SHORT], tmp_path, sentiment, ["integrated-gradients", "attnlrp"], steps=1)
    e = whence.corpus.open(tmp_path)["integrated-gradients"][0]
    assert done.incomplete == 2
    assert e.options["unexplained"] > 0.02
    assert np.isfinite(e.options["delta"])
    again = whence.corpus.run([TEXT, SHORT], tmp_path, sentiment, ["integrated-gradients", "attnlrp"], steps=1)
    assert (again.made, again.incomplete) == (0, 2)
