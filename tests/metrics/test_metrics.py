"""Definitions by small examples that can be worked out on paper."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau

import whence
from whence.errors import InputError, UnknownName
from whence.evaluate.metrics import Answers, Case
from whence.evaluate.metrics.agreement import area_under_precision, spearman_correlation, tau
from whence.evaluate.metrics.overlap import Corpus, class_rankings
from whence.evaluate.metrics.registry import get_metric

SPECIAL = np.array([True, False, False, False, False, True])


def case(*scores: float, **more: object) -> Case:
    return Case(np.array(scores), SPECIAL, tuple(range(6)), **more)  # type: ignore[arg-type]


def answers(*p: float, original: float = 0.8, choices: tuple[int, ...] | None = None) -> Answers:
    chosen = np.array(choices if choices is not None else [0] * len(p))
    return Answers(np.log(original), 0, np.log(np.array(p)), chosen)


def test_special_tokens_never_rank_and_ties_break_by_position() -> None:
    one = case(9, 1, 3, 3, -1, 9)
    assert one.order.tolist() == [2, 3, 1, 4]
    steps = get_metric("comprehensiveness:eraser").rows(one)
    assert steps.counts == (0, 1, 1, 1, 1, 2)  # ceil(4 · 1, 5, 10, 20, 50%) after nothing
    assert get_metric("sufficiency").rows(one).action == "keep"
    assert get_metric("hiding-auc").rows(one).counts == (0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4)


def test_erasure_by_hand() -> None:
    one = case(0, 4, 3, 2, 1, 0)
    flat = answers(*[0.8] * 11)
    assert get_metric("aopc")(one, flat).value == pytest.approx(0)
    assert get_metric("lodds")(one, flat).value == pytest.approx(0)
    falling = answers(*np.linspace(0.8, 0.3, 11))
    assert get_metric("aopc")(one, falling).value == pytest.approx(0.25)
    rising = answers(*[0.9] * 11)
    assert get_metric("aopc")(one, rising).value == pytest.approx(-0.1)
    assert get_metric("aopc:attcat")(one, rising).value == pytest.approx(0.1)  # the released absolute value
    bins = answers(0.8, 0.5, 0.6, 0.4, 0.7, 0.1)
    assert get_metric("comprehensiveness:eraser")(one, bins).value == pytest.approx((0.3 + 0.2 + 0.4 + 0.1 + 0.7) / 6)
    running = get_metric("comprehensiveness:alti")(one, bins)
    assert running.value == pytest.approx((0.3 + 0.3 + 0.4 + 0.4 + 0.7) / 6)
    kept = get_metric("sufficiency:alti")(one, answers(0.2, 0.1, 0.6, 0.5, 0.7, 0.8))
    assert kept.value == pytest.approx((0.6 + 0.2 + 0.2 + 0.1 + 0.0) / 6)


def test_the_games() -> None:
    labelled = case(0, 4, 3, 2, 1, 0, label=1)
    said = answers(*[0.5] * 11, choices=(1,) * 6 + (0,) * 5)
    assert get_metric("hiding-auc")(labelled, said).value == pytest.approx(0.55)
    unlabelled = case(0, 4, 3, 2, 1, 0, target=0)
    assert get_metric("hiding-auc")(unlabelled, said).value == pytest.approx(0.45)
    assert get_metric("revealing-auc:probability")(labelled, said).value == pytest.approx(0.5)


def test_tau_is_that_of_scipy_with_and_without_ties() -> None:
    generator = np.random.default_rng(0)
    for _ in range(50):
        a, b = generator.integers(0, 6, 12), generator.normal(size=12)
        assert tau(a, b) == pytest.approx(kendalltau(a, b).statistic, abs=1e-12)
    assert tau(np.ones(3), np.ones(3)) == 1.0
    assert tau(np.ones(3), np.arange(3)) == 0.0


def test_kendall_of_classes() -> None:
    same = case(0, 4, 3, 2, 1, 0, others=(np.array([0.0, 8, 6, 4, 2, 0]),))
    turned = case(0, 4, 3, 2, 1, 0, others=(np.array([0.0, 1, 2, 3, 4, 0]), np.array([0.0, 4, 3, 2, 1, 0])))
    assert get_metric("kendall")(same).value == pytest.approx(1)
    assert get_metric("kendall")(turned).value == pytest.approx(0)


def test_agreement_with_people() -> None:
    marked = np.array([False, True, False, True, False, False])
    best = case(0, 4, 1, 3, 2, 0, rationale=marked)
    worst = case(0, 1, 4, 2, 3, 0, rationale=marked)
    assert get_metric("rationale-f1")(best).value == 1.0
    assert get_metric("rationale-f1")(worst).value == 0.0
    assert get_metric("rationale-auprc")(best).value == 1.0
    assert area_under_precision(np.ones(4), np.array([True, False, False, False])) == pytest.approx((1 + 0.25) / 2)
    # recall 0, ½, ½, 1, 1 at precision 1, 1, ½, ⅔, ½
    mixed = area_under_precision(np.array([4.0, 3.0, 2.0, 1.0]), np.array([True, False, True, False]))
    assert mixed == pytest.approx(0.5 * (1 + 1) / 2 + 0.5 * (1 / 2 + 2 / 3) / 2)


def test_models_that_agree() -> None:
    a, b = np.array([0.0, 4, 3, 2, 1, 0]), np.array([0.0, 1, 2, 3, 4, 0])
    assert get_metric("jaccard")(case(*a, models=(a, a, b))).value == pytest.approx(1 / 3)
    assert get_metric("spearman")(case(*a, models=(a, b))).value == pytest.approx(-1)
    flat = np.ones(3)
    assert spearman_correlation(flat, 2 * flat) == 1.0
    assert spearman_correlation(flat, np.arange(3)) == spearman_correlation(np.arange(3), flat) == 0.0


def test_token_overlap() -> None:
    special = np.array([False, False, False])
    metric = get_metric("token-overlap")
    texts = [
        Case(np.array([3.0, 1.0, 1.0]), special, (10, 11, 12), target=0),
        Case(np.array([3.0, 1.0, 1.0]), special, (20, 11, 13), target=1),
        Case(np.array([0.1, 0.1, 0.1]), special, (30, 31, 32), target=1),
    ]
    found = metric(texts, np.ones(3))
    assert found.curve is not None
    assert found.curve[0] == pytest.approx(1 / 5)  # of the top five, 11 is in both
    alone = metric([t for t in texts if t.target == 1], np.ones(2))
    assert np.isnan(alone.value)


def ranked(cases: list[Case], weights: np.ndarray) -> list[list[int]]:
    return [top.tolist() for top in class_rankings(Corpus(cases), weights)]


def test_rare_tokens_weigh_more_and_texts_count_as_often_as_their_weight() -> None:
    special = np.array([False, False])
    texts = [
        Case(np.array([1.0, 2.0]), special, (10, 11), target=0),
        Case(np.array([1.0, 1.0]), special, (11, 12), target=1),
        Case(np.array([1.0, 1.0]), special, (12, 13), target=1),
    ]
    # class 0: 1 · log 3 > 2 · log 3/2; class 1: 13 is in one text, 12 in two of the class, 11 in one of it and another
    assert ranked(texts, np.ones(3)) == [[10, 11], [13, 12, 11]]
    # class 0: 2 · log 6/2 > 1 · log 6; class 1: 4 · log 6/4 > 1 · log 6/2 > 5 · log 6/5
    assert ranked(texts, np.array([1.0, 1.0, 4.0])) == [
        [11, 10],
        [13, 11, 12],
    ]
    assert ranked([*texts, *[texts[2]] * 3], np.ones(6)) == [[11, 10], [13, 11, 12]]


@pytest.mark.parametrize("most", [1, 3, 7, 50])
def test_the_first_of_a_ranking_are_the_whole_rankings_first(most: int) -> None:
    draw = np.random.default_rng(0)
    texts = [
        Case(
            draw.integers(-2, 3, 6).astype(float),
            np.zeros(6, bool),
            tuple(draw.integers(0, 40, 6).tolist()),
            target=i % 2,
        )
        for i in range(20)
    ]  # few distinct scores: many ties
    weights = draw.integers(0, 3, 20).astype(float)
    whole = [top.tolist()[:most] for top in class_rankings(Corpus(texts), weights)]
    assert [top.tolist() for top in class_rankings(Corpus(texts), weights, most)] == whole


def test_names_and_presets() -> None:
    assert get_metric("aopc:attcat").options["absolute"]
    assert not get_metric("aopc").options["absolute"]
    with pytest.raises(UnknownName, match="did you mean 'comprehensiveness'"):
        get_metric("comprehensivness")
    with pytest.raises(UnknownName, match="preset of 'aopc'"):
        get_metric("aopc:eraser")
    with pytest.raises(InputError, match="a metric is given by its name"):
        get_metric(3)  # type: ignore[arg-type]
    names = [row["name"] for row in whence.metrics()]
    assert {"aopc", "token-overlap", "precision-at-k", "rationale-auprc", "jaccard"} <= set(names)
    with pytest.raises(UnknownName, match="need of a metric"):
        whence.metric("bad", needs={"gold"})(lambda case: 0.0)
