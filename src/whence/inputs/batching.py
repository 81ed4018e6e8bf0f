"""Pack rows into batches by a token budget, longest together, and pad them on the right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whence.inputs.encoded import Encoded, Ints

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Batch:
    """Padded rows. `valid` marks the tokens of each row that are no padding; `attention_mask` what the model may attend to.

    What is asked of a batch while it runs is kept on the host too: a GPU would answer when all that was given to it before is done.
    """

    input_ids: Tensor  # (batch, token)
    attention_mask: Tensor | None  # (batch, token); None if every token of every row may be attended to
    token_type_ids: Tensor | None  # (batch, token)
    pad_id: int
    padded: bool  # False: there is no padding, neither to the longest row nor with the rows
    own_ids: Ints  # (batch, token) input_ids, on the host
    own_valid: Bools  # (batch, token) valid, on the host
    own_places: Ints  # (batch, place) places, on the host
    brought_valid: Tensor | None = None  # (batch, token) valid as numbers, where it came with the ids
    position_ids: Tensor | None = None  # (batch, token)

    @cached_property
    def valid(self) -> Tensor:
        """(batch, token) bool. Few ask for it where nothing is padded, so there it is made for them."""
        if self.brought_valid is not None:
            return self.brought_valid.bool()
        return torch.ones(self.input_ids.shape, dtype=torch.bool, device=self.input_ids.device)

    @cached_property
    def places(self) -> Tensor:
        """(batch, place) where language and token models are asked; 0 where a row has fewer."""
        return to_device(self.own_places, self.input_ids.device)

    @property
    def lengths(self) -> Tensor:
        return self.valid.sum(-1)  # (batch,)

    def texts(self) -> list[list[int]]:
        """Each row's own token ids, without padding."""
        return [ids[real].tolist() for ids, real in zip(self.own_ids, self.own_valid, strict=True)]


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
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable").tolist()
    groups: list[list[int]] = []
    if max_padding >= 1:  # how many go together follows from the longest alone
        start = 0
        while start < len(order):
            longest = max(1, lengths[order[start]])
            fit = min(max_rows, batch_tokens // longest)
            fit = fit if max_pairs is None else min(fit, max_pairs // longest**2)
            groups.append(order[start : start + max(1, fit)])
            start += len(groups[-1])
        return groups
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
    """Pad rows on the right to the longest (or to `width`). For a model without a padding id (`pad_id` is None) one is found that
    no row uses; padding that came behind a row gets it too."""
    pad = unused_id(rows) if pad_id is None else pad_id
    lengths = [len(row.id_array) for row in rows]
    longest = max(*lengths, width or 0)
    padded = min(lengths) < longest
    filled = np.arange(longest) < np.array(lengths)[:, None] if padded else None  # (b, longest)

    def fill(values: Sequence[NDArray[Any]], value: int) -> NDArray[Any]:
        together = np.concatenate(values)
        if filled is None:
            return together.reshape(len(rows), longest)
        table = np.full(filled.shape, value, together.dtype)
        table[filled] = together
        return table

    ids, valid = fill([row.id_array for row in rows], pad), filled
    if any(row.padding is not None for row in rows):
        valid = fill([row.real for row in rows], False)
        if pad_id is None:
            ids = np.where(behind(valid), pad, ids)

    def given(name: str, otherwise: Callable[[Encoded], Sequence[int]]) -> Ints | None:
        own = [getattr(row, name) for row in rows]
        if own.count(None) == len(own):
            return None
        return fill([np.array(otherwise(row) if o is None else o) for row, o in zip(rows, own, strict=True)], 0)

    mask = given("attention_mask", lambda row: [1] * len(row))
    tables = {
        "input_ids": ids,
        "attention_mask": valid if mask is None else mask,
        "valid": valid,
        "token_type_ids": given("token_type_ids", lambda row: [0] * len(row)),
        "position_ids": given("position_ids", lambda row: range(len(row))),
    }
    most = max([len(row.places) for row in rows])
    places = [[*row.places, *[0] * (most - len(row.places))] for row in rows] if most else np.empty((len(rows), 0))
    return to_batch(tables, np.asarray(places, np.int64), pad, device)


def behind(valid: Bools) -> Bools:
    """(b, n) where a row's text is over: what follows is padding.

    >>> behind(np.array([[False, True, False, True, False]])).tolist()
    [[False, False, False, False, True]]
    """
    return ~np.logical_or.accumulate(valid[:, ::-1], axis=1)[:, ::-1]


def to_batch(tables: Mapping[str, Ints | Bools | None], places: Ints, pad_id: int, device: torch.device) -> Batch:
    """Tables (batch, token) by the names of `Batch`, brought to the device by one copy. A table of `valid` or `attention_mask` that
    marks every token says no more than none."""
    there = {name: table for name, table in tables.items() if table is not None}
    for name in ("valid", "attention_mask"):
        if name in there and there[name].all():
            del there[name]
    together = np.array(list(there.values()), np.int64)  # (tables, batch, token)
    brought = dict(zip(there, to_device(together, device).unbind(), strict=True))
    valid = there.get("valid")
    return Batch(
        input_ids=brought["input_ids"],
        attention_mask=brought.get("attention_mask"),
        token_type_ids=brought.get("token_type_ids"),
        pad_id=pad_id,
        padded=valid is not None,
        own_ids=there["input_ids"].astype(np.int64, copy=False),
        own_valid=np.broadcast_to(True, together.shape[1:]) if valid is None else valid.astype(np.bool_, copy=False),
        own_places=places,
        brought_valid=brought.get("valid"),
        position_ids=brought.get("position_ids"),
    )


STAGED_BYTES = 1 << 16  # CUDA takes a copy of so little at once and waits for nobody; of more, from pinned memory alone


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """A copy that waits for nobody."""
    tensor = torch.from_numpy(array)
    if not array.size:
        return torch.empty_like(tensor, device=device)
    if device.type != "cuda":
        return tensor.to(device)
    return (tensor if array.nbytes <= STAGED_BYTES else tensor.pin_memory()).to(device, non_blocking=True)


class Fetched:
    """A tensor on its way from the device to the CPU: the copy starts now, and whoever reads it waits for it alone."""

    def __init__(self, values: Tensor) -> None:
        self._host, self._event = values.detach(), None
        if values.is_cuda:
            self._host = self._host.to("cpu", non_blocking=True)  # into pinned memory
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    def tensor(self) -> Tensor:
        if self._event is not None:
            self._event.synchronize()
        return self._host
