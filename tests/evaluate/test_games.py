"""The verdict on a method's order is a test: random orders pass it as often as its level says, good methods mostly."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import whence
from whence.evaluate.check import check, play, together, whole
from whence.evaluate.games import (
    BETTER,
    GAMES,
    ORDERS,
    UNSURE,
    WORSE,
    Board,
    Outcome,
    Standing,
    open_game,
    random_scores,
)
from whence.evaluate.metrics import Measured
from whence.methods.baseline import draw
from whence.models import zoo
from whence.tasks import Question

SEEDS = 5  # of random scores
METHODS = ("attnlrp", "deeplift")


def test_one_order_of_twenty_is_better_than_chance_and_one_worse() -> None:
    """Of forty orders that are all random, whichever is called the method's."""
    areas = np.random.default_rng(0).random(ORDERS + 1)
    for better in ("higher", "lower"):
        verdicts = [Standing.among(areas[i], np.delete(areas, i).tolist(), better).verdict for i in range(len(areas))]
        assert Counter(verdicts) == {BETTER: 2, WORSE: 2, UNSURE: ORDERS - 3}
        best = areas.argmax() if better == "higher" else areas.argmin()
        assert verdicts[best] == BETTER


def test_ties_are_no_merit_and_no_fault() -> None:
    for random in ([0.5] * ORDERS, [0.5 + 1e-8 * (-1) ** k for k in range(ORDERS)], [0.4] * 37 + [0.5] * 2):
        assert Standing.among(0.5, random, "higher").verdict == UNSURE
        assert Standing.among(0.5, random, "lower").verdict in (UNSURE, WORSE)
    assert Standing.among(0.5, [0.4] * ORDERS, "higher") == Standing(1 / 40, 1.0)


def outcome(hiding: float, revealing: float, seed: int) -> Outcome:
    random = np.random.default_rng(seed).random((2, ORDERS))
    return Outcome(
        {"hiding": Measured(hiding), "revealing": Measured(revealing)},
        {game: [Measured(float(v)) for v in values] for game, values in zip(GAMES, random, strict=True)},
    )


def test_texts_together_tell_more_than_each() -> None:
    outcomes = [outcome(0.2, 0.8, seed) for seed in range(16)]  # unremarkable, every one
    assert {o.standing(game).verdict for o in outcomes for game in GAMES} == {UNSURE}
    standings = [together(outcomes, game) for game in GAMES]
    assert [s.verdict for s in standings] == [BETTER, BETTER]
    assert whole(standings) == BETTER
    backwards = [together([outcome(0.8, 0.2, seed) for seed in range(16)], game) for game in GAMES]
    assert whole(backwards) == WORSE
    assert whole([standings[0], backwards[1]]) == UNSURE
    assert whole([Standing(0.05, 0.97), Standing(0.3, 0.7)]) == UNSURE  # the level is that of both games


def test_random_orders_are_nobodys() -> None:
    """The method `random` draws from the same text and seed, and must not meet itself."""
    ids = (101, 7, 8, 9, 10, 11, 12, 102)
    orders = random_scores(ids, 6, 0).argsort(1).tolist()
    assert len(orders) == ORDERS
    assert len({tuple(order) for order in orders}) > 30
    assert draw(0, ids)[1:-1].argsort().tolist() != orders[0]
    np.testing.assert_array_equal(random_scores(ids, 6, 0), random_scores(ids, 6, 0))
    assert (random_scores(ids, 6, 1) != random_scores(ids, 6, 0)).all()


def test_both_games_share_their_rows(sentiment: whence.Explainer) -> None:
    text = "a slow and silly film with a charming end that nobody will believe for a moment ."
    (row,) = sentiment.rows([text], [Question()], "error", 8192)
    board = Board(open_game(sentiment, row), sentiment.explain(text, "gradient"))
    steps = sum(len(steps.counts) for steps in board.steps)
    assert steps == 2 * 11 * (1 + ORDERS)
    assert len(np.unique(board.keep, axis=0)) < 0.6 * steps


@pytest.mark.parametrize("text", ["dull film", "fun", "a dull film"])
def test_two_or_three_words_tell_nothing(sentiment: whence.Explainer, text: str) -> None:
    for method in METHODS:
        (found,) = play(sentiment, [text], [sentiment.explain(text, method)], 0)
        assert {found.standing(game).verdict for game in GAMES} == {UNSURE}


@pytest.mark.parametrize(("model", "count"), [("sentiment", 12), ("topics", 4)])
def test_chance_is_not_endorsed_and_good_methods_are(model: str, count: int) -> None:
    """As measured on 300 texts of each model, on a few of the embedded samples."""
    ex = whence.load(model)
    samples: list[dict[str, Any]] = zoo.samples(model)
    texts = [sample["text"] for sample in samples if len(sample["text"].split()) > 9][:count]
    explanations = ex.explain(texts, METHODS)
    for seed in range(SEEDS):
        explanations[f"random {seed}"] = ex.explain(texts, "random", seed=seed)
    flat = [e for of_method in explanations.values() for e in of_method]
    outcomes = play(ex, texts * len(explanations), flat, 0)  # equal rows run once
    verdicts: dict[str, list[str]] = {}
    for number, name in enumerate(explanations):
        part = outcomes[number * count : (number + 1) * count]
        verdicts.setdefault(name.split()[0], []).extend(o.standing(game).verdict for o in part for game in GAMES)
    share = {name: Counter(of_method)[BETTER] / len(of_method) for name, of_method in verdicts.items()}
    assert share["random"] <= 0.1, share
    assert all(share[method] >= 0.75 for method in METHODS), share
    assert not any(WORSE in verdicts[method] for method in METHODS)


def test_check_says_which_of_the_three(sentiment: whence.Explainer) -> None:
    texts = [sample["text"] for sample in zoo.samples("sentiment")][:3]
    for method, verdict, says in (("attnlrp", "passes", "Better than chance"), ("random", "note", "Cannot tell")):
        finding = check(sentiment, method, texts).findings[-1]
        assert finding.verdict == verdict
        assert finding.sentence.startswith(says)
