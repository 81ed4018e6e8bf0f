"""Cut a text into the stretches that renderers colour: one per token, and what lies between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whence.explanation import Explanation


@dataclass(frozen=True)
class Span:
    """A stretch of text; `token` is None for what no token covers (blanks between words)."""

    text: str
    token: int | None


def spans(e: Explanation, *, pieces: bool = False) -> list[Span]:
    """The explanation's text in order. pieces=True shows the tokenizer's own pieces instead."""
    if pieces or e.text is None or not any(end > start for start, end in e.offsets):
        return _from_tokens(e, pieces)
    found: list[Span] = []
    done = {0: 0, 1: 0}
    for i, (start, end) in enumerate(e.offsets):
        segment = e.segments[i]
        if segment is None:
            found += [Span(" ", None)] * bool(found) + [Span(e.tokens[i], i)]
            continue
        source = (e.pair if segment == 1 else e.text) or ""
        start, end = max(start, done[segment]), max(end, done[segment])
        between = source[done[segment] : start]
        if done[segment] == 0 and found and not between:
            between = " "  # after a special token
        found += [Span(between, None)] * bool(between) + [Span(source[start:end], i)] * (end > start)
        done[segment] = end
    return found


def _from_tokens(e: Explanation, pieces: bool) -> list[Span]:
    from whence.explanation import plain_piece

    found: list[Span] = []
    for i, token in enumerate(e.tokens):
        goes_on = i > 0 and e.word_ids[i] is not None and e.word_ids[i] == e.word_ids[i - 1]
        if found and (pieces or not goes_on):
            found.append(Span(" ", None))
        found.append(Span(token if pieces or e.special[i] else plain_piece(token), i))
    return found
