"""Reports: the same seed gives the same bytes, interrupted runs go on, tables in every format."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import whence
from tests import architectures
from whence.errors import InputError, UnknownName
from whence.evaluate import engine
from whence.evaluate.metrics import Steps
from whence.evaluate.metrics.agreement import spearman_correlation
from whence.evaluate.perturbed import Perturber, Wanted
from whence.evaluate.statistics import Figure
from whence.evaluate.tables import as_csv, as_latex, as_markdown
from whence.tasks import Term

MODEL = Path(__file__).parent.parent / "golden" / "models" / "bert_cls2"
MASK_ID = architectures.VOCABULARY["[MASK]"]
METHODS = ["attcat", "rollout", "decoded-grad-cam(layer=2)"]
TITLES = ["comprehensiveness", "hiding-auc", "kendall", "token-overlap"]


@pytest.fixture(scope="module")
def tiny() -> whence.Explainer:
    table = whence.load(MODEL).model.get_input_embeddings().weight
    decoder = torch.nn.Linear(table.shape[1], table.shape[0], bias=False)  # any module from hidden states to logits
    with torch.no_grad():
        decoder.weight.copy_(table)
    return whence.load(MODEL, lm_head=decoder)


def texts(count: int = 40) -> list[dict[str, Any]]:
    generator = np.random.default_rng(0)
    rows = [generator.integers(104, 118, generator.integers(4, 15)).tolist() for _ in range(count)]
    return [{"text": " ".join(f"w{i}" for i in row), "label": int(row[0] > 110)} for row in rows]


@pytest.fixture(scope="module")
def report(tiny: whence.Explainer) -> whence.Report:
    return whence.evaluate(tiny, texts(), METHODS, TITLES, progress=False)


def test_the_same_seed_gives_the_same_numbers_bit_for_bit(tiny: whence.Explainer, report: whence.Report) -> None:
    again = whence.evaluate(tiny, texts(), METHODS, TITLES, progress=False)
    assert json.dumps(again.to_dict()) == json.dumps(report.to_dict())
    other = whence.evaluate(tiny, texts(), METHODS, TITLES, seed=1, progress=False)
    assert other.figures["comprehensiveness"]["random"] != report.figures["comprehensiveness"]["random"]
    one, two = (r.values["comprehensiveness"]["attcat"] for r in (other, report))
    np.testing.assert_allclose(one, two, atol=1e-6)  # batches differ with the draws, the method does not


def test_an_interrupted_evaluation_goes_on(
    tiny: whence.Explainer, report: whence.Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []
    original = engine.Bench.measure

    def measure(self: Any, examples: Any, counter: Any) -> Any:
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(len(examples))
        return original(self, examples, counter)

    monkeypatch.setattr(engine.Bench, "measure", measure)
    with pytest.raises(KeyboardInterrupt):
        whence.evaluate(tiny, texts(), METHODS, TITLES, output=tmp_path, progress=False)
    measured.clear()
    (tmp_path / "parts" / "00001.npz").write_bytes(b"cut off")
    resumed = whence.evaluate(tiny, texts(), METHODS, TITLES, output=tmp_path, progress=False)
    assert measured == [16, 8]  # the first chunk was kept, the broken one and the rest were measured
    assert resumed.to_dict()["figures"] == report.to_dict()["figures"]
    with pytest.raises(InputError, match=r"setting +saved +asked\nseed +0 +1"):
        whence.evaluate(tiny, texts(), METHODS, TITLES, seed=1, output=tmp_path, progress=False)
    saved = whence.Report.from_dict(json.loads((tmp_path / "report.json").read_text(encoding="utf-8")))
    assert saved.to_dict() == resumed.to_dict()
    assert {"table.md", "table.tex", "table.csv", "values.csv", "hiding-auc.svg"} <= {
        f.name for f in tmp_path.iterdir()
    }


def test_other_weights_are_other_settings(tiny: whence.Explainer, tmp_path: Path) -> None:
    whence.evaluate(tiny, texts(4), ["rollout"], ["kendall"], output=tmp_path, progress=False)
    other = whence.load(MODEL)
    other.model.classifier.bias.data += 1
    with pytest.raises(InputError, match="weights "):
        whence.evaluate(other, texts(4), ["rollout"], ["kendall"], output=tmp_path, progress=False)


@pytest.mark.parametrize("change", ["configuration", "labels", "tokenizer"])
def test_another_model_with_the_same_weights_is_other_settings(
    tiny: whence.Explainer, tmp_path: Path, change: str
) -> None:
    whence.evaluate(tiny, texts(4), ["rollout"], ["kendall"], output=tmp_path, progress=False)
    other: Any = whence.load(MODEL)
    if change == "configuration":
        other.model.config.layer_norm_eps = 1e-3
    elif change == "labels":
        other.model.config.id2label = dict(enumerate(reversed(other.model.config.id2label.values())))
    else:
        other.tokenizer.model_max_length = 12
    with pytest.raises(InputError, match="identities "):
        whence.evaluate(other, texts(4), ["rollout"], ["kendall"], output=tmp_path, progress=False)


def test_the_baseline_is_always_there_and_averaged(report: whence.Report) -> None:
    assert report.methods == [*METHODS, "random"]
    values = report.values["hiding-auc"]["random"]
    assert len(np.unique(values * 20 * 20)) > 5  # means over 20 draws, not single games
    assert set(report.rank()) == set(report.methods)
    assert report.rank("kendall")[-1] in ("rollout", "random")
    with pytest.raises(UnknownName, match="did you mean 'kendall'"):
        report.rank("kendal")


def test_curves(report: whence.Report) -> None:
    curves = report.curves["hiding-auc"]
    assert curves.grid[0] == 0
    assert len(curves.lines["attcat"]) == len(curves.grid) == 11
    start = {name: line[0] for name, line in curves.lines.items()}
    assert len(set(start.values())) == 1  # nothing hidden: the same for all
    assert report.figure("hiding-auc").axes[0].get_xlabel() == "% of tokens, strongest first"
    assert report.figure("token-overlap").axes[0].get_xlabel() == "k strongest tokens"
    assert {t.get_text() for t in report.figure().axes[0].get_yticklabels()} == set(report.methods), "methods × metrics"
    with pytest.raises(UnknownName):
        report.figure("kendall")


def test_tables_escape_what_they_print() -> None:
    figures = {
        "m_1": {
            "=evil(1,2)": Figure(-0.5, -0.6, -0.4, 1.0, 9, True),
            "b|c_d": Figure(0.1, 0.0, 0.2, 0.3, 9, False, True),
        }
    }
    better = {"m_1": "lower"}
    names = list(figures["m_1"])
    rows = list(csv.reader(io.StringIO(as_csv(names, figures, better))))
    assert rows[1][:4] == ["'=evil(1,2)", "m_1", "lower", "-0.5"]
    markdown = as_markdown(names, figures, better)
    assert "| m_1 ↓ |" in markdown
    assert "**-0.500** [-0.600, -0.400]" in markdown
    assert "| b\\|c_d | *0.100* [0.000, 0.200] |" in markdown
    latex = as_latex(names, figures, better)
    assert r"m\_1 $\downarrow$" in latex
    assert r"\textbf{-0.500}" in latex
    assert r"\underline{0.100}" in latex


def test_metrics_that_do_not_apply_are_refused_or_left_out(tiny: whence.Explainer) -> None:
    report = whence.evaluate(tiny, texts(3), ["rollout"], progress=False)
    assert "aopc" in report.metrics
    assert not {"jaccard", "rationale-f1", "precision-at-k"} & set(report.metrics)
    with pytest.raises(InputError, match="needs the tokens that people marked"):
        whence.evaluate(tiny, texts(3), ["rollout"], ["rationale-f1"])
    with pytest.raises(UnknownName, match="did you mean 'attcat'"):
        whence.evaluate(tiny, texts(3), ["rollout"], ["aopc:atcat"])
    with pytest.raises(UnknownName, match="did you mean 'rollout'"):
        whence.evaluate(tiny, texts(3), ["rolout"])


def test_agreement_of_models_and_with_people(tiny: whence.Explainer) -> None:
    other = whence.load(MODEL)
    data = [{**row, "rationales": [[0, 2]]} for row in texts(6)]
    titles = ["jaccard", "spearman", "rationale-auprc", "rationale-f1"]
    same = whence.evaluate(tiny, data, ["attcat"], titles, models=[other], progress=False)
    assert same.figures["jaccard"]["attcat"].mean == same.figures["spearman"]["attcat"].mean == pytest.approx(1.0)
    assert abs(same.figures["spearman"]["random"].mean) < 0.3
    for name in ("rationale-auprc", "rationale-f1"):
        assert 0 < same.figures[name]["random"].mean < 1
        assert same.figures[name]["attcat"].n == 6


def test_a_metric_of_ones_own(tiny: whence.Explainer) -> None:
    from whence.evaluate.metrics import registry

    @whence.metric("first-rank", better="lower")
    def first_rank(case: Any) -> float:
        """Where the first token ranks."""
        return float(np.flatnonzero(case.order == 1)[0])

    try:
        report = whence.evaluate(tiny, texts(5), ["rollout"], ["first-rank"], progress=False)
        assert np.isfinite(report.figures["first-rank"]["rollout"].mean)
        assert whence.metrics()[-1]["summary"] == "Where the first token ranks."
    finally:
        del registry._METRICS["first-rank"]


def test_labels_can_be_explained_in_the_place_of_predictions(tiny: whence.Explainer) -> None:
    predicted = whence.evaluate(tiny, texts(12), ["attcat"], ["comprehensiveness"], progress=False)
    labelled = whence.evaluate(tiny, texts(12), ["attcat"], ["comprehensiveness"], target="label", progress=False)
    said = [tiny.predict(row["text"]).index for row in texts(12)]
    right = np.array([s == row["label"] for s, row in zip(said, texts(12), strict=True)])
    one, two = (r.values["comprehensiveness"]["attcat"] for r in (predicted, labelled))
    np.testing.assert_allclose(one[right], two[right], atol=1e-6)
    assert (np.abs(one[~right] - two[~right]) > 1e-4).any()
    with pytest.raises(InputError, match="have no labels"):
        whence.evaluate(tiny, [row["text"] for row in texts(2)], ["attcat"], ["aopc"], target="label")


def test_models_are_compared_where_one_s_target_can_be_asked_of_another() -> None:
    def two(task: str) -> list[whence.Explainer]:
        built = [architectures.build("bert", task=task, seed=seed) for seed in (0, 1)]
        return [whence.load(model, architectures.tokenizer()) for model in built]

    question = {"question": "was it good ?", "context": "the film was not boring , but funny !"}
    for task, text in (("question-answering", question), ("token-classification", "the plot was dull")):
        one, other = two(task)
        with pytest.raises(InputError, match="classifiers or language models"):
            whence.evaluate(one, [text], ["rollout"], ["spearman"], models=[other])
    one, other = two("masked-lm")
    with pytest.raises(InputError, match=r"one \[MASK\] a text"):
        whence.evaluate(one, ["this [MASK] was [MASK] !"], ["rollout"], ["jaccard"], models=[other])
    report = whence.evaluate(one, ["this [MASK] was dull !"], ["grads"], ["spearman"], models=[other], progress=False)
    best = one.explain("this [MASK] was dull !", "grads")
    theirs = other.explain("this [MASK] was dull !", "grads", target=best.target_index)
    free = ~best.special
    wanted = spearman_correlation(best.scores[free], theirs.scores[free])
    assert report.figures["spearman"]["grads"].mean == pytest.approx(wanted)


def test_a_metric_that_returns_no_number_is_named(tiny: whence.Explainer) -> None:
    from whence.evaluate.metrics import registry

    for answer in ("high", [1.0], None, True):
        whence.metric("odd")(lambda case, answer=answer: answer)
        try:
            with pytest.raises(InputError, match="'odd' must return a number"):
                whence.evaluate(tiny, texts(2), ["rollout"], ["odd"], progress=False)
        finally:
            del registry._METRICS["odd"]


def test_padding_within_a_text_stays_where_it_is_when_words_are_hidden() -> None:
    """RoBERTa counts positions past it, so rows without their hidden tokens would not be the same."""
    ex = whence.load(architectures.build("roberta"), architectures.tokenizer())
    perturber = Perturber(ex.session, 512)
    for ids in ([2, 9, 12, 0, 13, 20, 3], [2, 9, 12, 13, 20, 3]):
        (row,) = ex.rows([{"input_ids": ids}], [ex.ask()], "error", 512)
        steps = Steps("hide", np.array(row.free), (0, 2))
        wanted = Wanted(row, Term((0,), (1,), (0,)))
        key = wanted.ask(steps)
        (replies,) = perturber.answer([wanted], SimpleNamespace(advance=lambda n: None, done=0))
        found = np.exp(replies.answers(*key).log_probability)
        with torch.no_grad():
            hidden = torch.tensor([ids, [MASK_ID if i in row.free[:2] else t for i, t in enumerate(ids)]])
            seen = torch.ones_like(hidden)
            seen[1, list(row.free[:2])] = 0
            wanted_p = ex.model(hidden, attention_mask=seen).logits.softmax(-1)[:, 1]
        np.testing.assert_allclose(found, wanted_p, rtol=1e-9)


def test_texts_without_a_label_are_counted_aloud(tiny: whence.Explainer) -> None:
    data = texts(20)
    some = [{**row, "label": row["label"] if i < 3 else None} for i, row in enumerate(data)]
    with pytest.warns(UserWarning, match="17 of 20 texts have no label"):
        report = whence.evaluate(tiny, some, ["rollout"], ["aopc"], target="label", progress=False)
    assert report.figures["aopc"]["rollout"].n > 3
    with pytest.raises(InputError, match="these have no labels"):
        whence.evaluate(tiny, [row["text"] for row in data], ["rollout"], ["aopc"], target="label")
    with pytest.raises(InputError, match=r"takes what whence\.load\(\) gives"):
        whence.evaluate("sentiment", data)  # type: ignore[arg-type]
