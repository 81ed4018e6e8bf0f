"""Pack rows into batches by a token budget, longest together, and pad them on the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whence.inputs.encode import Encoded


@dataclass(frozen=True)
class Batch:
    """Padded rows. `valid` marks the tokens of each row; `attention_mask` what the model may attend to."""

    input_ids: Tensor  # (batch, token)
    attention_mask: Tensor  # (batch, token)
    valid: Tensor  # (batch, token) bool
    token_type_ids: Tensor | None  # (batch, token)
    pad_id: int

    @property
    def lengths(self) -> Tensor:
        return self.valid.sum(-1)  # (batch,)


def pack(
    lengths: Sequence[int], batch_tokens: int, max_pairs: int | None = None, max_rows: int = 4096
) -> list[list[int]]:
    """Row numbers grouped so that rows × longest ≤ `batch_tokens` (and rows × longest² ≤ `max_pairs`).

    Rows of like length go together, so little is padded; a row over the budget goes alone.

    >>> pack([3, 9, 4, 10], batch_tokens=20)
    [[3, 1], [2, 0]]
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    groups: list[list[int]] = []
    for i in order:
        longest = lengths[groups[-1][0]] if groups else 0
        rows = len(groups[-1]) + 1 if groups else 1
        fits = groups and rows <= max_rows and rows * longest <= batch_tokens
        if fits and (max_pairs is None or rows * longest**2 <= max_pairs):
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def unused_id(rows: Sequence[Encoded]) -> int:
    """The smallest token id that no row uses: safe padding for a model that has no padding token of its own."""
    used = {i for row in rows for i in row.input_ids}
    return next(i for i in range(len(used) + 1) if i not in used)


def collate(rows: Sequence[Encoded], pad_id: int | None, device: torch.device, width: int | None = None) -> Batch:
    """Pad rows on the right to the longest (or to `width`)."""
    pad = unused_id(rows) if pad_id is None else pad_id
    longest = max(max(len(row) for row in rows), width or 0)

    def fill(values: Sequence[Sequence[int]], value: int) -> Tensor:
        return torch.tensor([[*v, *[value] * (longest - len(v))] for v in values], device=device)

    types = None
    if any(row.token_type_ids is not None for row in rows):
        types = fill([row.token_type_ids or [0] * len(row) for row in rows], 0)
    return Batch(
        input_ids=fill([row.input_ids for row in rows], pad),
        attention_mask=fill([row.attention_mask or [1] * len(row) for row in rows], 0),
        valid=fill([[1] * len(row) for row in rows], 0).bool(),
        token_type_ids=types,
        pad_id=pad,
    )
