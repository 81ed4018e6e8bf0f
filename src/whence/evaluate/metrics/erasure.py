"""Erasure: take away what the explanation calls important and see whether the model minds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import ceil
from typing import Any

import numpy as np

from whence.errors import InputError, UnknownName
from whence.evaluate.metrics.case import ACTIONS, Answers, Case, Floats, Measured, Steps, fractions
from whence.evaluate.metrics.registry import metric

TENTHS = tuple(k / 10 for k in range(11))
NINTHS = tuple(k / 9 for k in range(1, 10))  # linspace(0, 1, 10) without its 0
SCHEDULES = {"tenths": TENTHS, "released": NINTHS}

# the three ways in which AttCAT and Mask-LRP measured, and the equations
DEGRADATION: dict[str, dict[str, Any]] = {
    "attcat": {"action": "delete", "schedule": "released", "least": 10},
    "attcat-pad": {"action": "pad", "schedule": "released", "least": 10},
    "mask-lrp": {"action": "pad", "schedule": "released", "least": 20},
}


def degraded(case: Case, *, action: str, schedule: str, least: int, **_: Any) -> Steps | None:
    """Which rows AOPC and LOdds want; None for a text shorter than `least` tokens, special ones counted."""
    if action not in ACTIONS:
        raise UnknownName("action", action, ACTIONS)
    if schedule not in SCHEDULES:
        raise UnknownName("schedule", schedule, SCHEDULES)
    if len(case.scores) < least:
        return None
    if schedule == "released":
        return released_steps(case, action)
    return Steps(action, case.order, fractions(len(case.free), TENTHS))


def released_steps(case: Case, action: str) -> Steps:
    """The released loop: k = round(g·n) with n counting special tokens; it never takes the token that ranks last."""
    order = case.released_order
    return Steps(action, order, released_counts(len(case.scores), len(order)))


@cache
def released_counts(n: int, most: int) -> tuple[int, ...]:
    return tuple(min(round(g * n), most) for g in NINTHS)


def degradation_grid(schedule: str, **_: Any) -> Sequence[float]:
    return SCHEDULES[schedule]


@metric(
    "aopc",
    rows=degraded,
    grid=degradation_grid,
    presets={
        "paper": {},
        "attcat": {**DEGRADATION["attcat"], "absolute": True},
        "attcat-pad": {**DEGRADATION["attcat-pad"], "absolute": True},
        "mask-lrp": DEGRADATION["mask-lrp"],
    },
    better="higher",
    family="erasure",
    paper="AttCAT 2022, eq. 13; Mask-LRP 2024, eq. 12",
)
def aopc(
    case: Case,
    answers: Answers,
    *,
    action: str = "delete",
    schedule: str = "tenths",
    least: int = 0,
    absolute: bool = False,
) -> Measured:
    """How far p falls when the top k% is taken away: mean over k of p(ŷ|x) − p(ŷ|x̃_k).

    `paper`: tokens deleted, k = 0, 10 … 100% of the text's own tokens, signed. `attcat` as released: k = 1/9 … 9/9 of all
    tokens, the absolute difference, texts of 10 tokens or more; `attcat-pad` the same with [PAD]. `mask-lrp` as released:
    [PAD], signed, 20 tokens or more.
    """
    curve = np.abs(answers.drop) if absolute else answers.drop
    return Measured(float(curve.mean()), curve)


@metric(
    "lodds",
    rows=degraded,
    grid=degradation_grid,
    presets={"paper": {}, **DEGRADATION},
    better="lower",
    family="erasure",
    paper="AttCAT 2022, eq. 14; Mask-LRP 2024, eq. 13",
)
def lodds(case: Case, answers: Answers, *, action: str = "pad", schedule: str = "tenths", least: int = 0) -> Measured:
    """The same in log odds: mean over k of log p(ŷ|x̃_k) − log p(ŷ|x).

    `paper`: [PAD], k = 0, 10 … 100%. The other presets as for aopc.
    """
    curve = answers.log_probability - answers.original
    return Measured(float(curve.mean()), curve)


ERASER_BINS = (0.01, 0.05, 0.1, 0.2, 0.5)
PAPER_BINS = (0.0, 0.05, 0.1, 0.2, 0.5)
BINNED: dict[str, dict[str, Any]] = {
    "paper": {},
    "eraser": {"bins": ERASER_BINS},
    "alti": {"bins": ERASER_BINS, "running": True},
}


def binned(case: Case, bins: Sequence[float], action: str) -> Steps:
    """ceil(b·n) tokens for each bin, n the text's own tokens; the running presets start from no token at all."""
    if not bins or not all(0 <= b <= 1 for b in bins):
        raise InputError(f"bins={bins!r}: give shares between 0 and 1.")
    return Steps(action, case.order, bin_counts(len(case.free), tuple(bins)))


