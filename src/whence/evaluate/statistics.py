"""How sure a figure is: bootstrap intervals, and paired permutation tests against the best method with Holm's correction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RESAMPLES = 2000
PERMUTATIONS = 10_000
BLOCK = 500  # permutations at once
ALPHA = 0.05


@dataclass(frozen=True)
class Figure:
    """One cell of a report's table."""

    mean: float
    low: float  # 95% interval
    high: float
    p: float  # against the best method, Holm-corrected; 1 for the best itself
    n: int  # texts measured
    best: bool = False
    tied: bool = False  # not significantly different from the best


@lru_cache(maxsize=4)
def resamples(n: int, seed: int, count: int = RESAMPLES) -> Floats:
    """How often each text is drawn in each bootstrap sample, the same for all metrics. (count, n)"""
    drawn = np.random.default_rng([seed, n]).multinomial(n, np.full(n, 1 / n), size=count).astype(np.float64)
    drawn.flags.writeable = False
    return drawn


def bootstrap(values: Floats, weights: Floats, draws: Floats) -> Floats:
    """Weighted means of resampled texts. values (n, methods) → (count, methods)"""
    weighted: Floats = draws @ (values * weights[:, None])
    return weighted / (draws @ weights)[:, None]


def permutation_p(differences: Floats, seed: int, count: int = PERMUTATIONS) -> Floats:
    """Two-sided p of mean ≠ 0 by flipping the sign of each text's difference. (n, methods) → (methods,)

    >>> bool(permutation_p(np.full((20, 1), 0.3), seed=0)[0] < 0.001)
    True
    """
    n = len(differences)
    observed = np.abs(differences.sum(0))
    scale = np.abs(differences).sum(0) * 1e-12  # equal sums must count as equal whatever their rounding
    reached = np.zeros(differences.shape[1])
    generator = np.random.default_rng([seed, n, 1])
    for start in range(0, count, BLOCK):
        signs = generator.integers(0, 2, (min(BLOCK, count - start), n)) * 2.0 - 1.0
        reached += (np.abs(signs @ differences) >= observed - scale).sum(0)
    p: Floats = (1 + reached) / (1 + count)
    return p


def holm(p: Floats) -> Floats:
    """Holm's step-down correction.

    >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected


def compare(values: Mapping[str, Floats], weights: Floats, better: str, seed: int) -> dict[str, Figure]:
    """A figure per method from per-text values; texts that were not measured (NaN) are left out for all methods."""
    names = list(values)
    table = np.stack([values[name] for name in names], axis=1)  # (n, methods)
    measured = np.isfinite(table).all(1) & (weights > 0)
    if not measured.any():
        return {name: Figure(float("nan"), float("nan"), float("nan"), float("nan"), 0) for name in names}
    table, weights = table[measured], weights[measured]
    means = weights @ table / weights.sum()
    spread = bootstrap(table, weights, resamples(len(table), seed))
    low, high = np.quantile(spread, [0.025, 0.975], axis=0)
    best = best_of(means, better)
    others = [i for i in range(len(names)) if i != best]
    p = np.ones(len(names))
    if others:
        p[others] = holm(permutation_p((table[:, others] - table[:, [best]]) * weights[:, None], seed))
    return figures(names, means, low, high, p, best, len(table))


def compare_samples(
    values: Mapping[str, float], samples: Mapping[str, Floats], n: int, better: str
) -> dict[str, Figure]:
    """The same for a number over a whole corpus, from its values on bootstrap samples of texts (the same for all methods).

    A sample repeats some texts and lacks others, which moves such a number as a whole: the interval takes the spread of the
    samples around their own mean. A share of a few hundred samples is no p small enough to outlive Holm's correction, so p
    comes from the spread of the differences, taken as normal.
    """
    from scipy.stats import norm  # takes a third of a second to import

    names = list(values)
    means = np.array([values[name] for name in names])
    if not np.isfinite(means).all():
        return {name: Figure(values[name], float("nan"), float("nan"), float("nan"), n) for name in names}
    spread = np.stack([samples[name] for name in names], axis=1)  # (count, methods)
    low, high = means + np.nanquantile(spread, [0.025, 0.975], axis=0) - np.nanmean(spread, axis=0)
    if np.nanmin(spread) >= 0:  # a share is never negative
        low = np.maximum(low, 0.0)
    best = best_of(means, better)
    deviation = np.nanstd(spread - spread[:, [best]], axis=0)
    z = np.divide(np.abs(means - means[best]), deviation, out=np.zeros(len(names)), where=deviation > 1e-12)
    p = 2 * norm.sf(z)
    others = [i for i in range(len(names)) if i != best]
    if others:
        p[others] = holm(p[others])
    p[best] = 1.0
    return figures(names, means, low, high, p, best, n)


def best_of(means: Floats, better: str) -> int:
    return int(np.argmax(means) if better == "higher" else np.argmin(means))


def figures(
    names: list[str], means: Floats, low: Floats, high: Floats, p: Floats, best: int, n: int
) -> dict[str, Figure]:
    return {
        name: Figure(
            mean=float(means[i]),
            low=float(low[i]),
            high=float(high[i]),
            p=float(p[i]),
            n=n,
            best=i == best,
            tied=i != best and bool(p[i] >= ALPHA),
        )
        for i, name in enumerate(names)
    }


def ranks(means: Floats, better: str) -> Floats:
    """1 for the best of each row; equal means share the mean of their ranks. (rows, methods) → (rows, methods)"""
    from scipy.stats import rankdata

    return np.asarray(rankdata(-means if better == "higher" else means, axis=-1), dtype=np.float64)
