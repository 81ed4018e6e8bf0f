"""The hiding game on one text: hide its words, the most important first, and see how fast the model loses its answer."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whence.apps.serve.jobs import Asked, Options, explain
from whence.apps.serve.predict import Answer, answer, encode, hidden_by
from whence.errors import NotSupported
from whence.evaluate.games import Board, Outcome, metric_of, open_game
from whence.explainer import Explainer
from whence.run.limits import BATCH_TOKENS
from whence.run.perturb import Rows, score_rows

Floats = NDArray[np.float64]

BAND = (5, 95)  # percentiles of the random orders that are drawn as a band


@dataclass(frozen=True)
class Played:
    """Curves of p(target) over the share of words that are hidden, or revealed."""

    target: str
    fractions: tuple[float, ...]
    counts: tuple[int, ...]  # words at each fraction
    order: tuple[int, ...]  # word numbers, the most important first
    outcome: Outcome
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
        boards = [Board(open_game(explainer, one.row), e) for one, e in zip(answers, explanations, strict=True)]
        changed = [board.game.rows(board.keep) for board in boards]
        terms = [one.target.joint() for one, rows in zip(answers, changed, strict=True) for _ in range(len(rows))]
        values = score_rows(explainer.session, Rows.join(changed), terms, batch_tokens=BATCH_TOKENS, progress=False)
        assert values.log_probability is not None
        ends = np.cumsum([len(rows) for rows in changed])[:-1]
        stand_in = [hidden_by(explainer, board.game.replacement) for board in boards]
        parts = zip(boards, answers, np.split(values.log_probability, ends), stand_in, strict=True)
        results = dict(zip(asked, [played(*part) for part in parts], strict=True))
        return [results[job.asked] for job in jobs]


def played(board: Board, answer: Answer, log_probability: Floats, replaced_by: str) -> Played:
    """Curves from the values of the rows that the board asked for."""
    return Played(
        answer.target.label,
        metric_of("hiding").grid() or (),
        board.steps[0].counts,
        board.order,
        board.outcome(answer.probability or 0.0, log_probability),
        replaced_by,
    )
