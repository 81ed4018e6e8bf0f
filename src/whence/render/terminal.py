"""Explanations in a terminal: highlights, bars, methods side by side, layers; plain text where colour is not wanted."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from whence.errors import InputError
from whence.render.characters import visible
from whence.render.difference import difference
from whence.render.scale import TERMINAL, UNDERLINED, css, is_signed, normalised, shade
from whence.render.spans import (
    circumstances,
    label_of,
    layer_names,
    parts,
    score_name,
    shown,
    unit_scores,
    units,
    with_gap,
)

if TYPE_CHECKING:
    from whence.explanation import Explanation
    from whence.render.words import Word

FAINT = 0.04  # below this share of the strongest token nothing is coloured
LABEL = 24  # cells a word's label may take
BLOCKS = "·░▒▓█"


def style_of(strength: float, signed: bool) -> Style:
    """White on the strength's colour; what speaks against is underlined."""
    if abs(strength) < FAINT:
        return Style.null()
    color = css(shade(strength, signed, TERMINAL))
    return Style(color="#ffffff", bgcolor=color, bold=abs(strength) > 0.6, underline=strength <= -UNDERLINED)


def highlighted(e: Explanation, *, pieces: bool = False) -> Text:
    """The text with each token on its colour, a line per part of a pair; special tokens and what was cut off are dim."""
    look = shown(e)
    lines = Text()
    for number, part in enumerate(parts(e, pieces=pieces)):
        lines.append("\n" * (number > 0))
        if part.name:
            lines.append(f"{part.name}: ", Style(dim=True))
        for span in part.spans:
            quiet = span.cut or (span.token is not None and bool(e.special[span.token]))
            style = Style(dim=quiet)
            if span.token is not None and not quiet:
                style = style_of(float(look.strength[span.token]), look.signed)
            lines.append(visible(span.text), style)
    return lines


def legend(signed: bool) -> Text:
    """What the colours mean."""
    line = Text()
    if signed:
        line.append(" for ", style_of(1.0, True)).append(" ").append("against", style_of(-1.0, True))
        return line
    line.append("less ")
    for strength in (0.1, 0.4, 0.7, 1.0):
        line.append("  ", style_of(strength, False))
    return line.append(" more")


def headline(e: Explanation, colored: bool) -> Text:
    """Target, probability, and where they differ what the model predicted; method and model; the legend."""
    line = Text()
    line.append(visible(label_of(e.target)), Style(bold=True))
    line.append(visible(circumstances(e)))
    line.append(f"  {visible(with_gap(e.method, e))}", Style(dim=True))
    if e.model:
        line.append(f" · {visible(str(e.model))}", Style(dim=True))
    if colored:
        line.append("  ").append_text(legend(is_signed(e)))
    if e.truncated:
        line.append("  [text was cut to what the model reads]", Style(italic=True))
    return line


def label(text: str, width: int = LABEL) -> str:
    """A word on one line, no wider than `width` cells."""
    one = visible(text).replace("\n", "␊").replace("\t", "␉")
    return one if cell_len(one) <= width else set_cell_size(one, width - 1).rstrip() + "…"


def padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def bar_list(words: Sequence[Word], signed: bool = True, width: int = 24) -> Text:
    """One line per word: score and a bar."""
    largest = max((abs(w.score) for w in words), default=0.0) or 1.0
    labels = [label(w.text) for w in words]
    longest = max(map(cell_len, labels), default=0)
    lines = Text()
    for i, word in enumerate(words):
        lines.append("\n" if i else "")
        score = f"{word.score:+.4g}" if signed else f"{word.score:.4g}"
        lines.append(f"  {padded(labels[i], longest)}  {score:12}")
        color = css(shade(1.0 if word.score >= 0 else -1.0, signed, TERMINAL))
        blocks = max(1, round(width * abs(word.score) / largest)) if word.score else 0
        lines.append("█" * blocks, Style(color=color))
    return lines


def wants_color(color: bool | None) -> bool:
    """As told; else as the environment says (FORCE_COLOR, NO_COLOR); else where the output is a terminal."""
    if color is not None:
        return color
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def printed(things: Sequence[RenderableType], colored: bool, width: int | None) -> str:
    """What a terminal would show, as a string; wrapped to `width` (the terminal's own, 100 elsewhere)."""
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
        for thing in things:
            console.print(thing)
    lines = captured.get().rstrip("\n").split("\n")
    return "\n".join(line if colored else line.rstrip() for line in lines)


