"""Token overlap: do two classes lean on the same tokens? A metric over a whole corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from whence.evaluate.metrics.case import Case, Floats, Ints, Measured
from whence.evaluate.metrics.registry import metric

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
    sizes = (k, *ks)
    tops = class_rankings(Corpus.of(cases), weights, max(sizes))
    pairs = list(combinations(tops, 2))
    if not pairs:
        return Measured(float("nan"), np.full(len(ks), np.nan))
    shares = np.mean([shared(a, b, sizes) for a, b in pairs], axis=0)  # (sizes,)
    return Measured(float(shares[0]), shares[1:])


def shared(a: Ints, b: Ints, sizes: Sequence[int]) -> Floats:
    """|a's first k ∩ b's first k| / k for every size k: a token is shared from its later place on.

    >>> shared(np.array([7, 8, 9]), np.array([8, 7]), (1, 2)).tolist()
    [0.0, 1.0]
    """
    _, in_a, in_b = np.intersect1d(a[: max(sizes)], b[: max(sizes)], assume_unique=True, return_indices=True)
    later = np.sort(np.maximum(in_a, in_b))
    found: Floats = np.searchsorted(later, sizes) / np.array(sizes)
    return found


@dataclass(frozen=True)
class Corpus(Sequence[Case]):
    """Cases with their tokens in flat arrays, worked out once for any number of weightings (bootstrap samples)."""

    cases: Sequence[Case]

    @classmethod
    def of(cls, cases: Sequence[Case]) -> Corpus:
        return cases if isinstance(cases, Corpus) else cls(cases)

    def __len__(self) -> int:
        return len(self.cases)

    def __getitem__(self, index: Any) -> Any:
        return self.cases[index]

    @cached_property
    def tokens(self) -> Tokens:
        ids, places = np.unique(np.concatenate([np.array(c.ids)[c.free] for c in self.cases]), return_inverse=True)
        lengths = [len(c.free) for c in self.cases]
        texts = np.repeat(np.arange(len(self.cases)), lengths)
        once = np.unique(texts * len(ids) + places)
        return Tokens(
            ids=ids,
            places=places,
            texts=texts,
            scores=np.concatenate([c.scores[c.free] for c in self.cases]),
            classes=np.repeat([c.target for c in self.cases], lengths),
            once=(once // len(ids), once % len(ids)),
        )


@dataclass(frozen=True)
class Tokens:
    """All tokens of a corpus, special ones left out."""

    ids: Ints  # (distinct,)
    places: Ints  # (tokens,) which of the distinct ids each token is
    texts: Ints  # (tokens,) which text it is of
    scores: Floats  # (tokens,)
    classes: Ints  # (tokens,) the class that its text is explained for
    once: tuple[Ints, Ints]  # (text, id) pairs that occur, without repetition

    @cached_property
    def by_class(self) -> list[tuple[Ints, Ints, Floats]]:
        """Places, texts and scores of each class's own tokens."""
        own = [np.flatnonzero(self.classes == target) for target in np.unique(self.classes)]
        return [(self.places[of], self.texts[of], self.scores[of]) for of in own]


def class_rankings(corpus: Corpus, weights: Floats, most: int | None = None) -> list[Ints]:
    """Token ids by falling weight (the first `most`), one list per class that occurs; tokens of no positive weight are left out."""
    tokens = corpus.tokens
    idf = inverse_frequency(tokens, weights)
    tops = []
    for places, texts, scores in tokens.by_class:
        total = np.bincount(places, weights=scores * weights[texts], minlength=len(tokens.ids)) * idf
        there = np.flatnonzero(total > 0)
        if most is not None and most < len(there):  # those that can be among the first, ties with the last one included
            there = there[total[there] >= np.partition(total[there], len(there) - most)[len(there) - most]]
        tops.append(tokens.ids[there[np.argsort(-total[there], kind="stable")]][:most])
    return tops


def inverse_frequency(tokens: Tokens, weights: Floats) -> Floats:
    """log(N / df), every text counted `weights` times. (distinct,)"""
    texts, places = tokens.once
    df = np.bincount(places, weights=weights[texts], minlength=len(tokens.ids))
    idf: Floats = np.log(weights.sum() / np.maximum(df, 1.0))
    return idf
