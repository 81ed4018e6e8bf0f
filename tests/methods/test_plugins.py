"""A plug-in's method is drawn, measured, tuned, checked, stored and served as ours are: by what it declares, never by its name."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import whence
from tests import architectures
from tests.evaluate.test_report import MODEL
from tests.evaluate.test_report import texts as sentences
from tests.render.common import texts_of
from tests.serve.conftest import serving, tiny
from whence import registry
from whence.corpus.sources.checksums import seal_manifest
from whence.errors import InputError, UnknownName
from whence.evaluate import check, tune
from whence.registry import get_method, methods_without
from whence.render.report import report_html
from whence.render.scale import is_signed
from whence.render.spans import layer_names
from whence.render.terminal import compare_text

TEXT = "an unwatchable and charming film"
# of every family one, with signs and without, with layers from 0, from 1 and none
OURS = ("attcat", "grad-cam", "attnlrp", "gae", "simple", "rollout", "integrated-gradients", "occlusion")


def twin(name: str, **changed: Any) -> str:
    """The same method by another's name, registered with what the first declares."""
    ours = get_method(name)
    declared = {**ours._meaning, "needs": ours._needs, "relevance": ours._relevance, "kind": ours.kind}
    declared |= {k: getattr(ours, k) for k in ("first_choice", "on_request", "variants", "output_options", "family")}

    def function(*given: Any, **options: Any) -> Any:
        return ours.function(*given, **options)

    function.__signature__ = inspect.signature(ours.function)  # type: ignore[attr-defined]
    function.__doc__ = ours.function.__doc__
    whence.method(f"x-{name}", **{**declared, **changed})(function)
    return f"x-{name}"


PICTURES: dict[str, Callable[[whence.Explanation], Any]] = {
    "terminal": lambda e: e.to_text(color=True, width=100),
    "layers": lambda e: e.layers is None or e.to_text(layers=True, color=False, width=100),
    "HTML": lambda e: e.to_html(),
    "LaTeX": lambda e: e.to_latex(),
    "bars": lambda e: texts_of(e.figure("bars")),
    "figure": lambda e: texts_of(e.figure()),
    "compared": lambda e: compare_text({e.method: e}, color=True, width=100),
    "report": lambda e: report_html([e]),
}


@pytest.mark.parametrize("name", OURS)
def test_the_same_declaration_gives_the_same_pictures(sentiment: whence.Explainer, name: str) -> None:
    other = twin(name)
    found = sentiment.explain(TEXT, [name, other])
    assert found[name].meaning == found[other].meaning
    assert found[name].scores.tolist() == found[other].scores.tolist()
    for picture, draw in PICTURES.items():
        theirs = json.dumps(draw(found[other]), ensure_ascii=False)
        assert theirs.replace(other, name) == json.dumps(draw(found[name]), ensure_ascii=False), picture


def hidden_sizes(trace: whence.Trace) -> whence.Attribution:
    """The size of every state, from the embeddings on."""
    layers = torch.stack([x.norm(dim=-1) for x in trace.hidden], dim=1)
    return whence.Attribution(layers[:, -1], layers)


def test_layers_are_counted_where_nothing_is_declared(sentiment: whence.Explainer) -> None:
    whence.method("sizes", needs={"hidden"})(hidden_sizes)
    e = sentiment.explain(TEXT, "sizes")
    assert len(e.layers) == 7
    assert layer_names(e) == ["0", "1", "2", "3", "4", "5", "6"]
    assert (e.meaning.layers_start, e.meaning.signed, e.meaning.knows_target) == (0, None, None)

    @whence.method("outputs", needs={"hidden"})
    def outputs(trace: whence.Trace) -> whence.Attribution:
        return whence.Attribution(hidden_sizes(trace).scores, hidden_sizes(trace).layers[:, 1:])

    assert layer_names(sentiment.explain(TEXT, "outputs")) == ["1", "2", "3", "4", "5", "6"]
    decoded = sentiment.explain(TEXT, "decoded-grad-cam", decode="sizes", layer=0)
    assert decoded.scores.max() > 0
    with pytest.raises(InputError, match=r"decode='outputs' has no score for layer 0 \(the embeddings\)"):
        sentiment.explain(TEXT, "decoded-grad-cam", decode="outputs", layer=0)


def test_words_are_put_together_as_declared(sentiment: whence.Explainer) -> None:
    for combine, put in (("sum", np.sum), ("mean", np.mean), ("largest", lambda v: v[np.abs(v).argmax()])):
        name = twin("attcat", combine=combine)
        e = sentiment.explain(TEXT, name)
        words = [w for w in e.words() if len(w.tokens) > 1]
        assert words
        for word in words:
            assert word.score == pytest.approx(float(put(e.scores[list(word.tokens)])), rel=1e-6)
        title = f"(the word {words[0].text}: {words[0].score:+.4g})"
        assert title in e.to_html()
        assert e.top(1)[0] == max(e.words(), key=lambda w: abs(w.score))
        bars = e.figure("bars").axes[0].patches
        assert [bar.get_width() for bar in bars] == pytest.approx([w.score for w in e.words()], rel=1e-6)


