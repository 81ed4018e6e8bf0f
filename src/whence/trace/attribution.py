"""What a method makes of a batch, and of each of its rows. Terms of one target (the start and the end of an answer) add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch
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

    def to_host(self, dtype: torch.dtype) -> Attribution:
        """The same on its way to the CPU: nobody waits, so read it when the device is done. Scores, layers and matrices become `dtype`."""
        return Attribution(
            on_host(self.scores.to(dtype)),
            None if self.layers is None else on_host(self.layers.to(dtype)),
            {name: on_host(value) for name, value in self.options.items()},
            None if self.matrices is None else {name: m.detach().to(dtype) for name, m in self.matrices.items()},
        )

    def rows(self, real: Sequence[NDArray[np.bool_]]) -> list[RowScores]:
        """Each row's own scores, of an attribution on the CPU: what pads a row to the longest is cut off.

        Args:
            real: (n,) of every row which tokens are no padding; padding that came with a row scores 0, whatever the method says.
        """
        scores = self.scores.numpy()
        layers = None if self.layers is None else self.layers.numpy()
        options = {name: per_row(value) for name, value in self.options.items()}
        matrices = self.matrices or {}
        return [
            RowScores(
                np.where(tokens, scores[i, : len(tokens)], 0),
                None if layers is None else np.where(tokens, layers[i, :, : len(tokens)], 0),
                {name: value[i] if isinstance(value, list) else value for name, value in options.items()},
                {name: m[i, :, : len(tokens), : len(tokens)].cpu().numpy().copy() for name, m in matrices.items()}
                or None,
            )
            for i, tokens in enumerate(real)
        ]


def on_host(value: Any) -> Any:
    """A tensor, or the tensors of a share, on their way to the CPU; anything else as it is."""
    if isinstance(value, Share):
        return Share(on_host(value.part), on_host(value.whole))
    return value.detach().to("cpu", non_blocking=True) if hasattr(value, "is_cuda") else value


def per_row(value: Any) -> Any:
    """A tensor (b,) as a list of numbers, None for NaN; a share of tensors as a list of shares; anything else as it is."""
    if isinstance(value, Share):
        return [Share(*pair) for pair in zip(value.part.tolist(), value.whole.tolist(), strict=True)]
    return [None if v != v else v for v in value.tolist()] if hasattr(value, "is_cuda") else value


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
        quotient = self.part / self.whole if self.whole else None
        return None if quotient != quotient else quotient


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
class RowScores:
    """What a method makes of one row: padding cut off, as numpy."""

    scores: Floats  # (n,)
    layers: Floats | None = None  # (L, n)
    options: dict[str, Any] = field(default_factory=dict)  # facts to report
    matrices: dict[str, Floats] | None = None  # name → (L, n, n)

    def __add__(self, other: RowScores) -> RowScores:
        """Terms of one target add up; matrices are of the text, and the same for each."""
        layers = None if self.layers is None or other.layers is None else self.layers + other.layers
        options = {**self.options, **other.options}
        options |= {k: v + options[k] for k, v in self.options.items() if isinstance(v, (Share, Amount))}
        return RowScores(self.scores + other.scores, layers, options, self.matrices)

    def facts(self) -> dict[str, Any]:
        """The options, with shares as numbers."""
        return {k: v.value if isinstance(v, Share) else v for k, v in self.options.items()}