@cache
def bin_counts(n: int, bins: tuple[float, ...]) -> tuple[int, ...]:
    return (0, *(ceil(n * b) for b in bins))


def bin_grid(bins: Sequence[float], **_: Any) -> Sequence[float]:
    return bins


def without(case: Case, *, bins: Sequence[float], **_: Any) -> Steps:
    return binned(case, bins, "delete")


def only(case: Case, *, bins: Sequence[float], **_: Any) -> Steps:
    return binned(case, bins, "keep")


def over_bins(original: float, curve: Floats) -> Measured:
    """Σ_{k ∈ B} (f(x) − f(x_k)) / (|B| + 1), as both papers write it."""
    drops = np.exp(original) - curve
    return Measured(float(drops.sum() / (len(drops) + 1)), drops)


@metric(
    "comprehensiveness",
    rows=without,
    grid=bin_grid,
    presets=BINNED,
    better="higher",
    family="erasure",
    paper="ERASER 2020; ALTI 2022, eq. 12",
)
def comprehensiveness(
    case: Case, answers: Answers, *, bins: Sequence[float] = PAPER_BINS, running: bool = False
) -> Measured:
    """How far p falls when the top tokens are deleted: Σ_{k ∈ B} (f(x) − f(x∖top k%)) / (|B| + 1).

    `paper`: B = 0, 5, 10, 20, 50%. `eraser`: 1, 5, 10, 20, 50%. `alti` as released: those bins, and the lowest p so far in
    the place of p.
    """
    p = answers.probability
    return over_bins(answers.original, (np.minimum.accumulate(p) if running else p)[1:])


@metric(
    "sufficiency",
    rows=only,
    grid=bin_grid,
    presets=BINNED,
    better="lower",
    family="erasure",
    paper="ERASER 2020; ALTI 2022, eq. 13",
)
def sufficiency(case: Case, answers: Answers, *, bins: Sequence[float] = PAPER_BINS, running: bool = False) -> Measured:
    """How far p falls when only the top tokens are kept: Σ_{k ∈ B} (f(x) − f(top k%)) / (|B| + 1).

    Presets as for comprehensiveness; `alti` takes the highest p so far, from special tokens alone on.
    """
    p = answers.probability
    return over_bins(answers.original, (np.maximum.accumulate(p) if running else p)[1:])


def hidden(case: Case, **_: Any) -> Steps:
    return Steps("hide", case.order, fractions(len(case.free), TENTHS))


def revealed(case: Case, **_: Any) -> Steps:
    return Steps("reveal", case.order, fractions(len(case.free), TENTHS))


def tenths_grid(**_: Any) -> Sequence[float]:
    return TENTHS


GAMES: dict[str, dict[str, Any]] = {"accuracy": {}, "probability": {"of": "probability"}}


def game(case: Case, answers: Answers, of: str) -> Measured:
    """The area under accuracy, or under p of the explained class, against the share of tokens (trapezoids)."""
    if of == "accuracy":
        right = case.target if case.label is None else case.label
        curve = (answers.choices == right).astype(np.float64)
    elif of == "probability":
        curve = answers.probability
    else:
        raise UnknownName("of", of, ["accuracy", "probability"])
    return Measured(float((curve[1:] + curve[:-1]).sum() / 2 / (len(curve) - 1)), curve)


@metric(
    "hiding-auc",
    rows=hidden,
    grid=tenths_grid,
    presets=GAMES,
    better="lower",
    family="erasure",
    paper="Decoded saliency 2023, §4.1",
)
def hiding_auc(case: Case, answers: Answers, *, of: str = "accuracy") -> Measured:
    """The hiding game: area under the accuracy curve while tokens are hidden, most important first.

    A hidden token is replaced by [MASK] and taken out of attention; 0, 10 … 100% of the text's own tokens. Accuracy is
    against the data's label, or against the explained class where there is none; `probability` takes p of the explained
    class. (§4.1 of the paper says "least important" first; its appendix A.1, its figures and this program say most.)
    """
    return game(case, answers, of)


@metric(
    "revealing-auc",
    rows=revealed,
    grid=tenths_grid,
    presets=GAMES,
    better="higher",
    family="erasure",
    paper="Decoded saliency 2023, §4.1",
)
def revealing_auc(case: Case, answers: Answers, *, of: str = "accuracy") -> Measured:
    """The revealing game: area under the accuracy curve while hidden tokens are revealed, most important first."""
    return game(case, answers, of)
