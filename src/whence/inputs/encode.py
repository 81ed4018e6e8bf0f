"""Turn what people give (a text, a pair, ids) into `Encoded` rows, or say in one sentence why it cannot be done."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from numbers import Integral
from operator import or_
from typing import Any, TypeAlias

import numpy as np
from tokenizers import Encoding
from transformers import PreTrainedTokenizerBase

from whence.errors import InputError, Truncated, reading
from whence.inputs.numbers import short
from whence.inputs.padding import padding_of
from whence.inputs.rows import SOMETIMES, Encoded, Ints
from whence.inputs.tokenizing import tokenize
from whence.inputs.words import each_a_word, segments_apart, segments_of, words_from_pieces

Input: TypeAlias = str | tuple[str, str] | Mapping[str, Any]

ROW_KEYS = dict.fromkeys(("input_ids", "token_type_ids", "attention_mask")).keys()  # a set in this order


@dataclass(frozen=True)
class Read:
    """What a tokenizer made of one text."""

    ids: tuple[int, ...]
    types: tuple[int, ...] | None  # only where the model tells segments apart
    known: Encoding | None  # characters and words of the tokens, where the tokenizer knows them


def is_single(inputs: object) -> bool:
    """A list is many inputs; a str, a (str, str) tuple or a mapping is one."""
    return not isinstance(inputs, list)


@dataclass(frozen=True)
class Encoder:
    """Everything about a model and its tokenizer that encoding needs to know."""

    tokenizer: PreTrainedTokenizerBase | None
    max_length: int
    vocab_size: int
    special_ids: frozenset[int]
    type_vocab_size: int = 0
    padding_ids: frozenset[int] = frozenset()  # of the model and of the tokenizer

    def encode(self, inputs: Sequence[Any], on_long: str = "truncate") -> list[Encoded]:
        """Encode every input, in order. `on_long` says what happens to a text longer than the model can read."""
        if on_long not in ("error", "truncate"):
            raise InputError(f"on_long={on_long!r}: choose 'truncate' (with a warning) or 'error'.")
        many = len(inputs) > 1
        read = self._read_together(inputs) if many else {}
        good = self._good_rows(inputs) if many else {}
        rows = [
            good[i] if i in good else self.encode_one(item, f"input {i}: " if many else "", on_long, read.get(i))
            for i, item in enumerate(inputs)
        ]
        cut = sum(row.truncated for row in rows)
        if cut:
            warnings.warn(
                f"{cut} of {len(rows)} texts were longer than the {self.max_length} tokens this model reads and were "
                "cut; Explanation.truncated marks them (on_long='error' refuses them instead).",
                Truncated,
                stacklevel=4,
            )
        return rows

    def encode_one(self, item: Any, at: str = "", on_long: str = "error", read: Read | None = None) -> Encoded:
        """One input; `at` begins the errors about it. read: what the tokenizer made of it, where that is known."""
        if isinstance(item, str):
            return self.encode_text(item, None, at, on_long, read=read)
        if isinstance(item, tuple):
            if len(item) != 2 or not all(isinstance(part, str) for part in item):
                raise InputError(
                    f"{at}a tuple must be a pair of two texts, got {short(item)}; give many texts as a list."
                )
            return self.encode_text(item[0], item[1], at, on_long, read=read)
        if isinstance(item, Mapping):
            return self._encode_ids(item, at)
        raise InputError(
            f"{at}expected a text, a (text, text) pair or a mapping with 'input_ids', got {type(item).__name__}."
        )

    def _read_together(self, inputs: Sequence[Any]) -> dict[int, Read]:
        """What the tokenizer makes of the texts and pairs among the inputs, by their number: one call for all texts, one for all
        pairs. What is left out is read by itself, and if it cannot be read that is where it is said why."""
        texts = [i for i, item in enumerate(inputs) if isinstance(item, str) and is_unicode(item)]
        pairs = [i for i, item in enumerate(inputs) if isinstance(item, tuple) and is_pair(item)]
        found: dict[int, Read] = {}
        if not (texts or pairs) or self.tokenizer is None or not self.tokenizer.is_fast:
            return found
        with suppress(InputError):  # which text it was is found out when each is read by itself
            if texts:
                found |= zip(texts, self._read([inputs[i] for i in texts]), strict=True)
            if pairs:
                first, second = zip(*(inputs[i] for i in pairs), strict=True)
                found |= zip(pairs, self._read(list(first), list(second)), strict=True)
        return found

    def _good_rows(self, inputs: Sequence[Any]) -> dict[int, Encoded]:
        """The rows of ids among the inputs that can be taken as they are, by their number: ids of all of them are looked at together.
        Others are looked at one by one, and that is where it is said what is wrong with them."""
        rows = {i: item["input_ids"] for i, item in enumerate(inputs) if isinstance(item, dict) and has_ids_alone(item)}
        ids = list(itertools.chain.from_iterable(rows.values()))
        try:
            flat = np.array(ids)
        except ValueError:  # entries that are lists
            return {}
        if flat.dtype != np.int64 or flat.ndim != 1:
            return {}
        least = flat.min()
        if least < 0 or flat.max() >= self.vocab_size or (least < 2 and bool in set(map(type, ids))):
            return {}  # True and False count as 1 and 0
        ends = itertools.accumulate(map(len, rows.values()))
        return {
            i: self.from_ids(flat[end - len(row) : end].copy())  # a row that is kept must not keep all others
            for (i, row), end in zip(rows.items(), ends, strict=True)
            if len(row) <= self.max_length and not self.special_ids.issuperset(row)
        }

    def _read(self, texts: list[str], pairs: list[str] | None = None, at: str = "", **options: Any) -> list[Read]:
        """What the tokenizer makes of texts, or of as many pairs."""
        tokenizer: Any = self.tokenizer
        with reading(at):
            made = tokenize(tokenizer, texts, pairs, verbose=False, return_attention_mask=False, **options)
        types = made.get("token_type_ids") if self.type_vocab_size > 1 else None
        return [
            Read(tuple(map(int, ids)), types and tuple(types[i]), made[i] if tokenizer.is_fast else None)
            for i, ids in enumerate(made["input_ids"])
        ]

    def encode_text(
        self,
        text: str,
        pair: str | None,
        at: str = "",
        on_long: str = "error",
        framed: bool = True,
        read: Read | None = None,
    ) -> Encoded:
        """A text or a pair. framed=False leaves out [CLS], [SEP] and their kin; on_long="keep" never cuts. read: what the
        tokenizer made of it, where that is known."""
        if self.tokenizer is None:
            raise InputError(
                f"{at}this model has no tokenizer: pass whence.load(model, tokenizer), or give rows as {{'input_ids': […]}}."
            )
        given = [text], None if pair is None else [pair]
        if read is None:
            for part in (text, pair):
                check_unicode(part, at)
            (read,) = self._read(*given, at, add_special_tokens=framed)
        truncated = len(read.ids) > self.max_length and on_long != "keep"
        if truncated:
            if on_long == "error":
                raise InputError(
                    f"{at}{len(read.ids)} tokens, but the model reads at most {self.max_length}: shorten the "
                    "text or allow on_long='truncate'."
                )
            (read,) = self._read(*given, at, add_special_tokens=framed, truncation=True, max_length=self.max_length)
        if self._surplus:
            self._check_known(read.ids, at)
        if self.special_ids.issuperset(read.ids):
            what = "is empty" if not text.strip() and not (pair or "").strip() else "has no token the model can read"
            raise InputError(f"{at}the text {what}: there is nothing to explain; give at least one word.")
        return Encoded.of_ids(
            np.array(read.ids, np.int64),
            partial(self._described_text, read),
            input_ids=read.ids,
            token_type_ids=read.types,
            text=text,
            pair=pair,
            truncated=truncated,
        )

    @cached_property
    def _surplus(self) -> bool:
        """Whether the tokenizer has more tokens than the model."""
        return self.tokenizer is not None and len(self.tokenizer) > self.vocab_size

    def _check_known(self, ids: tuple[int, ...], at: str) -> None:
        bad = next((i for i in ids if i >= self.vocab_size), None)
        if bad is not None:
            tokenizer: Any = self.tokenizer
            raise InputError(
                f"{at}the tokenizer makes {tokenizer.convert_ids_to_tokens(bad)!r} token {bad}, and the model knows {self.vocab_size:,} only: "
                "load the tokenizer that belongs to it (or model.resize_token_embeddings(len(tokenizer)), and train)."
            )

    def _described_text(self, read: Read, row: Encoded) -> dict[str, Any]:
        """Characters and words as the tokenizer knows them; slow tokenizers know neither."""
        tokenizer: Any = self.tokenizer
        special = tuple(map(self.special_ids.__contains__, read.ids))
        tokens = tuple(tokenizer.convert_ids_to_tokens(list(read.ids)))
        found: dict[str, Any] = {"tokens": tokens, "special": special}
        if read.known is None:
            return found | {
                "offsets": ((0, 0),) * len(tokens),
                "word_ids": words_from_pieces(tokens, special),
                "segments": segments_apart(special)
                if row.pair is not None and read.types is None
                else segments_of(special, read.types),
            }
        segments = tuple([None if s else q for s, q in zip(special, read.known.sequence_ids, strict=True)])
        return found | {
            "offsets": tuple(read.known.offsets),
            "word_ids": number_words(read.known.word_ids, segments),
            "segments": segments,
        }

    def _encode_ids(self, item: Mapping[str, Any], at: str) -> Encoded:
        if item.get("input_ids") is None:
            raise InputError(f"{at}a mapping needs 'input_ids'; got the keys {sorted(map(str, item))}.")
        if not item.keys() <= ROW_KEYS:
            extra = sorted(map(str, set(item) - ROW_KEYS))
            raise InputError(f"{at}unknown keys {extra} in a tokenised row; allowed: {', '.join(ROW_KEYS)}.")
        given = {key: whole_numbers(item[key], key, at) for key in ROW_KEYS if item.get(key) is not None}
        array = given.pop("input_ids")
        ids = tuple(array.tolist())
        if not ids:
            raise InputError(f"{at}'input_ids' is empty: there is nothing to explain.")
        for key, values in given.items():
            if len(values) != len(ids):
                raise InputError(f"{at}'{key}' has {len(values)} entries for {len(ids)} input_ids.")
        if array.min() < 0 or array.max() >= self.vocab_size:
            bad = next(i for i in ids if not 0 <= i < self.vocab_size)
            raise InputError(f"{at}token id {bad} is outside the model's vocabulary of {self.vocab_size}.")
        if len(ids) > self.max_length:
            raise InputError(
                f"{at}{len(ids)} tokens, but the model reads at most {self.max_length}; whence never cuts rows that are "
                "already tokenised: shorten them, or give the text."
            )
        types, mask = (tuple(given[key].tolist()) if key in given else None for key in SOMETIMES[:2])
        if mask is not None and (not set(mask) <= {0, 1} or not any(mask)):
            raise InputError(f"{at}'attention_mask' must hold 0 and 1, with at least one 1.")
        row = self.from_ids(array, self._token_types(types, at), mask)
        if self.special_ids.issuperset(row.real_ids):
            raise InputError(f"{at}the row holds special tokens only: there is nothing to explain.")
        return row

    @cached_property
    def _numerals(self) -> list[str]:
        """What tokens are called where there is no tokenizer: their ids."""
        return list(map(str, range(self.vocab_size)))

    def from_ids(self, ids: Ints, types: tuple[int, ...] | None = None, mask: tuple[int, ...] | None = None) -> Encoded:
        """A row of ids that are known to be good."""
        padding = None if mask is None else padding_of(ids.tolist(), mask, self.padding_ids)
        return Encoded.of_ids(ids, self._described, token_type_ids=types, attention_mask=mask, padding=padding)

    def _described(self, row: Encoded) -> dict[str, Any]:
        ids = row.input_ids
        special = tuple(map(self.special_ids.__contains__, ids))
        if row.padding is not None:
            special = tuple(map(or_, special, row.padding))
        if self.tokenizer is None:
            tokens, words = tuple(map(self._numerals.__getitem__, ids)), each_a_word(special)
        else:
            tokens = tuple(map(str, self.tokenizer.convert_ids_to_tokens(list(ids))))
            words = words_from_pieces(tokens, special)
        return {
            "tokens": tokens,
            "special": special,
            "offsets": ((0, 0),) * len(ids),
            "word_ids": words,
            "segments": segments_of(special, row.token_type_ids),
        }

    def _token_types(self, types: tuple[int, ...] | None, at: str) -> tuple[int, ...] | None:
        if types is None or (self.type_vocab_size <= 1 and not any(types)):
            return None
        if not all(0 <= t < self.type_vocab_size for t in types):
            raise InputError(f"{at}token_type_ids must be below {self.type_vocab_size or 1} for this model.")
        return types


def number_words(word_ids: Sequence[int | None], segments: Sequence[int | None]) -> tuple[int | None, ...]:
    """Word numbers that run on over both segments; pieces with no text between them and no word id stand alone."""
    numbers: list[int | None] = []
    seen: dict[tuple[int, int], int] = {}
    for index, (word, segment) in enumerate(zip(word_ids, segments, strict=True)):
        if segment is None:
            numbers.append(None)
        else:
            key = (segment, word if word is not None else -1 - index)
            numbers.append(seen.setdefault(key, len(seen)))
    return tuple(numbers)


def where(index: int, total: int) -> str:
    """How an error names the input it is about: nothing when there is only one."""
    return f"input {index}: " if total > 1 else ""


def check_unicode(text: str | None, at: str) -> None:
    """Half a character (a lone surrogate) cannot be tokenised; say where it is."""
    try:
        (text or "").encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{at}the text has half a character (a lone surrogate) at position {error.start}; repair it with "
            "text.encode('utf-8', 'replace').decode()."
        ) from None


def is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def is_pair(item: tuple[Any, ...]) -> bool:
    return len(item) == 2 and all(isinstance(text, str) and is_unicode(text) for text in item)


def has_ids_alone(item: dict[Any, Any]) -> bool:
    return len(item) == 1 and isinstance(item.get("input_ids"), list)


def whole_numbers(values: Any, key: str, at: str) -> Ints:
    """A flat array of ints from a list, array or tensor."""
    values = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise InputError(f"{at}'{key}' must be a list of whole numbers, got {type(values).__name__}.")
    try:
        found = np.array(values) if values else np.empty(0, np.int64)
    except ValueError:  # rows of different lengths
        found = np.empty((0, 0))
    # bools among ints have become 0 or 1: where there are such, and where this is no array of ints, every entry is looked at
    if found.dtype == np.int64 and found.ndim == 1 and (not values or found.min() > 1):
        return found
    if found.ndim != 1 or any(kind is bool or not issubclass(kind, Integral) for kind in set(map(type, values))):
        raise InputError(
            f"{at}'{key}' must be one flat list of whole numbers; give several rows as a list of mappings."
        )
    try:
        return np.array(values, np.int64)
    except OverflowError:
        raise InputError(
            f"{at}'{key}' holds {short(max(values, key=abs))}, which is no id of any vocabulary."
        ) from None
