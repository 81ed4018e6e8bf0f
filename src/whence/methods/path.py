"""Methods that take gradients at many points of embedding space, one text at a time in their formulas, batched by the runner.

A path method is a function of a `Ground` and its options that returns a `Path`: where the points of a row lie, what each
point's gradient adds to the row's sums, and what those sums mean. `whence.run.paths` runs any number of rows and points in full
batches and keeps nothing but the sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whence.errors import UnknownName
from whence.inputs.numbers import seed_of, work
from whence.methods.gradient import gradient_need, l1_shares
from whence.methods.ground import Ground, PathBatch, adds_up, change_of, check_sigma
from whence.registry import method
from whence.trace.attribution import Amount, Gap, RowScores

AGGREGATES = ("sum", "l2", "mean")
START, CONVERGED = 16, 0.01  # steps="auto": how many at first, and which share of f(x) − f(baseline) may be missing
LUNDBERG = "Lundberg & Lee 2017"


@dataclass(frozen=True)
class Leg:
    """Points of a batch and what their gradients are multiplied with. All (b, n, d)."""

    points: Tensor  # where gradients are taken; DeepLIFT: the inputs
    span: Tensor  # input − baseline
    weight: Tensor  # (b, 1, 1) of each point in its row's sum


@dataclass(frozen=True)
class Tally:
    """What the points of one row add up to."""

    sums: Mapping[str, NDArray[np.float64]]
    count: int
    ends: tuple[float, float] | None = None  # f(x) and f(baseline), if the path asked for them


class Path(ABC):
    """One method, with its options."""

    paired: ClassVar[bool] = False  # gradients are DeepLIFT's multipliers of (input, baseline)
    baseline: str = "none"
    of: str = "logit"  # the scalar whose gradient is taken: "logit", "probability" or "loss"
    ends: bool = False  # whether f(x) and f(baseline) are wanted
    aggregate: str = "sum"
    count: int  # points per row
    remedy: str = "take another baseline="  # where scores do not add up to what they should

    @property
    def additive(self) -> bool:
        """Whether the scores of several terms are those of the one scalar that they add up to: there is no norm in them."""
        return self.aggregate == "sum"

    @abstractmethod
    def leg(self, batch: PathBatch) -> Leg:
        """Where the points of a batch lie."""

    def parts(self, leg: Leg, gradient: Tensor, change: Tensor | None) -> dict[str, Tensor]:
        """What each point adds to its row's sums, each (b, …). change: f(x) − f(baseline) of each point, if `paired`."""
        return {"attribution": leg.weight * leg.span * gradient}

    @abstractmethod
    def finish(self, tally: Tally) -> RowScores | int:
        """The row's result; or how many points to take in place of these, which did not suffice."""


def aggregated(attribution: NDArray[np.float64], aggregate: str) -> NDArray[np.float64]:
    """(n, d) → (n,): "sum" (signed; adds up to f(x) − f(baseline)), "l2" (norm) or "mean" (of absolute values)."""
    if aggregate == "l2":
        norms: NDArray[np.float64] = np.linalg.norm(attribution, axis=-1)
        return norms
    total: NDArray[np.float64] = np.abs(attribution).mean(-1) if aggregate == "mean" else attribution.sum(-1)
    return total


def check_aggregate(aggregate: Any) -> str:
    """One of AGGREGATES, or an error."""
    if aggregate not in AGGREGATES:
        raise UnknownName("aggregate", str(aggregate), AGGREGATES)
    return str(aggregate)


def gap(delta: float, difference: float, largest: float) -> Gap:
    """What is missing of a difference of answers; what rounding of answers as large as these comes to is nothing."""
    return Gap(0.0 if abs(delta) <= rounding(largest) else delta, difference)


def rounding(largest: float) -> float:
    return 1e-6 * max(1.0, largest)


