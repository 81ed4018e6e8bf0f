"""Rows of ids, what people call their tokens, and batches: rows packed by a token budget and padded on the right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int64]

PER_TOKEN = ("input_ids", "tokens", "special", "offsets", "word_ids", "segments")
MODEL_READS = ("token_type_ids", "attention_mask", "position_ids")  # where a row has them
SOMETIMES = ("token_type_ids", "attention_mask", "position_ids", "padding")


@dataclass(frozen=True)
class Encoded:
    """One input as the model sees it. All sequences have one entry per token; whence adds no padding to a row.

    What people call its tokens, and where they stand in the text, is worked out when first asked for (`Encoded.of_ids`): on a GPU
    while the model runs, not before.
    """

    input_ids: tuple[int, ...]
    tokens: tuple[str, ...]
    special: tuple[bool, ...]  # [CLS], [SEP], <s>, padding, … : never part of the text
    offsets: tuple[tuple[int, int], ...]  # characters [start, end) in the token's own segment
    word_ids: tuple[int | None, ...]  # pieces of one word share a number, counted over both segments
    segments: tuple[int | None, ...]  # 0 = text, 1 = pair, None = special
    token_type_ids: tuple[int, ...] | None = None
    attention_mask: tuple[int, ...] | None = None  # only when the caller gave one
    text: str | None = None
    pair: str | None = None
    truncated: bool = False
    places: tuple[int, ...] = ()  # the positions at which a language or token model is asked; classifiers have none
    fixed: tuple[int, ...] = ()  # positions that no perturbation may touch, besides special tokens
    position_ids: tuple[int, ...] | None = None  # only where they are not 0, 1, 2, …
    answer: tuple[int, int] | None = None  # question answering: first and last token of the answer that was given
    padding: tuple[bool, ...] | None = None  # which tokens are padding, where the row came with some (`inputs.padding`)

    @classmethod
    def of_ids(cls, ids: Ints, describe: Callable[[Encoded], dict[str, Any]], **known: Any) -> Encoded:
        """A row of ids; `describe` gives its tokens, special, offsets, word_ids and segments. known: other fields, where they are not
        what the class says."""
        row = object.__new__(cls)
        row.__dict__.update(id_array=ids, _describe=describe, **known)
        return row

    def __getattr__(self, name: str) -> Any:  # asked only for what is not there
        own = self.__dict__
        describe = own.get("_describe")
        if name in DESCRIBED and describe is not None:
            own.update(describe(self))
            own["_describe"] = None  # it may hold all that a tokenizer knows
        elif name == "input_ids" and "id_array" in own:
            own["input_ids"] = tuple(own["id_array"].tolist())
        if name not in own:  # another thread may have described it meanwhile
            raise AttributeError(name)
        return own[name]

    @cached_property
    def id_array(self) -> Ints:
        """input_ids as an array."""
        return np.array(self.input_ids, np.int64)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: everything worked out."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __len__(self) -> int:
        return len(self.id_array)

    @cached_property
    def real(self) -> NDArray[np.bool_]:
        """(n,) which tokens are not padding."""
        return np.ones(len(self), bool) if self.padding is None else ~np.array(self.padding)

    @property
    def real_ids(self) -> tuple[int, ...]:
        """input_ids without padding."""
        return self.input_ids if self.padding is None else tuple(self.id_array[self.real].tolist())

    @cached_property
    def free(self) -> tuple[int, ...]:
        """The positions that a perturbation may touch."""
        return tuple(i for i, special in enumerate(self.special) if not special and i not in self.fixed)

    def select(self, kept: Sequence[int]) -> Encoded:
        """The row with only the tokens at the positions `kept`, in order. A place whose token went is asked at the last
        token kept before it, as a language model would be."""
        numbers = {old: new for new, old in enumerate(kept)}
        changed: dict[str, Any] = {
            name: tuple(values[i] for i in kept)
            for name in (*PER_TOKEN, *SOMETIMES)
            if (values := getattr(self, name)) is not None
        }
        changed["places"] = tuple(sum(k <= place for k in kept) - 1 for place in self.places)
        changed["fixed"] = tuple(numbers[i] for i in self.fixed if i in numbers)
        return replace(self, **changed)


DESCRIBED = frozenset(PER_TOKEN) - {"input_ids"}


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
    valid: Tensor  # (batch, token) bool: tokens of the row, not padding
    lengths: Tensor  # (batch,) tokens of each row
    places: Tensor  # (batch, place) where language and token models are asked; 0 where a row has fewer
    position_ids: Tensor | None = None  # (batch, token)

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
    """Rows as one batch on a device, padded on the right to the longest (or to `width`).

    Args:
        pad_id: what the model takes for padding; None: it has none, and an id is taken that no row uses; padding that came behind a
            row gets it too.
    """
    pad = unused_id(rows) if pad_id is None else pad_id
    lengths = [len(row.id_array) for row in rows]
    longest = max(*lengths, width or 0)
    filled = np.arange(longest) < np.array(lengths)[:, None]  # (b, longest)
    tables: dict[str, Ints | Bools | None] = dict.fromkeys(MODEL_READS)
    for name in MODEL_READS:
        if any(getattr(row, name) is not None for row in rows):
            tables[name] = _table(filled, [_sometimes(row, name) for row in rows], 0)
    ids, valid = _table(filled, [row.id_array for row in rows], pad), filled
    if any(row.padding is not None for row in rows):
        valid = _table(filled, [row.real for row in rows], 0).astype(bool)
        if pad_id is None:
            ids = np.where(behind(valid), pad, ids)
    tables |= {"input_ids": ids, "valid": valid}
    if tables["attention_mask"] is None:
        tables["attention_mask"] = valid
    most = max([len(row.places) for row in rows])
    places = [[*row.places, *[0] * (most - len(row.places))] for row in rows] if most else np.empty((len(rows), 0))
    return to_batch(tables, np.asarray(places, np.int64), pad, device)


def behind(valid: Bools) -> Bools:
    """(b, n) where a row's text is over: what follows is padding.

    >>> behind(np.array([[False, True, False, True, False]])).tolist()
    [[False, False, False, False, True]]
    """
    return ~np.logical_or.accumulate(valid[:, ::-1], axis=1)[:, ::-1]


def _table(valid: Bools, values: Sequence[Any], padding: int) -> Ints:
    """Values of rows of different length as a table (b, longest)."""
    table = np.full(valid.shape, padding, np.int64)
    table[valid] = np.concatenate(values)
    return table


def _sometimes(row: Encoded, name: str) -> Sequence[int]:
    """What a row says of its tokens, or what the model takes in its place."""
    values: Sequence[int] | None = getattr(row, name)
    if values is not None:
        return values
    return {"attention_mask": [1] * len(row), "token_type_ids": [0] * len(row), "position_ids": range(len(row))}[name]


def to_batch(tables: Mapping[str, Ints | Bools | None], places: Ints, pad_id: int, device: torch.device) -> Batch:
    """Tables (batch, token) by the names of `Batch`, brought to the device by one copy. A table of `valid` or `attention_mask` that
    marks every token says no more than none."""
    needed = {name: table for name, table in tables.items() if table is not None}
    for name in ("valid", "attention_mask"):
        if name in needed and needed[name].all():
            del needed[name]
    tensors = dict(zip(needed, to_device(np.array(list(needed.values()), np.int64), device).unbind(), strict=True))
    ids = needed["input_ids"].astype(np.int64, copy=False)
    if "valid" in needed:
        valid, own_valid = tensors["valid"].bool(), needed["valid"].astype(np.bool_, copy=False)
    else:
        valid, own_valid = torch.ones(ids.shape, dtype=torch.bool, device=device), np.broadcast_to(True, ids.shape)
    return Batch(
        input_ids=tensors["input_ids"],
        attention_mask=tensors.get("attention_mask"),
        token_type_ids=tensors.get("token_type_ids"),
        pad_id=pad_id,
        padded="valid" in needed,
        own_ids=ids,
        own_valid=own_valid,
        own_places=places,
        valid=valid,
        lengths=valid.sum(-1),
        places=to_device(places, device)
        if places.size
        else torch.empty(places.shape, dtype=torch.int64, device=device),
        position_ids=tensors.get("position_ids"),
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
