"""Token overlap: do two classes lean on the same tokens? A metric over a whole corpus."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from whence.metrics.case import Case, Floats, Ints, Measured
from whence.registry import metric

KS = tuple(range(5, 105, 5))


def k_grid(ks: Sequence[int], **_: Any) -> Sequence[float]:
    return ks


@metric(
    "token-overlap",
    over="corpus",
    grid=k_grid,
    better="lower",
    family="corpus",
    paper="Decoded saliency 2023, §4.2, A.1",
)
def token_overlap(cases: Sequence[Case], weights: Floats, *, k: int = 50, ks: Sequence[int] = KS) -> Measured:
    """How many of the top k tokens two classes share: Σ over pairs of |top_a ∩ top_b| / (C(C, 2)·k); value at k = 50.

    A token's weight in a class is the sum of its scores over the texts explained for that class, times its inverse document
    frequency log(N / df) in the evaluated texts (the paper counts documents in Wikipedia). Only classes that occur are
    compared; with fewer than two the value is not a number.
    """
    tops = class_rankings(cases, weights)
    pairs = list(combinations(tops, 2))
    if not pairs:
        return Measured(float("nan"), np.full(len(ks), np.nan))
    shared = {size: np.mean([len(set(a[:size]) & set(b[:size])) / size for a, b in pairs]) for size in {k, *ks}}
    return Measured(float(shared[k]), np.array([shared[size] for size in ks]))


def class_rankings(cases: Sequence[Case], weights: Floats) -> list[list[int]]:
    """Token ids by falling weight, one list per class that occurs; tokens of no positive weight are left out."""
    ids, places = np.unique(np.concatenate([np.array(c.ids)[c.free] for c in cases]), return_inverse=True)
    lengths = [len(c.free) for c in cases]
    texts = np.repeat(np.arange(len(cases)), lengths)  # (tokens,) which text each token is of
    scores = np.concatenate([c.scores[c.free] for c in cases])
    idf = inverse_frequency(texts, places, len(ids), weights)
    classes = np.repeat([c.target for c in cases], lengths)
    tops = []
    for target in np.unique(classes):
        of = classes == target
        total = np.bincount(places[of], weights=scores[of] * weights[texts[of]], minlength=len(ids)) * idf
        ranked = np.argsort(-total, kind="stable")
        tops.append(ids[ranked[total[ranked] > 0]].tolist())
    return tops


def inverse_frequency(texts: Ints, places: Ints, tokens: int, weights: Floats) -> Floats:
    """log(N / df), every text counted `weights` times. (tokens,)"""
    pairs = np.unique(np.stack([texts, places]), axis=1)
    df = np.bincount(pairs[1], weights=weights[pairs[0]], minlength=tokens)
    idf: Floats = np.log(weights.sum() / np.maximum(df, 1.0))
    return idf
