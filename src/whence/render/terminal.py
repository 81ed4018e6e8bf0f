"""Explanations in a terminal: every token coloured by its score, plain text where colour is not wanted."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.style import Style
from rich.text import Text

from whence.render.scale import RGB, mix, strengths
from whence.render.spans import spans

if TYPE_CHECKING:
    from whence.explanation import Explanation, Word

# brighter is stronger: from a dark shade to a bright one, white ink on all of them
WEAK_FOR, STRONG_FOR = (16, 28, 56), (38, 110, 220)
WEAK_AGAINST, STRONG_AGAINST = (56, 16, 20), (205, 45, 45)
FAINT = 0.04  # below this share of the strongest token nothing is coloured


def visible(text: str) -> str:
    """Control characters as pictures of themselves, so that a text cannot drive the terminal."""
    return "".join(
        chr(0x2400 + ord(c)) if ord(c) < 0x20 and c not in "\n\t" else "␡" if 0x7F <= ord(c) < 0xA0 else c for c in text
    )


def background(strength: float) -> RGB:
    weak, strong = (WEAK_FOR, STRONG_FOR) if strength > 0 else (WEAK_AGAINST, STRONG_AGAINST)
    return mix(weak, strong, abs(strength))


def highlighted(e: Explanation, *, pieces: bool = False) -> Text:
    """The text with each token on its colour; special tokens dim."""
    line = Text()
    strength = strengths(e.scores, e.special)
    for span in spans(e, pieces=pieces):
        style = Style(dim=True) if span.token is None or e.special[span.token] else Style.null()
        if span.token is not None and abs(strength[span.token]) >= FAINT:
            r, g, b = background(float(strength[span.token]))
            style = Style(color="#ffffff", bgcolor=f"rgb({r},{g},{b})", bold=abs(strength[span.token]) > 0.6)
        line.append(visible(span.text), style)
    return line


def headline(e: Explanation) -> Text:
    """Target, probability, and where they differ what the model predicted."""
    line = Text()
    line.append(visible(e.target), Style(bold=True))
    if e.probability is not None:
        line.append(f" {e.probability:.1%}")
    if e.prediction is not None and e.prediction != e.target:
        line.append(f" (predicted: {visible(e.prediction)})")
    line.append(f"  {e.method}", Style(dim=True))
    if e.model:
        line.append(f" · {visible(str(e.model))}", Style(dim=True))
    if e.truncated:
        line.append("  [text was cut to what the model reads]", Style(italic=True))
    return line


def bar_list(words: list[Word], width: int = 24) -> Text:
    """One line per word: score and a bar."""
    largest = max((abs(w.score) for w in words), default=0.0) or 1.0
    longest = min(max((len(w.text) for w in words), default=0), 24)
    lines = Text()
    for i, word in enumerate(words):
        label = visible(word.text) if len(word.text) <= 24 else visible(word.text[:23]) + "…"
        lines.append("\n" if i else "")
        lines.append(f"  {label:<{longest}}  {word.score:+.4g}".ljust(longest + 16))
        color = STRONG_FOR if word.score >= 0 else STRONG_AGAINST
        blocks = max(1, round(width * abs(word.score) / largest)) if word.score else 0
        lines.append("█" * blocks, Style(color=f"rgb({color[0]},{color[1]},{color[2]})"))
    return lines


def wants_color(color: bool | None) -> bool:
    """As told; otherwise on a terminal where NO_COLOR is not set."""
    if color is not None:
        return color
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def explanation_text(
    e: Explanation, *, color: bool | None = None, pieces: bool = False, width: int | None = None, top: int | None = None
) -> str:
    """Headline, highlighted text and the top words (10 of them where there is no colour, unless `top` says otherwise)."""
    colored = wants_color(color)
    top = (0 if colored else 10) if top is None else top
    parts = [headline(e), highlighted(e, pieces=pieces)]
    if top:
        parts.append(bar_list(e.top(top)))
    console = Console(
        width=width or (None if sys.stdout.isatty() else 100),
        force_terminal=colored,
        color_system="truecolor" if colored else None,
        no_color=not colored,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return captured.get().rstrip("\n")
