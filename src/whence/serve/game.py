"""The hiding game on one text: hide its words, the most important first, and see how fast the model loses its answer."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whence.errors import NotSupported
from whence.evaluate.engine import DRAWS
from whence.explainer import Explainer
from whence.explanation import Explanation
from whence.limits import BATCH_TOKENS
from whence.metrics import Answers, Case, Measured, Steps
from whence.perturb import Game, Rows, score_rows
from whence.registry import Metric, get_metric
from whence.serve.jobs import Asked, Options, explain
from whence.serve.predict import Answer, answer, encode, hidden_by, open_game, word_numbers

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

GAMES = ("hiding", "revealing")
BAND = (5, 95)  # percentiles of the random orders that are drawn as a band


@dataclass(frozen=True)
class Played:
    """Curves of p(target) over the share of words that are hidden, or revealed."""

    target: str
    fractions: tuple[float, ...]
    counts: tuple[int, ...]  # words at each fraction
    order: tuple[int, ...]  # word numbers, the most important first
    method: dict[str, Measured]  # game → curve and area
    random: dict[str, list[Measured]]  # game → one per draw
    hidden_by: str


@dataclass(frozen=True)
class Play:
    """The game of one method on one input."""

    asked: Asked
    method: str
    options: Options = ()

    @property
    def key(self) -> Hashable:
        return Play, self.method, self.options

    @classmethod
    def run(cls, explainer: Explainer, jobs: Sequence[Play]) -> list[Played]:
        """All texts, orders and steps are asked in one call of the scheduler, which runs equal rows once."""
        asked = list(dict.fromkeys(job.asked for job in jobs))
        rows, asks = encode(explainer, asked)
        answers = answer(explainer, rows, asks)
        if any(one.probability is None for one in answers):
            raise NotSupported("this model answers with a number, not with probabilities: there is nothing to lose.")
        explanations = explain(explainer, asked, [jobs[0].method], jobs[0].options)[jobs[0].method]
        boards = [Board(open_game(explainer, one.row), one, e) for one, e in zip(answers, explanations, strict=True)]
        changed = [board.game.rows(board.keep) for board in boards]
        terms = [
            board.answer.target.joint() for board, rows in zip(boards, changed, strict=True) for _ in range(len(rows))
        ]
        values = score_rows(explainer.engine, Rows.join(changed), terms, batch_tokens=BATCH_TOKENS, progress=False)
        assert values.log_probability is not None
        ends = np.cumsum([len(rows) for rows in changed])[:-1]
        found = {
            one: board.measured(own, hidden_by(explainer, board.game.replacement))
            for one, board, own in zip(asked, boards, np.split(values.log_probability, ends), strict=True)
        }
        return [found[job.asked] for job in jobs]


class Board:
    """One text, the method's order of its words and some random ones, and the steps that each game takes."""

    def __init__(self, game: Game, answer: Answer, explanation: Explanation) -> None:
        self.game, self.answer = game, answer
        self.numbers = word_numbers(game)
        scores = {explanation.word_ids[w.tokens[0]]: w.score for w in explanation.words()}
        drawn = game.draw(0).random((DRAWS, game.units))
        own = np.array([scores[number] for number in self.numbers])
        self.cases = [Case(s, np.zeros(game.units, bool)) for s in (own, *drawn)]
        self.steps: list[Steps] = [metric_of(name).rows(case) for case in self.cases for name in GAMES]

    @property
    def keep(self) -> Bools:
        """(steps of all orders and games, units)"""
        return np.concatenate([kept(steps, self.game.units) for steps in self.steps])

    def measured(self, log_probability: Floats, replaced_by: str) -> Played:
        """Curves from the values of the rows that `keep` describes."""
        parts = iter(np.split(log_probability, np.cumsum([len(s.counts) for s in self.steps])[:-1]))
        whole = float(np.log(self.answer.probability or 1e-300))
        found: dict[str, list[Measured]] = {name: [] for name in GAMES}
        for case in self.cases:
            for name in GAMES:
                values = next(parts)
                answers = Answers(whole, 0, values, np.zeros(len(values), np.int64))
                found[name].append(metric_of(name)(case, answers))
        return Played(
            self.answer.target.label,
            metric_of("hiding").grid() or (),
            self.steps[0].counts,
            tuple(self.numbers[unit] for unit in self.cases[0].order),
            {name: own[0] for name, own in found.items()},
            {name: own[1:] for name, own in found.items()},
            replaced_by,
        )


def metric_of(game: str) -> Metric:
    return get_metric(f"{game}-auc:probability")


def kept(steps: Steps, units: int) -> Bools:
    """(steps, units): which units stay when the first k of an order are hidden, or when only they are revealed."""
    rank = np.empty(units, np.int64)
    rank[steps.order] = np.arange(units)
    first = rank < np.array(steps.counts)[:, None]
    return first if steps.action == "reveal" else ~first