def test_what_was_stored_is_drawn_where_the_plugin_is_not_installed(sentiment: whence.Explainer) -> None:
    name = twin("grad-cam", combine="largest", signed=True)
    e = sentiment.explain(TEXT, name)
    stored, pictures = json.dumps(e.to_dict()), {picture: draw(e) for picture, draw in PICTURES.items()}
    del registry.METHODS[name]
    again = whence.Explanation.from_dict(json.loads(stored))
    assert again == e
    assert is_signed(again)
    for picture, draw in PICTURES.items():
        assert draw(again) == pictures[picture], picture


def test_what_was_stored_without_a_meaning_has_that_of_its_method(sentiment: whence.Explainer) -> None:
    found = sentiment.explain(TEXT, ["attnlrp", "gradient-x-input"], aggregate="sum")
    for e in found.values():
        old = {k: v for k, v in e.to_dict().items() if k != "meaning"}
        assert whence.Explanation.from_dict(old).meaning == e.meaning
    unknown = whence.Explanation.from_dict({**old, "method": "no-longer-installed"})
    assert (unknown.meaning.signed, layer_names(unknown)) == (None, [])
    for wrong in ({"combine": "median"}, {"layers_start": 3}, [], {"signed": "yes"}):
        with pytest.raises(InputError, match="is not a stored Explanation"):
            whence.Explanation.from_dict({**old, "meaning": wrong})


@pytest.mark.parametrize(
    ("declared", "match"),
    [
        ({"signed": "yes"}, "signed='yes'"),
        ({"knows_target": 1}, "knows_target=1"),
        ({"layers_start": 2}, r"layers_start=2: the first row of layers is of layer 0 \(the embeddings\) or 1"),
        ({"layers_start": True}, "layers_start=True"),
        ({"combine": "avg"}, "unknown combine= 'avg'"),
        ({"sums_to": "one"}, "unknown sums_to= 'one'"),
        ({"variants": [{"powr": 2.0}]}, "unknown option of 'mine' 'powr'; did you mean 'power'"),
        ({"variants": [{"power": "much"}]}, "power='much': mine takes float"),
        ({"output_options": {"layer": 1}}, "unknown option of 'mine' 'layer'"),
    ],
)
def test_wrong_declarations_are_refused_on_registration(declared: dict[str, Any], match: str) -> None:
    def mine(trace: whence.Trace, *, power: float = 1.0) -> torch.Tensor:
        return trace.hidden[0].norm(dim=-1) ** power

    with pytest.raises((InputError, UnknownName), match=match):
        whence.method("mine", needs={"hidden"}, **declared)(mine)
    assert "mine" not in registry.METHODS


def test_declarations_that_the_scores_do_not_keep_are_refused_at_first_use() -> None:
    ex = whence.load(architectures.model("bert"), architectures.tokenizer())
    depth = ex.model.config.num_hidden_layers
    with pytest.raises(InputError, match="'x-attcat' declares signed=False and gave a score of -"):
        ex.explain("a charming film", twin("attcat", signed=False))
    whence.method("late", needs={"hidden"}, layers_start=1)(hidden_sizes)
    with pytest.raises(
        InputError, match=rf"declares layers_start=1 and gave {depth + 1} layers for a model of {depth}"
    ):
        ex.explain("a charming film", "late")
    blind = twin("attcat", knows_target=False)
    ex.explain("a charming film", blind)  # of one target nothing is held against it
    with pytest.raises(InputError, match=r"declares knows_target=False, and its scores for 'LABEL_1' are others than"):
        ex.explain("a charming film", blind, target="all")


def test_options_may_decide_what_scores_mean() -> None:
    ex = whence.load(architectures.model("bert"), architectures.tokenizer())
    for aggregate, signed in (("sum", True), ("l2", False), ("mean", False)):
        e = ex.explain("a charming film", "gradient-x-input", aggregate=aggregate)
        assert e.meaning.signed is signed
    sums = get_method("integrated-gradients").meaning
    assert sums({"of": "probability"}).sums_to == "probability difference to baseline"
    assert sums({"aggregate": "l2"}).sums_to is None
    assert sums({"delta": 0.1, "steps": 7}).sums_to == "logit difference to baseline"  # facts are no options


def test_a_contrast_that_changes_nothing_is_said_so(sentiment: whence.Explainer) -> None:
    note = "rather than negative (the same for every target)"
    for name, said in (("rollout", True), (twin("rollout"), True), ("attcat", False)):
        e = sentiment.explain(TEXT, name, target="positive", contrast="negative")
        assert (note in e.to_text(color=False, width=200)) is said


