"""Highlighted text as a figure (vector or PNG): for papers and slides; one block per method."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whence.errors import InputError
from whence.render.canvas import COLUMN, NORMAL, SMALL, drawable, families, new_figure
from whence.render.difference import difference
from whence.render.html import step_class
from whence.render.scale import UNDERLINED, Theme, css, ink_on, is_signed, shade
from whence.render.spans import Part, circumstances, label_of, parts, shown, with_gap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

    from whence.explanation import Explanation

SIZE = 9.0  # points
LINE = 15.0  # from baseline to baseline
MARGIN = 6.0


@dataclass(frozen=True)
class Placed:
    """A stretch of text at a place, in points from the top left; strength None is plain text."""

    text: str
    x: float
    y: float
    width: float
    strength: float | None
    signed: bool = False


def text_figure(
    explanations: Mapping[str, Explanation],
    *,
    width: float = COLUMN,
    theme: str = "light",
    pieces: bool = False,
    delta: bool = False,
) -> Figure:
    """The text once per method, wrapped to the width. delta=True then shows, for every method after the first, where it
    weighs tokens differently from the first (Mask-LRP, figure 6)."""
    if not explanations:
        raise InputError("nothing to draw: give at least one explanation.")
    figure, look = new_figure(width, 1.0, theme)
    figure.set_layout_engine("none")
    first_name, first = next(iter(explanations.items()))
    blocks = dict(explanations)
    if delta:
        blocks |= {f"{first_name} − {n}": difference(first, e) for n, e in explanations.items() if e is not first}
    room = width * 72 - 2 * MARGIN
    at = MARGIN + SIZE
    placed: list[Placed] = []
    notes: list[tuple[str, float, float]] = [(f"{label_of(first.target)}{circumstances(first)}", MARGIN, at)]
    for name, e in blocks.items():
        at += LINE
        notes.append((with_gap(name, e), MARGIN, at))
        for part in parts(e, pieces=pieces):
            at += LINE
            found, at = place(e, part, room, at)
            placed += found
        at += 3
    legends = sorted(
        {(is_signed(e), name in explanations) for name, e in blocks.items()}, key=lambda k: (not k[1], k[0])
    )
    height = at + MARGIN + LINE * len(legends) + 2
    figure.set_size_inches(width, height / 72)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width * 72)
    axes.set_ylim(height, 0)
    axes.axis("off")
    for span in placed:
        draw_span(axes, span, look)
    for i, (text, x, y) in enumerate(notes):
        color = css(look.ink if i == 0 else look.muted)
        axes.text(
            x,
            y,
            drawable(text),
            fontsize=NORMAL,
            color=color,
            va="baseline",
            family=families([text]),
            weight="bold" if i == 0 else "normal",
        )
    for i, (signed, own) in enumerate(legends):
        draw_legend(axes, at + LINE * (i + 1), signed, look, None if own else first_name)
    return figure


def place(e: Explanation, part: Part, room: float, at: float) -> tuple[list[Placed], float]:
    """Lay a part out from the baseline `at`, breaking lines between words; returns what was placed and the last baseline."""
    look = shown(e)
    words = words_of(part)
    found: list[list[Placed]] = [[]]
    x = 0.0
    if part.name:
        x = measure(f"{part.name}: ") + 3
        found[0].append(Placed(f"{part.name}:", 0.0, at, x, None))
    for word in words:
        width = sum(measure(text) for text, _ in word)
        blank = all(not text.strip() for text, _ in word)
        if x + width > room and x > 0 and not blank:
            at, x = at + LINE, 0.0
            found.append([])
        for text, token in word:
            if "\n" in text and token is None:
                at, x = at + LINE, 0.0
                found.append([])
                continue
            for piece in broken(text, room):
                wide = measure(piece)
                if x + wide > room and x > 0 and piece.strip():
                    at, x = at + LINE, 0.0
                    found.append([])
                scored = token is not None and not e.special[token]
                strength = float(look.strength[token]) if scored and token is not None else None
                if piece.strip() and not (x == 0 and blank):
                    found[-1].append(Placed(piece, x, at, wide, strength, look.signed))
                x += 0.0 if x == 0 and blank else wide
    right = is_rtl("".join(s.text for s in part.spans))
    return [mirror(p, room) if right else p for line in found for p in line], at


def words_of(part: Part) -> list[list[tuple[str, int | None]]]:
    """Spans between which a line may not break, together."""
    groups: list[list[tuple[str, int | None]]] = []
    glued = False
    for span in part.spans:
        blank = not span.text.strip()
        texts = [span.text] if span.token is not None or blank else [w for w in _split(span.text) if w]
        for text in texts:
            if glued and text.strip():
                groups[-1].append((text, span.token))
            else:
                groups.append([(text, span.token)])
            glued = bool(text.strip())
    return groups


def _split(text: str) -> list[str]:
    """Words and the blanks between them."""
    found = [""]
    for c in text:
        if found[-1] and c.isspace() != found[-1][-1].isspace():
            found.append("")
        found[-1] += c
    return found


def broken(text: str, room: float) -> list[str]:
    """A text without blanks cut to stretches that fit a line."""
    if measure(text) <= room:
        return [text]
    size = max(1, int(len(text) * room / measure(text)) - 1)
    return [text[i : i + size] for i in range(0, len(text), size)]


def is_rtl(text: str) -> bool:
    """Whether the first letter with a direction runs from right to left."""
    directions = (unicodedata.bidirectional(c) for c in text)
    return next((d != "L" for d in directions if d in ("L", "R", "AL")), False)


def mirror(p: Placed, room: float) -> Placed:
    return Placed(p.text, room - p.x - p.width, p.y, p.width, p.strength, p.signed)


def font(text: str, size: float = SIZE) -> FontProperties:
    from matplotlib.font_manager import FontProperties

    return FontProperties(family=families([text]), size=size)


def measure(text: str) -> float:
    """Width in points."""
    from matplotlib.textpath import text_to_path

    # blanks at the ends count, which the extent of the ink alone would leave out
    shown_text = drawable(text).replace(r"\$", "$")
    inner = text_to_path.get_text_width_height_descent(f"|{shown_text}|", font(text), ismath=False)[0]
    bars = text_to_path.get_text_width_height_descent("||", font("|"), ismath=False)[0]
    return float(inner - bars)


def draw_span(axes: Axes, span: Placed, theme: Theme) -> None:
    from matplotlib.patches import FancyBboxPatch

    x = MARGIN + span.x
    ink = css(theme.muted)
    if span.strength is not None:
        color = shade(span.strength, span.signed, theme)
        ink = css(ink_on(color)) if step_class(span.strength, span.signed) else css(theme.ink)
        if step_class(span.strength, span.signed):
            box = FancyBboxPatch(
                (x - 0.4, span.y - 9),
                span.width + 0.8,
                11.5,
                boxstyle="round,pad=0,rounding_size=1.5",
                facecolor=css(color),
                linewidth=0,
            )
            axes.add_patch(box)
            if span.strength <= -UNDERLINED:
                axes.plot([x, x + span.width], [span.y + 1.4] * 2, color=ink, linewidth=0.7, solid_capstyle="butt")
    axes.text(x, span.y, drawable(span.text), fontsize=SIZE, color=ink, va="baseline", family=families([span.text]))


def draw_legend(axes: Axes, y: float, signed: bool, theme: Theme, first: str | None) -> None:
    """Swatches and words; `first` names the method that differences are taken from."""
    from matplotlib.patches import Rectangle

    words = ("for", "against") if first is None else (f"{first} weighs it more", "less")
    x = 0.0
    swatches = (
        [(words[0], 1.0), (words[1], -1.0)] if signed else [("less", 0.15), ("", 0.45), ("", 0.75), ("more", 1.0)]
    )
    for text, strength in swatches:
        shown_text = f" {text} " if text else "    "
        width = measure(shown_text) * SMALL / SIZE + 2
        color = shade(strength, signed, theme)
        axes.add_patch(Rectangle((MARGIN + x, y - 8), width, 10.5, facecolor=css(color), linewidth=0))
        ink = css(ink_on(color))
        axes.text(MARGIN + x + width / 2, y, text, fontsize=SMALL, color=ink, va="baseline", ha="center")
        if strength < 0:
            axes.plot([MARGIN + x + 2, MARGIN + x + width - 2], [y + 1.3] * 2, color=ink, linewidth=0.7)
        x += width + (3 if signed else 0)
