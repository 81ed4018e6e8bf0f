"""What a method makes of a batch, and each row's part of it. Terms of one target (the start and the end of an answer) add up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Attribution:
    """What a method returns when it has more to say than one score per token."""

    scores: Tensor  # (b, n)
    layers: Tensor | None = None  # (b, L, n)
    # facts to report; lists hold one entry per row, and so do tensors (b,), which are read late: NaN there is None
    options: dict[str, Any] = field(default_factory=dict)
    # name → (b, L, n, n), where the method has them and was asked; of the text, whatever is explained of it
    matrices: dict[str, Tensor] | None = None


def fits_rows(found: Attribution, rows: int, tokens: int) -> str | None:
    """What is wrong with the shapes of what a method returned, in words; None if nothing is."""
    axes = {"scores": (rows, tokens), "layers": (rows, None, tokens)}
    given: dict[str, Any] = {"scores": found.scores, "layers": found.layers}
    for name, matrix in (found.matrices or {}).items():
        axes[f"matrices[{name!r}]"], given[f"matrices[{name!r}]"] = (rows, None, tokens, tokens), matrix
    for name, tensor in given.items():
        if tensor is None and name == "layers":
            continue
        wanted = axes[name]
        shape = getattr(tensor, "shape", None)
        if shape is None or not hasattr(tensor, "is_complex"):
            return f"{name} must be a tensor, got {type(tensor).__name__}"
        if tensor.is_complex():
            return f"{name} must be real numbers"
        if len(shape) != len(wanted) or any(w is not None and s != w for s, w in zip(shape, wanted, strict=True)):
            expected = ", ".join("layers" if w is None else str(w) for w in wanted)
            return f"{name} have the shape ({', '.join(map(str, shape))}), and ({expected}) is wanted"
    return None


@dataclass(frozen=True)
class Share:
    """A fact that is a quotient: terms add up before it is divided. Of a batch both are tensors (b,), of a row numbers."""

    part: Any
    whole: Any

    def __add__(self, other: Share) -> Share:
        return Share(self.part + other.part, self.whole + other.whole)

    @property
    def value(self) -> float | None:
        found = self.part / self.whole if self.whole else None
        return None if found != found else found


@dataclass(frozen=True)
class Gap(Share):
    """What is missing of a difference that scores should add up to: a fact that ends as a share, 0.38 say, whatever its sign."""

    def __add__(self, other: Share) -> Gap:
        return Gap(self.part + other.part, self.whole + other.whole)

    @property
    def value(self) -> float:
        if not self.part:
            return 0.0
        return float(abs(self.part / self.whole)) if self.whole else 1.0


class Amount(float):
    """A fact that adds up over terms."""

    def __add__(self, other: float) -> Amount:
        return Amount(float(self) + other)


@dataclass(frozen=True)
class Part:
    """One row's share of an attribution: padding cut off, as numpy."""

    scores: Floats  # (n,)
    layers: Floats | None = None  # (L, n)
    options: dict[str, Any] = field(default_factory=dict)  # facts to report
    matrices: dict[str, Floats] | None = None  # name → (L, n, n)

    def __add__(self, other: Part) -> Part:
        """Terms of one target add up; matrices are of the text, and the same for each."""
        layers = None if self.layers is None or other.layers is None else self.layers + other.layers
        options = {**self.options, **other.options}
        options |= {k: v + options[k] for k, v in self.options.items() if isinstance(v, (Share, Amount))}
        return Part(self.scores + other.scores, layers, options, self.matrices)

    def told(self) -> Part:
        """With shares as numbers: nothing is added any more."""
        shares = {k: v.value for k, v in self.options.items() if isinstance(v, Share)}
        return replace(self, options={**self.options, **shares}) if shares else self
