"""Cut a text into what renderers colour: stretches of text (one per token, and what lies between them), and columns of figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whence.errors import UNEXPLAINED
from whence.render.meaning import combined
from whence.render.scale import FULL_SCALE, is_signed, strengths
from whence.render.words import plain_piece

if TYPE_CHECKING:
    from whence.explanation import Explanation

CUT_SHOWN = 80  # characters shown of what a truncated text lost

# what the two parts of an input are called
PARTS = {
    "question-answering": ("question", "context"),
    "causal-lm": ("prompt", "continuation"),
}
NLI = ("entail", "neutral", "contradict")  # how the labels of a premise and a hypothesis begin


@dataclass(frozen=True)
class Span:
    """A stretch of text; `token` is None for what no token covers (blanks between words, what was cut off)."""

    text: str
    token: int | None
    cut: bool = False


@dataclass(frozen=True)
class Part:
    """One of the texts of an input; `name` is None where there is only one."""

    name: str | None
    spans: list[Span]


def parts(e: Explanation, *, pieces: bool = False) -> list[Part]:
    """The explanation's texts in order, special tokens left out; pieces=True shows the tokenizer's own pieces, all of them.

    The spans of a part, put together, are its text: nothing is lost, and what was cut off is marked.
    """
    if pieces or e.text is None or not any(end > start for start, end in e.offsets):
        return [Part(None, _from_tokens(e, pieces))]
    texts = [e.text] if e.pair is None else [e.text, e.pair]
    names: Sequence[str | None] = [None] if e.pair is None else part_names(e)
    return [Part(names[i], _from_text(e, i, text)) for i, text in enumerate(texts)]


def part_names(e: Explanation) -> tuple[str, str]:
    if e.task in PARTS:
        return PARTS[e.task]
    labels = [label.casefold() for label in (e.target, e.prediction) if label]
    return ("premise", "hypothesis") if any(label.startswith(NLI) for label in labels) else ("first", "second")


def _from_text(e: Explanation, segment: int, text: str) -> list[Span]:
    spans: list[Span] = []
    done = 0
    for i, (start, end) in enumerate(e.offsets):
        if e.segments[i] != segment or end <= done:
            continue
        start = max(start, done)
        start += len(text[start:end]) - len(
            text[start:end].lstrip()
        )  # " word" of byte-level tokenizers: colour the word
        spans += [Span(text[done:start], None)] * (start > done) + [Span(text[start:end], i)] * (end > start)
        done = end
    rest = text[done:]
    if e.truncated and rest.strip():
        return [*spans, Span(rest[:CUT_SHOWN] + "…" * (len(rest) > CUT_SHOWN), None, cut=True)]
    return [*spans, Span(rest, None)] if rest else spans


def _from_tokens(e: Explanation, pieces: bool) -> list[Span]:
    spans: list[Span] = []
    for i, token in enumerate(e.tokens):
        if e.special[i] and not pieces:
            continue
        goes_on = i > 0 and e.word_ids[i] is not None and e.word_ids[i] == e.word_ids[i - 1]
        if spans and (pieces or not goes_on):
            spans.append(Span(" ", None))
        spans.append(Span(token if pieces else plain_piece(token), i))
    return spans


@dataclass(frozen=True)
class Unit:
    """A column of a figure: a whole word, or with pieces=True one token."""

    text: str
    tokens: tuple[int, ...]
    special: bool = False


def units(e: Explanation, *, pieces: bool = False, special: bool = False) -> list[Unit]:
    """Words in order; pieces=True gives the tokenizer's own pieces; special=True keeps [CLS], [SEP], … in their places."""
    if pieces:
        return [Unit(t, (i,), bool(e.special[i])) for i, t in enumerate(e.tokens) if special or not e.special[i]]
    columns = [Unit(w.text, w.tokens) for w in e.words()]
    if special:
        covered = {i for unit in columns for i in unit.tokens}
        columns += [Unit(t, (i,), True) for i, t in enumerate(e.tokens) if i not in covered]
    return sorted(columns, key=lambda unit: unit.tokens[0])