def explanation_text(
    e: Explanation, *, color: bool | None = None, pieces: bool = False, width: int | None = None, top: int | None = None
) -> str:
    """Headline, highlighted text and the top words (10 of them where there is no colour, unless `top` says otherwise)."""
    colored = wants_color(color)
    top = (0 if colored else 10) if top is None else top
    things: list[RenderableType] = [headline(e, colored), highlighted(e, pieces=pieces)]
    if top:
        things.append(bar_list(e.top(top), is_signed(e)))
    return printed(things, colored, width)


def compare_text(
    explanations: Mapping[str, Explanation],
    *,
    color: bool | None = None,
    pieces: bool = False,
    width: int | None = None,
    delta: bool = False,
) -> str:
    """One row per method: the highlighted text, or its strongest words where there is no colour.

    delta=True adds, below the first method's row, where each of the others puts more (red) or less (blue) weight than it.
    """
    colored = wants_color(color)
    if not explanations:
        raise InputError("nothing to compare: give at least one explanation.")
    first_name, first = next(iter(explanations.items()))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    rows = dict(explanations)
    if delta:
        rows |= {f"Δ {first_name} − {n}": difference(first, e) for n, e in explanations.items() if e is not first}
    for name, e in rows.items():
        shown_text = highlighted(e, pieces=pieces) if colored else strongest(e)
        grid.add_row(visible(with_gap(name, e)), shown_text)
    title = Text().append(visible(label_of(first.target)), Style(bold=True)).append(visible(circumstances(first)))
    if first.model:
        title.append(f"  {visible(str(first.model))}", Style(dim=True))
    things: list[RenderableType] = [title]
    if colored:
        scales = {is_signed(e) for e in explanations.values()}
        title.append("  ").append_text(Text("   ").join(legend(s) for s in sorted(scales)))
        if delta:
            things.append(
                Text("Δ: blue, the first method weighs the token more; red, underlined, less", Style(dim=True))
            )
    else:
        things += [highlighted(first)]
    return printed([*things, grid], colored, width)


def strongest(e: Explanation, k: int = 5) -> Text:
    """The top words on one line, for where there is no colour."""
    sign = "+" if is_signed(e) else ""
    return Text(", ".join(f"{label(w.text)} {w.score:{sign}.3g}" for w in e.top(k)))


def layers_text(e: Explanation, *, color: bool | None = None, pieces: bool = False, width: int | None = None) -> str:
    """A row per word, a block per layer, and the method's own score last: where in the model a word gets its weight.

    Without colour the blocks are shades (░▒▓█), and a minus before a block says that it speaks against the target.
    """
    if e.layers is None:
        raise InputError(f"{e.method} has no layers to show", lacks=("layers",))
    colored = wants_color(color)
    columns, signed = units(e, pieces=pieces), is_signed(e)
    grid = normalised(unit_scores(e, e.layers, columns))  # (L, units)
    score = normalised(unit_scores(e, e.scores, columns))
    names = layer_names(e)
    cell = 3 if len(names) <= 16 else 2
    labels = [label(u.text) for u in columns]
    longest = max(map(cell_len, labels), default=0)
    name, numbers = score_name(e), "".join(n[-cell:].rjust(cell) for n in names)
    lines = Text(f"{'':{longest}}  {numbers}  {name}  (layers, from the input up)", Style(dim=True))
    for j, text in enumerate(labels):
        lines.append(f"\n{padded(text, longest)}  ", Style(dim=False))
        for value in grid[:, j]:
            lines.append_text(block(float(value), signed, cell, colored))
        lines.append("  ").append_text(block(float(score[j]), signed, max(cell, len(name)), colored))
    return printed([headline(e, colored), lines], colored, width)


def block(strength: float, signed: bool, cell: int, colored: bool) -> Text:
    """One cell of the layer map."""
    if colored:
        mark = "−" if strength < -0.15 else " "
        return Text(mark.center(cell), style_of(strength, signed) + Style(underline=False))
    level = round(abs(strength) * 4)
    return Text(("-" if strength < 0 < level else " ") + BLOCKS[level] * (cell - 1))
