"""DeepLIFT: differences to a baseline, handed down through every operation by multipliers (Shrikumar 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from whence.errors import ModelError
from whence.inputs.numbers import seed_of, work
from whence.methods.ground import Ground, PathBatch, adds_up, change_of
from whence.methods.path import LUNDBERG, Leg, Path, Tally, aggregated, check_aggregate, gap
from whence.registry import method
from whence.relevance.deeplift import DEEPLIFT
from whence.relevance.operations import RelevancePass
from whence.trace.attribution import Amount, RowScores


def multipliers(**_: Any) -> RelevancePass:
    """DeepLIFT's multipliers are handed down by rules too."""
    return RelevancePass(DEEPLIFT.name)


# ---- DeepLIFT -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Difference(Path):
    """DeepLIFT's multipliers between the input and one or several baselines."""

    paired: ClassVar[bool] = True
    count: int
    baseline: str
    seed: int
    aggregate: str
    remedy: str = "take another baseline=, dtype='float64', or integrated-gradients"

    def leg(self, batch: PathBatch) -> Leg:
        start = batch.baseline(self.baseline, batch.chance(self.seed) if self.baseline == "random" else ())
        return Leg(batch.x, batch.x - start, batch.per_point(1 / c for c in batch.counts))

    def parts(self, leg: Leg, gradient: Tensor, change: Tensor | None) -> dict[str, Tensor]:
        assert change is not None
        return {**super().parts(leg, gradient, change), "change": leg.weight[:, 0, 0] * change}

    def finish(self, tally: Tally) -> RowScores:
        attribution = tally.sums["attribution"]
        change = float(tally.sums["change"])
        delta = float(attribution.sum()) - change
        if abs(delta) > max(1.0, abs(change)):
            raise ModelError(
                f"deeplift should sum to a difference of {change:.3g} and misses it by {delta:.3g}: this model's numbers do not bear "
                "its divisions. Use another baseline=, dtype='float64', or integrated-gradients."
            )
        facts = {"baseline": self.baseline, "delta": Amount(delta), "unexplained": gap(delta, change, abs(change))}
        return RowScores(aggregated(attribution, self.aggregate), options=facts)


@method(
    "deeplift",
    kind="path",
    needs={"embeddings"},
    relevance=multipliers,
    signed=adds_up,
    sums_to=change_of,
    family="gradient path",
    paper="Shrikumar 2017",
)
def deeplift(ground: Ground, *, baseline: str = "auto", aggregate: str = "sum") -> Path:
    """DeepLIFT, rescale rule: multipliers that hand y(x) − y(x̄) down through every operation exactly; scores sum to it.

    The paper's rule for activations, and rules of the same kind for what it does not have: products, norms and softmax
    (`whence.relevance.deeplift`). options["delta"] is what rounding left over.

    Args:
        baseline, aggregate: as in `integrated-gradients`.
    """
    return Difference(count=1, baseline=ground.resolve(baseline), seed=0, aggregate=check_aggregate(aggregate))


@method(
    "deeplift-shap",
    kind="path",
    needs={"embeddings"},
    relevance=multipliers,
    signed=adds_up,
    sums_to=change_of,
    family="gradient path",
    paper=LUNDBERG,
)
def deeplift_shap(
    ground: Ground, *, samples: int = 5, baseline: str = "random", seed: int = 0, aggregate: str = "sum"
) -> Path:
    """`deeplift` averaged over baselines: scores sum to y(x) − mean y(b), exactly.

    Args:
        baseline: "random" (default) draws `samples` texts of random words; a fixed one ("mask", "pad", "zero") gives `deeplift`.
    """
    name, count = ground.resolve(baseline, ["random"]), work("samples", samples)
    return Difference(
        count=count if name == "random" else 1,
        baseline=name,
        seed=seed_of(seed),
        aggregate=check_aggregate(aggregate),
    )