def unit_scores(e: Explanation, values: NDArray[np.floating[Any]], columns: Sequence[Unit]) -> NDArray[np.float64]:
    """Scores (…, n) of an explanation's tokens as scores (…, units), put together as its method says."""
    return combined(np.asarray(values, dtype=np.float64), [unit.tokens for unit in columns], e.meaning.combine)


def layer_names(e: Explanation) -> list[str]:
    """Layers as people count them: 1 is the first block; 0 is the embeddings, for methods that score them."""
    first = 1 if e.meaning.layers_start is None else e.meaning.layers_start
    return [str(first + i) for i in range(0 if e.layers is None else len(e.layers))]


def score_name(e: Explanation) -> str:
    """'sum' where the method's score is the sum of its layers, 'score' elsewhere."""
    layers: NDArray[Any] = np.zeros((0, len(e))) if e.layers is None else e.layers
    return "sum" if np.allclose(layers.sum(0), e.scores, rtol=1e-3, atol=1e-6) else "score"


@dataclass(frozen=True)
class Shown:
    """What every highlight needs: strengths (n,), ranks (n,) from 1 among the text's own tokens, and the scale."""

    strength: NDArray[np.float64]
    rank: NDArray[np.int64]
    own: int  # how many tokens are ranked
    signed: bool


def shown(e: Explanation) -> Shown:
    full = e.options.get(FULL_SCALE)
    strength = strengths(e.scores, e.special)
    if full is not None:
        strength = np.clip(np.where(e.special, 0.0, np.asarray(e.scores, dtype=np.float64) / full), -1.0, 1.0)
    weight = np.where(e.special, -1.0, np.abs(strength))
    rank = np.empty(len(e), dtype=np.int64)
    rank[np.argsort(-weight, kind="stable")] = np.arange(1, len(e) + 1)
    return Shown(strength, rank, int((~np.asarray(e.special, dtype=bool)).sum()), is_signed(e))


def circumstances(e: Explanation) -> str:
    """What follows the target's name: its probability, what it is held against, what the model predicted."""
    chance = "" if e.probability is None else f" {percent(e.probability)}"
    rather = "" if e.contrast is None else f" rather than {label_of(e.contrast)}"
    if rather and e.meaning.knows_target is False:
        rather += " (the same for every target)"
    instead = "" if e.prediction in (None, e.target) else f" (predicted: {label_of(e.prediction or '')})"
    return f"{rather}{chance}{instead}"


def label_of(target: str) -> str:
    """A target's name for people: language models answer with pieces and blanks.

    >>> label_of(" thief"), label_of("##s"), label_of(" ")
    ('thief', 's', '␣')
    """
    return " ".join(target.removeprefix("##").split()) or "␣"


def token_text(e: Explanation, i: int) -> str:
    """One token as it stands in its text; its piece without the tokenizer's marks where the text is not known."""
    source = e.pair if e.segments[i] == 1 else e.text
    start, end = e.offsets[i]
    return source[start:end] if source is not None and end > start and not e.special[i] else plain_piece(e.tokens[i])


def heading(e: Explanation) -> str:
    return f"{label_of(e.target)}{circumstances(e)} · {with_gap(e.method, e)}"


def gap_of(e: Explanation) -> str:
    """What scores leave unexplained of the difference that they should add up to; '' where that is little, or nothing is promised."""
    share = e.options.get("unexplained")
    return f"{percent(share)} unexplained" if isinstance(share, (int, float)) and share > UNEXPLAINED else ""


def with_gap(name: str, e: Explanation) -> str:
    """A method's name, and what it leaves unexplained if that is more than a little."""
    gap = gap_of(e)
    return f"{name} ({gap})" if gap else name


def percent(probability: float) -> str:
    """A probability that never rounds to certainty.

    >>> percent(0.8714), percent(0.99999), percent(0.00001)
    ('87.1%', '>99.9%', '<0.1%')
    """
    if 0.9995 <= probability < 1:
        return ">99.9%"
    return "<0.1%" if 0 < probability < 0.0005 else f"{probability:.1%}"
