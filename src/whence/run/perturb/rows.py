"""Changed rows, made by the hundred: pure functions from one text and a table of what it keeps to `Rows`.

Every change is told by `keep` (k, n): row i of the result keeps the tokens where keep[i] is True, and loses the others. What
becomes of a lost token is the function's name: `replace` (by one id), `delete` (the row gets shorter) or `hide` (replaced, and
removed from attention as well). "Keep only these" is the same table turned around.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whence.errors import InputError, UnknownName
from whence.inputs import Encoded, behind

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

UNITS = ("token", "word")


@dataclass(frozen=True)
class Rows:
    """Rows of any lengths, one after the other in flat arrays: not padded, and no Python object per row."""

    ids: Ints  # (tokens of all rows,)
    lengths: Ints  # (N,)
    visible: Bools  # (tokens of all rows,) what may be attended to
    types: Ints | None  # (tokens of all rows,) segment ids, for models that are given them
    positions: Ints | None  # (tokens of all rows,) where they are not 0, 1, 2, …
    places: Ints  # (N, m) positions that a language or token model is asked at; 0 where a row has fewer
    padding: Bools | None = None  # (tokens of all rows,) padding that came with the texts, where there is some

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> Ints:
        """(N,) where each row begins in the flat arrays."""
        return np.cumsum(self.lengths) - self.lengths

    @classmethod
    def of(cls, rows: Sequence[Encoded]) -> Rows:
        """The same rows as `Encoded` ones."""
        return cls.join([from_encoded(row) for row in rows])

    @classmethod
    def join(cls, parts: Sequence[Rows]) -> Rows:
        """All rows of all parts, in order."""
        if len(parts) == 1:
            return parts[0]
        width = max((part.places.shape[1] for part in parts), default=0)
        lengths = np.concatenate([np.zeros(0, np.int64), *(part.lengths for part in parts)])
        return cls(
            ids=np.concatenate([np.zeros(0, np.int64), *(part.ids for part in parts)]),
            lengths=lengths,
            visible=np.concatenate([np.zeros(0, bool), *(part.visible for part in parts)]),
            types=joined([part.types for part in parts], [np.zeros_like(part.ids) for part in parts]),
            positions=joined([part.positions for part in parts], [counted(part.lengths) for part in parts]),
            places=np.concatenate([np.zeros((0, width), np.int64), *(widened(part.places, width) for part in parts)]),
            padding=joined([part.padding for part in parts], [np.zeros(len(part.ids), bool) for part in parts]),
        )

    @cached_property
    def codes(self) -> Ints:
        """(tokens of all rows,) all that the model is given at a token, as one number."""
        codes = self.ids * 2 + self.visible
        for more in (self.types, self.positions, self.padding):
            if more is not None:
                codes = codes * (int(more.max(initial=0)) + 1) + more
        return codes

    def numbered(self) -> Ints:
        """(N,) the same number for rows that are the same input of the model, from 0 on in the order of their first.

        Rows are told apart by a hash of 64 bits; a second one tells whether the first ever took two rows for one.
        """
        (hashes, others), lengths = self.hashes(), self.lengths
        _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        alike = (others == others[first[inverse]]) & (lengths == lengths[first[inverse]])
        if not alike.all():
            first, inverse = self.numbered_by_bytes()
        rank = np.empty(len(first), np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        return rank[inverse]

    def hashes(self) -> NDArray[np.uint64]:
        """(2, N): Σ code · factor of its place, modulo 2⁶⁴, with two sets of random odd factors."""
        places, width = counted(self.lengths), int(self.lengths.max(initial=0))
        drawn = np.random.default_rng(0).integers(0, 1 << 63, (2, width + self.places.shape[1] + 1), np.uint64)
        factors = drawn * np.uint64(2) + np.uint64(1)
        codes = (self.codes + 1).astype(np.uint64)
        found = np.stack([np.add.reduceat(codes * f[places], self.starts) for f in factors])
        asked = (self.places + 1).astype(np.uint64)  # (N, m)
        found += np.stack([(asked * f[width : width + asked.shape[1]]).sum(1, dtype=np.uint64) for f in factors])
        found += self.lengths.astype(np.uint64) * factors[:, -1:]
        return found

    def numbered_by_bytes(self) -> tuple[Ints, Ints]:
        """The first of each kind of row, and the kind of each row, by the rows themselves."""
        seen: dict[bytes, int] = {}
        inverse = np.fromiter((seen.setdefault(key, len(seen)) for key in self.keys()), np.int64, len(self))
        return np.unique(inverse, return_index=True)[1], inverse

    def keys(self) -> Iterator[bytes]:
        """One key per row, in order: rows with the same key are the same input of the model."""
        start = 0
        for end, places in zip(np.cumsum(self.lengths).tolist(), self.places, strict=True):
            yield self.codes[start:end].tobytes() + places.tobytes()
            start = end

    def padded(self, numbers: Ints, pad_id: int, *, lent: bool = False) -> Padded:
        """Some rows as one batch, padded on the right to the longest of them. lent: the id is not the model's own, so that padding
        that came behind a text gets it too."""
        lengths = self.lengths[numbers]
        columns = np.arange(int(lengths.max()))
        filled = columns < lengths[:, None]  # (b, longest)
        flat = np.minimum(self.starts[numbers][:, None] + columns, len(self.ids) - 1)
        valid = filled if self.padding is None else filled & ~self.padding[flat]
        return Padded(
            ids=np.where(behind(valid) if lent else ~filled, pad_id, self.ids[flat]),
            visible=self.visible[flat] & filled,
            valid=valid,
            types=None if self.types is None else np.where(filled, self.types[flat], 0),
            positions=None if self.positions is None else np.where(filled, self.positions[flat], 0),
        )


@dataclass(frozen=True)
class Padded:
    """A batch of rows, each (b, longest)."""

    ids: Ints
    visible: Bools
    valid: Bools
    types: Ints | None
    positions: Ints | None


def joined(parts: Sequence[NDArray[Any] | None], defaults: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    """All parts one after the other, absent ones as their defaults; None if all are absent."""
    if all(part is None for part in parts):
        return None
    return np.concatenate([d if p is None else p for p, d in zip(parts, defaults, strict=True)])


def counted(lengths: Ints) -> Ints:
    """0, 1, 2, … anew for every row.

    >>> counted(np.array([2, 3]))
    array([0, 1, 0, 1, 2])
    """
    starts = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) - np.repeat(starts, lengths)


def widened(places: Ints, width: int) -> Ints:
    """(N, m) → (N, width)."""
    return np.pad(places, ((0, 0), (0, width - places.shape[1])))


def from_encoded(row: Encoded) -> Rows:
    """One row as it is."""
    return replace(row, np.ones((1, len(row)), bool), 0)


def replace(row: Encoded, keep: Bools, by: int) -> Rows:
    """k copies of a row, the tokens that are not kept replaced by the id `by`."""
    keep = checked(row, keep)
    k = len(keep)

    def copies(values: Sequence[int] | None) -> Ints | None:
        return None if values is None else np.tile(np.array(values, np.int64), k)

    attention = row.attention_mask or (1,) * len(row)
    return Rows(
        ids=np.where(keep, np.array(row.input_ids), by).ravel(),
        lengths=np.full(k, len(row)),
        visible=np.tile(np.array(attention, bool), k),
        types=copies(row.token_type_ids),
        positions=copies(row.position_ids),
        places=np.tile(np.array(row.places, np.int64), (k, 1)),
        padding=None if row.padding is None else np.tile(~row.real, k),
    )


def hide(row: Encoded, keep: Bools, by: int) -> Rows:
    """`replace`, and nothing may attend to what was replaced (Decoded Grad-CAM §4.1)."""
    changed = replace(row, keep, by)
    return dataclasses.replace(changed, visible=changed.visible & keep.ravel())


def delete(row: Encoded, keep: Bools) -> Rows:
    """k copies of a row without the tokens that are not kept.

    Positions close up. A language or token model that was asked at a deleted token is asked at the nearest kept one before it.
    """
    lengths = checked(row, keep).sum(1)
    places = np.array(row.places, np.int64)
    counts = np.cumsum(keep, axis=1)  # (k, n) how many tokens are left up to each
    of_text = counts if row.padding is None else np.cumsum(keep & row.real, axis=1)
    if not of_text[:, -1].all() or not of_text[:, places].all():
        raise InputError(
            "a row cannot lose all its tokens, nor all up to the one it is asked at: keep one, or replace instead of deleting."
        )
    whole = replace(row, keep, 0)
    left = keep.ravel()
    closed = (np.arange(len(row)) < lengths[:, None]).ravel()
    return Rows(
        ids=whole.ids[left],
        lengths=lengths,
        visible=whole.visible[left],
        types=None if whole.types is None else whole.types[left],
        positions=None if whole.positions is None else whole.positions[closed],
        places=counts[:, places] - 1,
        padding=None if whole.padding is None else whole.padding[left],
    )


def checked(row: Encoded, keep: Bools) -> Bools:
    if keep.ndim != 2 or keep.shape[1] != len(row) or keep.dtype != np.bool_:
        raise InputError(f"keep must be a boolean (rows, {len(row)}) table, got {keep.dtype} {keep.shape}.")
    return keep


@dataclass(frozen=True)
class Units:
    """What a perturbation takes away at once: single tokens, or all pieces of a word. Other tokens are held fixed."""

    of_token: Ints  # (n,) the unit of each token; −1: held fixed
    count: int

    def tokens_kept(self, keep: Bools) -> Bools:
        """(k, units) → (k, n): which tokens stay when these units do."""
        always = np.ones((len(keep), 1), bool)
        return np.concatenate([keep, always], axis=1)[:, self.of_token]

    def to_tokens(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """(units,) → (n,): a unit's value in equal shares to its tokens, so that they sum to it; 0 where fixed."""
        sizes = np.bincount(self.of_token[self.of_token >= 0], minlength=self.count)
        return np.append(values / sizes, 0.0)[self.of_token]


def units_of(row: Encoded, unit: str = "token", segment: int | None = None) -> Units:
    """The units of a row, of one segment only if `segment` is 0 or 1; special tokens are never part of one.

    >>> row = Encoded((2, 9, 8, 7, 3), tuple("[ a b c ]".split()), (True, False, False, False, True), ((0, 0),) * 5,
    ...               (None, 0, 0, 1, None), (None, 0, 0, 0, None))
    >>> units_of(row, "word").of_token
    array([-1,  0,  0,  1, -1])
    """
    if unit not in UNITS:
        raise UnknownName("unit", unit, UNITS)
    if segment not in (None, 0, 1):
        raise InputError(f"segment={segment!r}: choose 0 (the text), 1 (the pair) or None (both).")
    of_token = np.full(len(row), -1)
    numbers: dict[int | None, int] = {}
    for i in row.free:
        if segment is None or row.segments[i] == segment:
            key = i if unit == "token" else row.word_ids[i]
            of_token[i] = numbers.setdefault(key, len(numbers))
    if not numbers:
        raise InputError(
            f"segment={segment} of this input has no tokens to perturb; "
            + ("it is a single text: use segment=None or 0." if segment == 1 else "use segment=None.")
        )
    return Units(of_token, len(numbers))
