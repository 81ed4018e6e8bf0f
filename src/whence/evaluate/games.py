"""The hiding and the revealing game on one text, and whether a method's order plays them better than random orders do.

A text's words are hidden, or shown, the most important first, and the model's probability of its answer is watched. Whether a method's order
is worth anything on this very text is a test: its area under the curve against those of random orders of the same words. A random order is as
likely to come out anywhere among other random orders, so it is called better than chance in one text of twenty, and no oftener.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whence.evaluate.metrics import Answers, Case, Measured, Steps
from whence.evaluate.metrics.registry import Metric, get_metric
from whence.explainer import Explainer
from whence.explanation import Explanation
from whence.inputs import Encoded
from whence.models import stand_in_ids
from whence.run.perturb import Game, Text

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

GAMES = ("hiding", "revealing")
ORDERS = 39  # random orders: with them p = 5% is two of forty
LEVEL = 0.05  # of the test, one-sided
TIE = 1e-6  # areas that differ by rounding alone
BETTER, UNSURE, WORSE = "better than chance", "cannot tell", "worse"


@dataclass(frozen=True)
class Standing:
    """Where a method's figure stands among those of random orders: one-sided p of being better, and of being worse."""

    p: float
    p_worse: float

    @classmethod
    def among(cls, value: float, random: Sequence[float], better: str) -> Standing:
        """better: "higher" or "lower". Ties count against either.

        >>> Standing.among(0.9, [0.1 * k / 4 for k in range(39)], "higher")
        Standing(p=0.1, p_worse=0.95)
        """
        gain = (np.asarray(random) - value) * (1 if better == "higher" else -1)
        reached, undercut = int((gain >= -TIE).sum()), int((gain <= TIE).sum())
        return cls((1 + reached) / (1 + len(gain)), (1 + undercut) / (1 + len(gain)))

    @property
    def verdict(self) -> str:
        if self.p <= LEVEL:
            return BETTER
        return WORSE if self.p_worse <= LEVEL else UNSURE


@dataclass(frozen=True)
class Outcome:
    """What the games on one text came to."""

    method: dict[str, Measured]  # game → curve and area
    random: dict[str, list[Measured]]  # game → one per random order

    def standing(self, game: str) -> Standing:
        areas = [measured.value for measured in self.random[game]]
        return Standing.among(self.method[game].value, areas, metric_of(game).better)


class Board:
    """One text, the method's order of its words and some random ones, and the steps that each game takes."""

    def __init__(self, game: Game, explanation: Explanation, seed: int = 0) -> None:
        self.game = game
        self.numbers = word_numbers(game)
        scores = {explanation.word_ids[w.tokens[0]]: w.score for w in explanation.words()}
        method = Case(np.array([scores[number] for number in self.numbers]), np.zeros(game.units, bool))
        self.order = tuple(self.numbers[unit] for unit in method.order)
        # the orders that words are shown in are those that they are hidden in, backwards: the rows are the same, and run once
        drawn = random_scores(game.text.row.input_ids, game.units, seed)
        cases = {name: [method, *(Case(s, method.special) for s in drawn * sign)] for name, sign in SIGNS.items()}
        self.cases = [(name, case) for name in GAMES for case in cases[name]]
        self.steps: list[Steps] = [metric_of(name).rows(case) for name, case in self.cases]

    @property
    def keep(self) -> Bools:
        """(steps of all orders and games, units)"""
        return np.concatenate([keep_of(steps, self.game.units) for steps in self.steps])

    def outcome(self, probability: float, log_probability: Floats) -> Outcome:
        """Curves from the values of the rows that `keep` describes. probability: of the target, nothing hidden."""
        parts = np.split(log_probability, np.cumsum([len(s.counts) for s in self.steps])[:-1])
        whole = float(np.log(probability or 1e-300))
        measured: dict[str, list[Measured]] = {name: [] for name in GAMES}
        for (name, case), values in zip(self.cases, parts, strict=True):
            answers = Answers(whole, 0, values, np.zeros(len(values), np.int64))
            measured[name].append(metric_of(name)(case, answers))
        return Outcome(
            {name: results[0] for name, results in measured.items()},
            {name: results[1:] for name, results in measured.items()},
        )


SIGNS = {"hiding": 1.0, "revealing": -1.0}


def random_scores(ids: Sequence[int], units: int, seed: int) -> Floats:
    """Of each random order, (ORDERS, units): drawn from the seed and the text, and from nothing that a method draws from."""
    return np.random.default_rng(np.random.SeedSequence([seed, *ids], spawn_key=(ORDERS,))).random((ORDERS, units))


def metric_of(game: str) -> Metric:
    return get_metric(f"{game}-auc:probability")


def keep_of(steps: Steps, units: int) -> Bools:
    """(steps, units): which units stay when the first k of an order are hidden, or when only they are revealed."""
    rank = np.empty(units, np.int64)
    rank[steps.order] = np.arange(units)
    first = rank < np.array(steps.counts)[:, None]
    return first if steps.action == "reveal" else ~first


def open_game(explainer: Explainer, row: Encoded) -> Game:
    """A text as whole words that can be hidden; what takes their place is the model's [MASK], or the next best it has."""
    stand_ins = stand_in_ids(explainer.model.config, explainer.tokenizer)
    return Text(row, stand_ins, explainer.task).game(unit="word", of="probability")


def word_numbers(game: Game) -> list[int]:
    """The number of each unit's word, as `Explanation.word_ids` has it."""
    row, first = game.text.row, np.unique(game.parts.of_token, return_index=True)
    numbers = [row.word_ids[i] for unit, i in zip(*first, strict=True) if unit >= 0]
    return [number for number in numbers if number is not None]
