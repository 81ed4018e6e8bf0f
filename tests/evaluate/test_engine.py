"""The engine answers what one forward at a time would, and runs no row twice."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import whence
from tests.metrics import by_hand
from whence.evaluate.candidates import groups, parse
from whence.evaluate.data import Example
from whence.evaluate.engine import Bench, Plan
from whence.evaluate.metrics import Case, Steps
from whence.evaluate.metrics.registry import get_metric
from whence.evaluate.perturbed import Perturber, Wanted, closed_up
from whence.run.perturb import Rows, hide, score_rows
from whence.run.progress import Counter
from whence.tasks import Question, Term

GOLDEN = Path(__file__).parent.parent / "golden" / "models"
TITLES = ["aopc", "lodds", "comprehensiveness:eraser", "sufficiency:alti", "hiding-auc", "revealing-auc:probability"]


@pytest.fixture(scope="module")
def tiny() -> whence.Explainer:
    return whence.load(GOLDEN / "bert_cls2", dtype="float64")


def inputs() -> list[dict[str, list[int]]]:
    generator = np.random.default_rng(0)
    return [{"input_ids": [101, *generator.integers(104, 118, n).tolist(), 102]} for n in (3, 9, 14, 22)]


def test_every_metric_as_by_hand(tiny: whence.Explainer) -> None:
    metrics = tuple(get_metric(t) for t in TITLES)
    plan = Plan((parse("attcat"), parse("rollout")), metrics, draws=2)
    results = Bench(tiny, plan).measure([Example(i) for i in inputs()], Counter("rows", 1, silent=True))
    for k, name in enumerate(("attcat", "rollout")):
        for i, e in enumerate(tiny.explain(inputs(), name)):
            case = Case(e.scores, np.asarray(e.special), e.input_ids, e.target_index)
            for metric in metrics:
                found = metric(case, by_hand.answers(tiny.model, case, metric.rows(case)))
                assert results.values[metric.title][k, i] == pytest.approx(found.value, abs=1e-9)
                np.testing.assert_allclose(results.curves[metric.title][k, i], found.curve, atol=1e-9)


def test_rows_are_asked_for_once(tiny: whence.Explainer, monkeypatch: pytest.MonkeyPatch) -> None:
    row = tiny.session.task.encode(inputs()[1:2], [Question()], "truncate")[0][0]
    wanted = Wanted(row, Term((0,), (0,), (0,)))
    order = np.array(row.free)
    for _ in range(3):  # three methods that agree
        wanted.ask(Steps("delete", order, (0, 1, 2, 9)))
        wanted.ask(Steps("keep", order[::-1], (0, 7, 8, 9)))  # keeps what deleting 2, 1 and 0 from the front keeps
    assert wanted.asked == 24
    assert {done: len(keep) for done, (keep, _) in wanted.distinct().items()} == {"delete": 4}
    ran: list[int] = []

    def counted(engine: object, rows: Rows, terms: object, **more: object) -> object:
        values = score_rows(engine, rows, terms, **more)  # type: ignore[arg-type]
        ran.append(values.forwards)
        return values

    monkeypatch.setattr(sys.modules[Perturber.__module__], "score_rows", counted)
    Perturber(tiny.session, 8192).answer([wanted], Counter("rows", 1, silent=True))
    assert ran == [4]  # the whole row is one of them


@pytest.mark.parametrize("model", ["bert_cls", "roberta_cls"])
def test_hidden_tokens_need_not_be_computed(model: str) -> None:
    ex = whence.load(GOLDEN / model, dtype="float64")
    ids = [101, *range(5, 17), 102] if model == "bert_cls" else [0, *range(5, 17), 2]
    row = ex.session.task.encode([{"input_ids": ids}], [Question()], "truncate")[0][0]
    keep = np.random.default_rng(0).random((20, len(row))) < 0.5
    keep[:, [0, -1]] = True
    start = {"bert_cls": 0, "roberta_cls": 2}[model]
    terms = [Term((0,), (1,), (0,))] * 20
    short = score_rows(ex.session, closed_up(row, keep, start), terms, batch_tokens=8192, progress=False)
    long = score_rows(ex.session, hide(row, keep, 7), terms, batch_tokens=8192, progress=False)
    np.testing.assert_allclose(short.y, long.y, atol=1e-12)


def test_options_reach_only_the_candidate_that_has_them() -> None:
    found = groups([parse("attcat"), parse("cat"), parse("decoded-grad-cam(layer=2)"), parse("grad-cam")])
    assert [[c.title for c in g] for g in found] == [["attcat", "cat", "grad-cam"], ["decoded-grad-cam(layer=2)"]]


def test_texts_too_short_for_a_preset_are_left_out(tiny: whence.Explainer) -> None:
    report = whence.evaluate(tiny, inputs(), ["attcat"], ["aopc:mask-lrp", "aopc:attcat"], progress=False)
    assert [np.isfinite(v).tolist() for v in (report.values["aopc:mask-lrp"]["attcat"],)] == [
        [False, False, False, True]
    ]
    assert report.figures["aopc:attcat"]["attcat"].n == 3
