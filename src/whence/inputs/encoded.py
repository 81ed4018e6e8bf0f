"""One input as the model sees it: a row of ids, and what people call its tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

PER_TOKEN = ("input_ids", "tokens", "special", "offsets", "word_ids", "segments")
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
