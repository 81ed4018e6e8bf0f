"""Whole words from the pieces of a tokenizer, and how a piece is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from whence.render.meaning import combined_tokens

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Word:
    """A whole word, its score put together from its pieces'."""

    text: str
    score: float
    tokens: tuple[int, ...]  # which tokens it is made of
    segment: int  # 0 = text, 1 = pair
    start: int  # characters [start, end) in its segment
    end: int


class HasWords(Protocol):
    """What words are read from: an Explanation, or an encoded row before it is explained."""

    @property
    def tokens(self) -> tuple[str, ...]: ...
    @property
    def special(self) -> Any: ...
    @property
    def offsets(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def word_ids(self) -> tuple[int | None, ...]: ...
    @property
    def segments(self) -> tuple[int | None, ...]: ...
    @property
    def text(self) -> str | None: ...
    @property
    def pair(self) -> str | None: ...


def words_of(row: HasWords, scores: Floats, combine: str = "sum") -> list[Word]:
    """The whole words of a row, special tokens left out, each with the score that its pieces make (`Meaning.combine`)."""
    groups: dict[int, list[int]] = {}
    for i, number in enumerate(row.word_ids):
        if number is not None and not row.special[i]:
            groups.setdefault(number, []).append(i)
    return [word_of(row, scores, pieces, combine) for pieces in groups.values()]


def word_of(row: HasWords, scores: Floats, pieces: list[int], combine: str = "sum") -> Word:
    """The word that these tokens are."""
    segment = row.segments[pieces[0]] or 0
    source = row.pair if segment == 1 else row.text
    start, end = row.offsets[pieces[0]][0], row.offsets[pieces[-1]][1]
    if source is not None and end > start:
        text = source[start:end]
        start, end, text = start + len(text) - len(text.lstrip()), end, text.strip() or text
    else:
        text = "".join(plain_piece(row.tokens[i]) for i in pieces)
    return Word(text, float(combined_tokens(scores[pieces], combine)), tuple(pieces), segment, start, end)


def plain_piece(token: str) -> str:
    """A piece as people would read it: without the tokenizer's own marks."""
    return token.removeprefix("##").lstrip("Ġ▁").removesuffix("</w>")
