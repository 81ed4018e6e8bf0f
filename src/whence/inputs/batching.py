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
    places: Tensor  # (batch, place) where language and token models are asked; 0 where a row has fewer
    position_ids: Tensor | None = None  # (batch, token)
    padded: bool = True  # False: every row is as long as the longest

    @property
    def lengths(self) -> Tensor:
        return self.valid.sum(-1)  # (batch,)


def pack(
    lengths: Sequence[int],
    batch_tokens: int,
    max_pairs: int | None = None,
    max_rows: int = 4096,
    max_padding: float = 1.0,
) -> list[list[int]]:
    """Row numbers grouped so that rows × longest ≤ `batch_tokens` (and rows × longest² ≤ `max_pairs`).

    Rows of like length go together, so little is padded: never more than `max_padding` of a batch. A row over the budget
    goes alone.

    >>> pack([3, 9, 4, 10], batch_tokens=20)
    [[3, 1], [2, 0]]
    >>> pack([3, 9, 4, 10], batch_tokens=20, max_padding=0.05)
    [[3, 1], [2], [0]]
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    groups: list[list[int]] = []
    real = 0  # tokens of the last group that are not padding
    for i in order:
        longest = lengths[groups[-1][0]] if groups else 0
        rows = len(groups[-1]) + 1 if groups else 1
        real += lengths[i]
        fits = groups and rows <= max_rows and rows * longest <= batch_tokens
        fits = fits and rows * longest - real <= max_padding * rows * longest
        if fits and (max_pairs is None or rows * longest**2 <= max_pairs):
            groups[-1].append(i)
        else:
            groups.append([i])
            real = lengths[i]
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
    positions = None
    if any(row.position_ids is not None for row in rows):
        positions = fill([row.position_ids or range(len(row)) for row in rows], 0)
    most = max(len(row.places) for row in rows)
    return Batch(
        input_ids=fill([row.input_ids for row in rows], pad),
        attention_mask=fill([row.attention_mask or [1] * len(row) for row in rows], 0),
        valid=fill([[1] * len(row) for row in rows], 0).bool(),
        token_type_ids=types,
        pad_id=pad,
        places=torch.tensor([[*row.places, *[0] * (most - len(row.places))] for row in rows], device=device).long(),
        position_ids=positions,
        padded=any(len(row) < longest for row in rows),
    )
