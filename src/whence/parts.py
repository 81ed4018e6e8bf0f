"""From a method's attribution of a batch to each row's own part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from whence.errors import ModelError
from whence.inputs import Encoded
from whence.registry import Attribution, Part
from whence.tasks import Target


def to_parts(attribution: Attribution, name: str, rows: Sequence[Encoded], dtype: torch.dtype) -> list[Part]:
    """Each row's share, padding cut off; refuses scores that are not finite."""
    kind = np.float64 if dtype == torch.float64 else np.float32
    scores = attribution.scores.detach().to("cpu", torch.float64).numpy()
    layers = None if attribution.layers is None else attribution.layers.detach().to("cpu", torch.float64).numpy()
    if not np.isfinite(scores).all():
        for i, row in enumerate(rows):
            if not np.isfinite(scores[i, : len(row)]).all():
                raise ModelError(
                    f"{name} gave scores that are not finite numbers for {' '.join(row.tokens[:8])!r}; try dtype='float64'."
                )
    return [
        Part(
            scores[i, : len(row)].astype(kind),
            None if layers is None else layers[i, :, : len(row)].astype(kind),
            {k: v[i] if isinstance(v, list) else v for k, v in attribution.options.items()},
            cut_matrices(attribution.matrices, i, len(row), kind),
        )
        for i, row in enumerate(rows)
    ]


def cut_matrices(
    matrices: Mapping[str, torch.Tensor] | None, row: int, n: int, kind: Any
) -> dict[str, np.ndarray] | None:
    """One row's matrices (L, n, n), cut to its real tokens."""
    if matrices is None:
        return None
    return {
        name: m[row, :, :n, :n].detach().to("cpu", torch.float64).numpy().astype(kind) for name, m in matrices.items()
    }


@dataclass(frozen=True)
class Made:
    """What one method made of a batch for one term of every row's targets."""

    name: str
    attribution: Attribution
    of_target: Sequence[int | None]  # (b,) which of its row's targets the term is of; None: the row has no such term


def dealt_out(made: Sequence[Made], rows: Sequence[Encoded], dtype: torch.dtype) -> list[dict[str, list[Part]]]:
    """Each row's parts by method, one per target; the terms of one target add up."""
    found: list[dict[str, list[Part]]] = [{} for _ in rows]
    for one in made:
        parts = to_parts(one.attribution, one.name, rows, dtype)
        for own, target, part in zip(found, one.of_target, parts, strict=True):
            if target is None:
                continue
            there = own.setdefault(one.name, [])
            if target == len(there):
                there.append(part)
            else:
                there[target] = there[target] + part
    return found


def without_future(part: Part, target: Target) -> Part:
    """Where tokens see only what stands before them, nothing after the answer's own position can have mattered (methods
    that ignore positions, or give every occurrence of a token the same score, do not know)."""
    seen = np.arange(len(part.scores)) <= target.last_readout
    return replace(part, scores=part.scores * seen, layers=None if part.layers is None else part.layers * seen)
