"""What a metric is given: one explanation of one text, the perturbed rows it asks for, and the model's answers to them.

A metric never sees a model, a tokenizer or a batch. A perturbation metric is two pure functions: `rows` says which
rows it wants (a ranking and how many of its first tokens are perturbed at each step), and the metric itself turns the
model's answers into one number and a curve. The engine (whence.evaluate) makes the rows, runs each distinct one once, whatever
number of methods and metrics asked for it, and hands the answers back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# what can be done to the first k tokens of a ranking
ACTIONS = {
    "delete": "removed from the row",
    "keep": "all that is kept of the row, special tokens apart",
    "pad": "replaced by [PAD], which is attended like any token",
    "mask": "replaced by [MASK]",
    "unk": "replaced by [UNK]",
    "hide": "replaced by [MASK] and removed from attention",
    "reveal": "all that is not hidden",
}


@dataclass(frozen=True)
class Case:
    """One text, one explanation of it, and what the data say about it."""

    scores: Floats  # (n,) toward `target`
    special: NDArray[np.bool_]  # (n,) [CLS], [SEP] and what else must not be touched
    ids: tuple[int, ...] = ()  # the tokens, for metrics over a whole corpus
    target: int = 0  # the class that is explained
    label: int | None = None  # the class that the data give
    others: tuple[Floats, ...] = ()  # scores toward every other class
    models: tuple[Floats, ...] = ()  # scores of the same text and class by every model of a set
    rationale: NDArray[np.bool_] | None = None  # (n,) tokens that people marked
    answer: tuple[int, ...] | None = None  # positions of the answer's tokens

    @cached_property
    def free(self) -> Ints:
        """Positions of the text's own tokens."""
        return np.flatnonzero(~self.special)

    @cached_property
    def order(self) -> Ints:
        """The text's own tokens, most important first; ties break by position.

        >>> Case(np.array([9.0, 1.0, 3.0, 3.0]), np.array([True, False, False, False])).order.tolist()
        [2, 3, 1]
        """
        return self.free[falling(self.scores[self.free])]

    @cached_property
    def released_order(self) -> Ints:
        """All tokens but the one that ranks last, special ones left out, as the released loops took them (`released_falling`)."""
        ranked = released_falling(self.scores)[:-1]
        return ranked[~self.special[ranked]]


@dataclass(frozen=True)
class Steps:
    """Rows that a metric wants: for every count k, `action` done to the first k tokens of `order`."""

    action: str
    order: Ints
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Answers:
    """What the model said to the original row and to each step: of the explained class, and which class it chose."""

    original: float  # log p of the explained class
    choice: int
    log_probability: Floats  # (steps,)
    choices: Ints  # (steps,)

    @cached_property
    def probability(self) -> Floats:
        """p(x̃_k). (steps,)"""
        p: Floats = np.exp(self.log_probability)
        return p

    @cached_property
    def drop(self) -> Floats:
        """p(x) − p(x̃_k). (steps,)"""
        change: Floats = np.exp(self.original) - self.probability
        return change


@dataclass(frozen=True)
class Measured:
    """One example's number; its curve over the metric's grid, and its weight in the mean, where it has them."""

    value: float
    curve: Floats | None = None
    weight: float = 1.0


def falling(scores: NDArray[Any]) -> Ints:
    """Positions from the highest score to the lowest, ties by position."""
    return np.argsort(-scores, kind="stable")


def released_falling(scores: NDArray[Any]) -> Ints:
    """The same by numpy's default sort, which the released code used: equal scores fall in no particular order."""
    return np.argsort(-scores)


ROUNDING = 1e-9  # of a share times a number of tokens


@cache
def fractions(total: int, shares: tuple[float, ...]) -> tuple[int, ...]:
    """How many of `total` tokens each share is, to the nearest, halves upwards.

    >>> fractions(5, (0.0, 0.1, 0.3, 1.0)), fractions(45, (0.7,))  # 0.7 · 45 is 31.499…
    ((0, 1, 2, 5), (32,))
    """
    return tuple(int(share * total + 0.5 + ROUNDING) for share in shares)
