"""Agreement: between the explanations of two classes, of models that differ by seed, and with people."""

from __future__ import annotations

from itertools import combinations
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whence.errors import UnknownName
from whence.evaluate.metrics.case import Case, Measured, falling, released_falling
from whence.evaluate.metrics.registry import metric


@metric(
    "kendall",
    needs={"every-class"},
    presets={"scores": {}, "argsort": {"of": "argsort"}},
    better="lower",
    family="agreement",
    paper="AttCAT 2022, eq. 15",
)
def kendall(case: Case, *, of: str = "scores") -> Measured:
    """Whether a class has an explanation of its own: mean τ between the scores for the explained class and for each other.

    `scores` is the rank correlation over the text's own tokens (τ_b); a method that knows nothing of classes gets 1.
    `argsort` as released compares the two lists of positions in order of score, special tokens included. Noise gets 0: a
    low value is worth something only in a method that is faithful.
    """
    if of not in ("scores", "argsort"):
        raise UnknownName("of", of, ["scores", "argsort"])
    if of == "argsort":
        own = released_falling(case.scores)
        return Measured(float(np.mean([tau(own, released_falling(o)) for o in case.others])))
    return Measured(float(np.mean([tau(case.scores[case.free], o[case.free]) for o in case.others])))


def tau(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Kendall's τ_b, by comparing all pairs; two rankings that are both constant agree, one alone says nothing.

    >>> round(tau(np.array([1, 2, 3, 4]), np.array([1, 3, 2, 4])), 3)
    0.667
    """
    x, y = np.sign(a[:, None] - a), np.sign(b[:, None] - b)
    same, ties = float((x * y).sum()), float(np.abs(x).sum()) * float(np.abs(y).sum())
    return same / ties**0.5 if ties else float(not x.any() and not y.any())


def spearman_correlation(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Correlation of ranks, ties sharing the mean of their ranks (the released d² formula is wrong with ties)."""
    from scipy.stats import rankdata  # takes a third of a second to import

    flat = (np.ptp(a) == 0, np.ptp(b) == 0)
    if any(flat):
        return float(all(flat))
    x, y = rankdata(a), rankdata(b)
    x, y = x - x.mean(), y - y.mean()
    return float((x @ y) / np.sqrt((x @ x) * (y @ y)))


@metric(
    "spearman",
    needs={"models"},
    better="higher",
    family="robustness",
    paper="ALTI 2022, §5.2",
)
def spearman(case: Case) -> Measured:
    """Whether models that differ by seed only are explained alike: mean rank correlation over all pairs of models."""
    free = [scores[case.free] for scores in case.models]
    return Measured(float(np.mean([spearman_correlation(a, b) for a, b in combinations(free, 2)])))


@metric(
    "jaccard",
    needs={"models"},
    better="higher",
    family="robustness",
    paper="ALTI 2022, §5.2; Zafar 2021",
)
def jaccard(case: Case, *, share: float = 0.25) -> Measured:
    """The same by sets: mean over pairs of models of |A ∩ B| / |A ∪ B|, A and B their top 25% of tokens."""
    k = ceil(share * len(case.free))
    tops = [set(falling(scores[case.free])[:k].tolist()) for scores in case.models]
    return Measured(float(np.mean([len(a & b) / len(a | b) for a, b in combinations(tops, 2)])))


@metric(
    "precision-at-k",
    needs={"answer"},
    presets={"mask-lrp": {}, "attcat": {"share": False}},
    better="higher",
    family="agreement",
    paper="AttCAT 2022, §5.3; Mask-LRP 2024, §5.1",
)
def precision_at_k(case: Case, *, k: int = 20, share: bool = True) -> Measured:
    """How many tokens of the answer are among the k that score highest, question and special tokens counted.

    `mask-lrp`: hits / answer tokens, over all questions together (mean hits / mean length). `attcat`: mean hits.
    """
    answer = set(case.answer or ())
    hits = len(answer & set(falling(case.scores)[:k].tolist()))
    return Measured(hits / len(answer), weight=len(answer)) if share else Measured(float(hits))


@metric("rationale-auprc", needs={"rationale"}, better="higher", family="agreement", paper="ERASER 2020")
def rationale_auprc(case: Case) -> Measured:
    """Agreement with people: area under precision against recall of the tokens that they marked, over all thresholds."""
    assert case.rationale is not None
    return Measured(area_under_precision(case.scores[case.free], case.rationale[case.free]))


def area_under_precision(scores: NDArray[Any], marked: NDArray[np.bool_]) -> float:
    """Trapezoids between thresholds, tokens of equal score taken together, from (recall 0, precision 1) on, as ERASER does.

    >>> area_under_precision(np.array([3.0, 2.0, 1.0]), np.array([True, False, False]))
    1.0
    """
    order = falling(scores)
    hits = np.cumsum(marked[order])
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)  # the last of each group of equals
    recall = np.append(0.0, hits[last] / hits[-1])
    precision = np.append(1.0, hits[last] / (last + 1))
    return float(np.sum(np.diff(recall) * (precision[1:] + precision[:-1]) / 2))


@metric("rationale-f1", needs={"rationale"}, better="higher", family="agreement", paper="ERASER 2020")
def rationale_f1(case: Case) -> Measured:
    """Agreement with people: F1 of as many top tokens as they marked (precision and recall are then the same)."""
    assert case.rationale is not None
    marked = int(case.rationale[case.free].sum())
    return Measured(float(case.rationale[case.order[:marked]].mean()))