@cache
def gauss_legendre(steps: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points and weights of the quadrature on [0, 1]; exact for polynomials up to degree 2·steps − 1.

    >>> points, weights = gauss_legendre(2)
    >>> round(float(weights @ points**3), 12)
    0.25
    """
    from scipy.special import roots_legendre

    points, weights = roots_legendre(steps)  # memory in proportion to steps; numpy's leggauss takes its square
    return (points + 1) / 2, weights / 2


# ---- integrated gradients -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Straight(Path):
    """The straight line from the baseline to the input, by Gauss–Legendre quadrature."""

    count: int
    most: int  # points that a row may get at the utmost
    baseline: str
    aggregate: str
    of: str
    ends: bool = True
    remedy: str = "take more steps= (with steps='auto' a larger max_steps=), or another baseline="

    def leg(self, batch: PathBatch) -> Leg:
        start = batch.baseline(self.baseline)
        where = [gauss_legendre(count) for count in batch.counts]
        alpha = batch.per_point(points[k] for (points, _), k in zip(where, batch.points, strict=True))
        weight = batch.per_point(weights[k] for (_, weights), k in zip(where, batch.points, strict=True))
        return Leg(torch.lerp(start, batch.x, alpha), batch.x - start, weight)

    def finish(self, tally: Tally) -> RowScores | int:
        assert tally.ends is not None
        at_x, at_baseline = tally.ends
        attribution, change = tally.sums["attribution"], at_x - at_baseline
        delta = float(attribution.sum() - change)
        largest = max(abs(at_x), abs(at_baseline))
        if tally.count < self.most and abs(delta) > max(CONVERGED * abs(change), rounding(largest)):
            return min(2 * tally.count, self.most)
        facts = {"baseline": self.baseline, "steps": tally.count, "delta": Amount(delta)}
        facts["unexplained"] = gap(delta, change, largest)
        return RowScores(aggregated(attribution, self.aggregate), options=facts)


@method(
    "integrated-gradients",
    kind="path",
    needs=lambda of, **_: {"embeddings", gradient_need(of)},
    signed=adds_up,
    sums_to=change_of,
    family="gradient path",
    paper="Sundararajan 2017",
    first_choice=True,
)
def integrated_gradients(
    ground: Ground,
    *,
    steps: int | str = 50,
    baseline: str = "auto",
    aggregate: str = "sum",
    of: str = "logit",
    max_steps: int = 400,
) -> Path:
    """(x_j − x̄_j) ⊙ ∫₀¹ ∂y/∂x_j (x̄ + α(x − x̄)) dα, with a baseline x̄ whose tokens stand for nothing. Sums to y(x) − y(x̄).

    Gauss–Legendre quadrature. options["delta"] is what is missing: Σ (over features too) − (y(x) − y(x̄)), and options["unexplained"] its
    share of the difference; more than 2% is warned of.

    Args:
        steps: points; "auto" doubles a row's from 16 on until the sum is within 1% of y(x) − y(x̄), up to max_steps.
        baseline: every free token's embedding becomes that of "mask" (ALTI's choice) or "pad", or "zero" (Decoded Grad-CAM's);
            special tokens stay. "auto" is the first of these that the model has; the options of the result say which.
        aggregate: "sum" over features (default, signed: the only one that keeps completeness), "l2" or "mean" of absolute values.
        of: "logit" (default), "probability" or "loss".
    """
    gradient_need(of)
    count = START if steps == "auto" else steps
    count = work("steps", count, other=", or 'auto'")
    most = work("max_steps", max_steps) if steps == "auto" else count
    return Straight(
        count=min(count, most),
        most=most,
        baseline=ground.resolve(baseline),
        aggregate=check_aggregate(aggregate),
        of=of,
    )


# ---- averages over noise and baselines ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Cloud(Path):
    """Around the input."""

    count: int
    sigma: float
    seed: int
    of: str = "loss"

    @property
    def additive(self) -> bool:
        return False

    def leg(self, batch: PathBatch) -> Leg:
        noise = batch.noise(self.sigma, batch.chance(self.seed))
        return Leg(batch.x + noise, noise, batch.per_point(1 / c for c in batch.counts))

    def parts(self, leg: Leg, gradient: Tensor, change: Tensor | None) -> dict[str, Tensor]:
        return {"shares": leg.weight[:, :, 0] * l1_shares(gradient)}

    def finish(self, tally: Tally) -> RowScores:
        return RowScores(tally.sums["shares"])


@method(
    "smoothgrad",
    kind="path",
    needs={"embeddings", "embeddings.grad:log-probability"},
    signed=False,
    sums_to="1",
    family="gradient path",
    paper="Smilkov 2017",
)
def smoothgrad(ground: Ground, *, samples: int = 10, sigma: float = 0.01, seed: int = 0) -> Path:
    """`simple` averaged over `samples` noisy copies of the embeddings, so that scores sum to 1.

    Departure: AllenNLP Interpret averages gradients, which cancel, before it takes norms.

    Args:
        sigma: the noise is normal with deviation sigma × (max − min of the text's embeddings), as in AllenNLP Interpret.
        seed: the noise depends on it and the text alone.
    """
    return Cloud(count=work("samples", samples), sigma=check_sigma(sigma), seed=seed_of(seed))


@dataclass(frozen=True, kw_only=True)
class Expected(Path):
    """One random point of the line between each of several baselines and the (noisy) input."""

    count: int
    baseline: str
    sigma: float
    seed: int
    aggregate: str
    of: str

    def leg(self, batch: PathBatch) -> Leg:
        chance = batch.chance(self.seed)
        start = batch.baseline(self.baseline, chance)
        alpha = batch.per_point(random.random() for random in chance)
        end = batch.x + batch.noise(self.sigma, chance) if self.sigma else batch.x
        return Leg(torch.lerp(start, end, alpha), end - start, batch.per_point(1 / c for c in batch.counts))

    def parts(self, leg: Leg, gradient: Tensor, change: Tensor | None) -> dict[str, Tensor]:
        product = leg.span * gradient
        token = product.sum(-1, dtype=torch.float64)  # (b, n)
        return {"attribution": leg.weight * product, "token": token, "square": token.square()}

    def finish(self, tally: Tally) -> RowScores:
        facts: dict[str, Any] = {"baseline": self.baseline}
        if self.aggregate == "sum" and tally.count > 1:
            facts["stderr"] = standard_error(tally.sums["token"], tally.sums["square"], tally.count).tolist()
        return RowScores(aggregated(tally.sums["attribution"], self.aggregate), options=facts)


def standard_error(total: NDArray[np.float64], squares: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Of a mean, from the sums of `count` values and of their squares.

    >>> float(standard_error(np.array(6.0), np.array(14.0), 3))  # of 1, 2, 3
    0.5773502691896257
    """
    variance = np.maximum(squares - total**2 / count, 0) / (count - 1)
    result: NDArray[np.float64] = np.sqrt(variance / count)
    return result


@method(
    "gradient-shap",
    kind="path",
    needs=lambda of, **_: {"embeddings", gradient_need(of)},
    signed=adds_up,  # it sums to the difference in expectation only
    family="gradient path",
    paper=LUNDBERG,
)
def gradient_shap(
    ground: Ground,
    *,
    samples: int = 5,
    baseline: str = "random",
    sigma: float = 0.0,
    seed: int = 0,
    aggregate: str = "sum",
    of: str = "logit",
) -> Path:
    """Expected gradients: mean over samples of (x − b) ⊙ ∂y/∂x at b + α(x − b), b drawn from baselines, α uniform in [0, 1].

    Sums to y(x) − E y(b) in expectation only: options["stderr"] says, for aggregate="sum", how sure each token's score is.

    Args:
        samples: as captum's GradientShap, each has a baseline, a point and noise of its own; 5 are the paper's choice, and few.
        baseline: "random" (default) draws a random word for every free token; the others as in `integrated-gradients`.
        sigma: above 0, normal noise on x: sigma × the range of the embeddings.
        seed, aggregate, of: chance depends on seed and text alone; the others as in `integrated-gradients`.
    """
    gradient_need(of)
    return Expected(
        count=work("samples", samples),
        baseline=ground.resolve(baseline, ["random"]),
        sigma=check_sigma(sigma),
        seed=seed_of(seed),
        aggregate=check_aggregate(aggregate),
        of=of,
    )