def test_it_is_measured_tuned_and_checked() -> None:
    ex, data = whence.load(MODEL), sentences(8)
    cam, gxi = twin("grad-cam"), twin("gradient-x-input")
    flow = twin("attention-flow")
    report = whence.evaluate(ex, data, metrics=["comprehensiveness"], progress=False)
    assert {cam, gxi} <= set(report.methods)
    assert flow not in report.methods  # on request
    assert report.values["comprehensiveness"][cam] == pytest.approx(report.values["comprehensiveness"]["grad-cam"])
    tried = {row["candidate"] for row in tune(ex, data, limit=8, progress=False).rows}
    assert {f"{cam}(layer=1)", f"{cam}(layer=3)", gxi, f"{gxi}(aggregate=sum)"} <= tried
    assert flow not in tried
    words = [row["text"] for row in data]
    conserved = {f.question: f for f in check(ex, twin("rollout"), words).findings}[
        "Do the scores sum to what the method promises?"
    ]
    assert (conserved.verdict, list(conserved.figures)) == ("passes", ["largest |Σ − 1|"])
    sure = check(ex, twin("simple", sums_to="probability"), words)
    assert (sure.findings[2].verdict, sure.findings[2].sentence) == ("fails", "They must sum to probability.")
    unproved = check(ex, twin("shapley"), words[:2]).findings[2]
    assert unproved.verdict == "note"
    assert "logit difference to baseline" in unproved.sentence
    assert {gxi, "gradient-x-input"} <= set(check(ex, "cat", words[:2]).findings[3].figures)  # first choices


def test_hints_name_it_where_it_runs() -> None:
    assert "attcat" in methods_without("relevance")
    assert not {"random", "attention-flow", "mask-lrp", "decoded-simple", "alti", "attnlrp"} & set(methods_without())
    assert methods_without("trace") == ["occlusion", "lime", "shapley", "kernel-shap"]
    before = methods_without("attention")
    name = twin("grad-cam", family="mine", first_choice=True)
    assert methods_without("attention") == [*before, name]
    error = whence.NotSupported("this model has none", lacks=("attention",))
    assert str(error).startswith("this model has none; methods that need none still work: ")
    assert name in str(error)
    layered = whence.load(architectures.model("bert"), architectures.tokenizer()).explain("a charming film", "simple")
    for draw in (lambda: layered.figure("layers"), lambda: layered.to_text(layers=True)):
        with pytest.raises(InputError, match=rf"simple has no layers to \w+; methods that give them: .*{name}"):
            draw()
    with pytest.raises(
        InputError, match=r"holds no matrices: .* methods that give them: norms, globenc, alti, value-zeroing\."
    ):
        layered.figure("matrix")


@pytest.mark.parametrize("name", ["attcat", "rollout", "gradient-x-input"])
def test_the_page_is_told_the_same(name: str) -> None:
    other = twin(name, combine="mean")
    with serving({"tiny": tiny()}) as client:
        rows = {row["name"]: row for row in client.get("/api/methods").json()}
        body = {"text": "a charming film", "methods": [name, other]}
        found = client.post("/api/compare", json=body).json()["explanations"]
    differ = {"name", "paper", "default_method"}
    assert {k: v for k, v in rows[name].items() if k not in differ} == {
        k: v for k, v in rows[other].items() if k not in differ
    }
    for key in ("signed", "layer_names", "scores", "layers"):
        assert found[name][key] == found[other][key]
    assert found[other]["meaning"] == {**found[name]["meaning"], "combine": "mean"}


def test_a_corpus_keeps_what_its_scores_mean(tmp_path: Path) -> None:
    from whence import corpus

    name = twin("gae", signed=True, combine="largest")
    corpus.run(["a charming film", "dull"], tmp_path / "run", tiny(), method=[name, "attcat"], progress=False)
    del registry.METHODS[name]
    saved = corpus.open(tmp_path / "run")
    assert (saved[name][0].meaning.signed, saved[name][0].meaning.combine) == (True, "largest")
    assert is_signed(saved["attcat"][0])
    manifest = next((tmp_path / "run").glob("*.json"))
    old = json.loads(manifest.read_text(encoding="utf-8"))
    del old["meanings"]
    manifest.write_text(json.dumps(seal_manifest(old)), encoding="utf-8")
    saved = corpus.open(tmp_path / "run")
    assert (saved[name][0].meaning.signed, is_signed(saved["attcat"][0])) == (None, True)
    manifest.write_text(json.dumps(seal_manifest({**old, "meanings": {"attcat": 1}})), encoding="utf-8")
    with pytest.raises(InputError, match="its 'meanings' are of another kind"):
        corpus.open(tmp_path / "run")


def test_pages_of_methods_say_what_methods_declare() -> None:
    pages = Path(__file__).parents[2] / "docs" / "methods"
    for row in whence.methods():
        file = pages / f"{row['name']}.md"
        if file.exists():
            facts = file.read_text(encoding="utf-8").splitlines()[2]
            meaning = get_method(row["name"]).meaning()
            assert ("· signed ·" in facts) == bool(meaning.signed), row["name"]
            assert ("the same for every target" in facts) == (meaning.knows_target is False), row["name"]
