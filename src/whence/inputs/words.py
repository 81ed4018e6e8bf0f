"""Which tokens make up a word, and which text a token belongs to."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from functools import lru_cache
from string import punctuation

MARK = re.compile("##|Ġ|▁")  # how tokenizers mark the pieces of words


@lru_cache(128)  # rows of one length have their special tokens in the same places
def each_a_word(special: tuple[bool, ...]) -> tuple[int | None, ...]:
    """Word numbers of tokens that are whole words."""
    count = itertools.count()
    return tuple([None if is_special else next(count) for is_special in special])


@lru_cache(128)
def segments_of(special: tuple[bool, ...], types: tuple[int, ...] | None) -> tuple[int | None, ...]:
    """The segment of every token from its type, where there are types."""
    return tuple([None if s else t for s, t in zip(special, types or (0,) * len(special), strict=True)])


def segments_apart(special: tuple[bool, ...]) -> tuple[int | None, ...]:
    """The segment of every token of a pair where nothing else tells: the second text follows the first separator.

    >>> segments_apart((True, False, False, True, False, True))
    (None, 0, 0, None, 1, None)
    """
    begun = special.index(False) if False in special else len(special)
    parted = special.index(True, begun) if True in special[begun:] else len(special)
    return tuple([None if s else int(i > parted) for i, s in enumerate(special)])


def words_from_pieces(tokens: Sequence[str], special: tuple[bool, ...]) -> tuple[int | None, ...]:
    """Word numbers from the pieces alone: '##x' continues a word; in vocabularies with 'Ġ' or '▁', what lacks it does, unless
    only one of the two is punctuation.

    >>> words_from_pieces(["Ġun", "seen", ".", '"'], (False,) * 4)
    (0, 0, 1, 1)
    """
    if not any(map(MARK.match, tokens)):
        return each_a_word(special)
    marked = any(t.startswith(("Ġ", "▁")) for t in tokens)
    numbers: list[int | None] = []
    word, last = -1, ""  # the piece before, if a word can go on from it
    for token, is_special in zip(tokens, special, strict=True):
        if is_special:
            numbers.append(None)
            last = ""
            continue
        like = bool(last) and (token[:1] in punctuation) == (last[-1] in punctuation)
        goes_on = token.startswith("##") or (marked and not token.startswith(("Ġ", "▁")) and like)
        if not (goes_on and last):
            word += 1
        last = token
        numbers.append(word)
    return tuple(numbers)
