"""From a method's attribution of a batch to each row's own part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from whence.attribution import Attribution, Part, Share
from whence.errors import ModelError
from whence.inputs import Encoded, Fetched
from whence.tasks import Target


@dataclass(frozen=True)
class Made:
    """What one method made of a batch for one term of every row's targets; its numbers may still be on their way."""

    name: str
    scores: Fetched  # (b, n)
    layers: Fetched | None  # (b, L, n)
    options: Mapping[str, Any]
    matrices: Mapping[str, torch.Tensor] | None
    of_target: Sequence[int | None]  # (b,) which of its row's targets the term is of; None: the row has no such term

    @classmethod
    def of(cls, name: str, found: Attribution, of_target: Sequence[int | None], dtype: torch.dtype) -> Made:
        """dtype: the model's; scores are float32, or float64 for a model that runs in it."""
        kind = torch.float64 if dtype == torch.float64 else torch.float32
        late = {k: fetched(v) for k, v in found.options.items()}
        layers = None if found.layers is None else Fetched(found.layers.to(kind))
        matrices = found.matrices and {k: m.detach().to(kind) for k, m in found.matrices.items()}
        return cls(name, Fetched(found.scores.to(kind)), layers, late, matrices, of_target)

    def parts(self, rows: Sequence[Encoded]) -> list[Part]:
        """Each row's share, padding cut off; refuses scores that are not finite."""
        scores = self.scores.tensor().numpy()
        layers = None if self.layers is None else self.layers.tensor().numpy()
        if any(row.padding is not None for row in rows):  # methods that score every position score it too
            scores, layers = without_padding(scores, rows), None if layers is None else without_padding(layers, rows)
        options = {k: per_row(v) for k, v in self.options.items()}
        if not np.isfinite(scores).all():
            for i, row in enumerate(rows):
                if not np.isfinite(scores[i, : len(row)]).all():
                    raise ModelError(
                        f"{self.name} gave scores that are not finite numbers for {' '.join(row.tokens[:8])!r}; try "
                        "dtype='float64'."
                    )
        return [
            Part(
                scores[i, : len(row)].copy(),
                None if layers is None else layers[i, :, : len(row)].copy(),
                {k: v[i] if isinstance(v, list) else v for k, v in options.items()},
                cut_matrices(self.matrices, i, len(row)),
            )
            for i, row in enumerate(rows)
        ]


def without_padding(values: NDArray[Any], rows: Sequence[Encoded]) -> NDArray[Any]:
    """0 at the padding that came with a row. values: (b, …, n)"""
    values = values.copy()
    for found, row in zip(values, rows, strict=True):
        found[..., : len(row)][..., ~row.real] = 0
    return values


def fetched(value: Any) -> Any:
    """Tensors on their way to the host."""
    if isinstance(value, Share):
        return Share(fetched(value.part), fetched(value.whole))
    return Fetched(value) if isinstance(value, torch.Tensor) else value


def per_row(value: Any) -> Any:
    """What was fetched (b,) as a list, None for NaN."""
    if isinstance(value, Share):
        return [Share(*pair) for pair in zip(value.part.tensor().tolist(), value.whole.tensor().tolist(), strict=True)]
    return [None if v != v else v for v in value.tensor().tolist()] if isinstance(value, Fetched) else value


def cut_matrices(matrices: Mapping[str, torch.Tensor] | None, row: int, n: int) -> dict[str, np.ndarray] | None:
    """One row's matrices (L, n, n), cut to its real tokens."""
    return None if matrices is None else {k: m[row, :, :n, :n].cpu().numpy().copy() for k, m in matrices.items()}


def deal_out(made: Sequence[Made], rows: Sequence[Encoded], found: Sequence[dict[str, list[Part]]]) -> None:
    """Put each row's parts by method, one per target, into `found`; the terms of one target add up."""
    for one in made:
        for own, target, part in zip(found, one.of_target, one.parts(rows), strict=True):
            if target is None:
                continue
            there = own.setdefault(one.name, [])
            if target == len(there):
                there.append(part)
            else:
                there[target] = there[target] + part
    for own in found:
        own |= {one.name: [part.told() for part in own[one.name]] for one in made if one.name in own}


def without_future(part: Part, target: Target) -> Part:
    """Where tokens see only what stands before them, nothing after the answer's own position can have mattered (methods
    that ignore positions, or give every occurrence of a token the same score, do not know). An answer that is read at no token
    may have been read at all of them."""
    if not 0 <= target.last_readout < len(part.scores) - 1:
        return part
    seen = np.arange(len(part.scores)) <= target.last_readout
    return replace(part, scores=part.scores * seen, layers=None if part.layers is None else part.layers * seen)
