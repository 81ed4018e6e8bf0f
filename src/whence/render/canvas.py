"""What all figures share: paper sizes, themes, the colour scales as colormaps, fonts that hold the text, saving.

matplotlib is imported when the first figure is made. Figures are plain `Figure` objects: no pyplot, no global state.
"""

from __future__ import annotations

import io
import math
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.errors import InputError, WhenceError
from whence.render.characters import visible
from whence.render.scale import Theme, css, ink_on, shade, theme_named

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

FONT = "DejaVu Sans"  # comes with matplotlib
NO_LETTERS = ("Color", "Last Resort")  # fonts of pictures, which matplotlib cannot draw, and of boxes
COLUMN, PAGE = 3.3, 6.9  # inches: one column and the full width of a two-column paper
LEAST, MOST = 1.0, 100.0  # what letters of their size can be set in, and what no backend refuses to draw
DPI = 200  # of .png files
SMALL, NORMAL = 7.0, 8.0  # points
FAINT = 0.15  # weaker cells carry no minus sign

# Okabe & Ito's palette (colour-blind safe), told apart by dashes and markers in grey as well
HUES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
MARKERS = "osD^vP*X"


def new_figure(width: float, height: float, theme: str = "light") -> tuple[Figure, Theme]:
    """An empty figure on the theme's paper."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise WhenceError("figures need matplotlib: pip install 'whence[plots]'.") from None
    chosen = theme_named(theme)
    return Figure(figsize=(inches(width), height), layout="constrained", facecolor=css(chosen.paper)), chosen


def inches(width: Any) -> float:
    """A width that a figure can have."""
    if isinstance(width, bool) or not isinstance(width, Real) or not LEAST <= float(width) <= MOST:
        raise InputError(
            f"width={width!r}: give inches, {LEAST:g} to {MOST:g}; a column of a paper has {COLUMN:g}, a page {PAGE:g}."
        )
    return float(width)


def dress(axes: Axes, theme: Theme, *, frame: bool = True) -> None:
    """Ticks, labels and frame in the theme's ink; frame=False leaves the cells alone on the paper."""
    axes.set_facecolor(css(theme.paper))
    axes.tick_params(colors=css(theme.ink), labelsize=SMALL, length=2 if frame else 0, width=0.6)
    for spine in axes.spines.values():
        spine.set_visible(frame)
        spine.set_color(css(theme.muted))
        spine.set_linewidth(0.6)
    for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
        text.set_color(css(theme.ink))
        text.set_fontsize(NORMAL)


@cache
def scale_colors(signed: bool, theme: Theme) -> Colormap:
    """The shared scale as a colormap from −1 (or 0) to 1."""
    from matplotlib.colors import ListedColormap

    low = -1.0 if signed else 0.0
    return ListedColormap([css(shade(s, signed, theme)) for s in np.linspace(low, 1.0, 257)], name="whence")


def plain(text: str) -> str:
    """Text that matplotlib draws as it is: no formulas between dollars, control characters made visible.

    >>> plain("from $5 to $6")
    'from \\\\$5 to \\\\$6'
    """
    shown = "".join(
        "␣" if c.isspace() and c != " " else "\ufffd" if unicodedata.category(c) == "Cc" else c for c in text
    )  # matplotlib's font has no pictures of control characters
    return visible(shown).replace("$", r"\$")


def shorten(text: str, width: int = 18) -> str:
    """A label of at most `width` characters.

    >>> shorten("antidisestablishmentarianism", 10)
    'antidises…'
    """
    return text if len(text) <= width else text[: width - 1] + "…"


def families(texts: Iterable[str]) -> list[str]:
    """Font families that together hold every character: matplotlib's own, then whatever installed font has the rest."""
    return list(_fonts(frozenset(c for text in texts for c in text if not c.isspace())))


@cache
def _fonts(wanted: frozenset[str]) -> dict[str, frozenset[str]]:
    """Families, and the characters that each holds."""
    from matplotlib import font_manager

    found = {FONT: _characters(font_manager.findfont(FONT))}
    missing = wanted - found[FONT]
    for name, file in sorted((f.name, f.fname) for f in font_manager.fontManager.ttflist) if missing else []:
        if name in found or any(word in name for word in NO_LETTERS):
            continue
        held = _characters(file)
        if missing & held:
            found[name] = held
            missing -= held
    return found


@cache
def _characters(file: str) -> frozenset[str]:
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(map(chr, FT2Font(file).get_charmap()))
    except (RuntimeError, OSError):  # a collection or a bitmap font that FreeType cannot open here
        return frozenset()


def drawable(text: str) -> str:
    """`plain` text in which characters that no installed font holds are small boxes, instead of a warning a piece."""
    held = frozenset[str]().union(*_fonts(frozenset(c for c in text if not c.isspace())).values())
    return plain("".join(c if c in held or c.isspace() or visible(c) != c else "▯" for c in text))


def colorbar(figure: Figure, axes: Any, theme: Theme, signed: bool, labels: Mapping[float, str] | None = None) -> None:
    """The legend of a heat map: the shared scale with words at its ends."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    words = labels or ({-1: "against", 0: "0", 1: "for"} if signed else {0: "none", 1: "most"})
    mappable = ScalarMappable(Normalize(-1 if signed else 0, 1), scale_colors(signed, theme))
    bar = figure.colorbar(mappable, ax=axes, fraction=0.03, pad=0.02, aspect=14, shrink=0.9)
    bar.set_ticks(list(words), labels=[plain(w) for w in words.values()])
    bar.ax.tick_params(colors=css(theme.ink), labelsize=SMALL, length=2, width=0.6)
    bar.outline.set_edgecolor(css(theme.muted))
    bar.outline.set_linewidth(0.6)


def heat(axes: Axes, grid: Any, signed: bool, theme: Theme, *, marks: bool = True) -> None:
    """Cells of strengths (rows, columns); cells that speak against carry a minus, which a grey print keeps."""
    axes.imshow(grid, cmap=scale_colors(signed, theme), vmin=-1 if signed else 0, vmax=1, aspect="auto")
    rows, columns = np.shape(grid)
    axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
    if rows * columns <= 4000:
        axes.grid(which="minor", color=css(theme.paper), linewidth=0.8)
    dress(axes, theme, frame=False)
    axes.tick_params(which="minor", length=0)
    if signed and marks:
        for row, column in np.argwhere(np.asarray(grid) < -FAINT):
            ink = css(ink_on(shade(float(grid[row][column]), True, theme)))
            axes.text(column, row, "−", ha="center", va="center", fontsize=SMALL - 1, color=ink)


def titled(axes: Axes, text: str, theme: Theme) -> None:
    axes.set_title(plain(text), fontsize=NORMAL, color=css(theme.ink), loc="left")


def headed(figure: Figure, text: str, theme: Theme) -> None:
    """What the whole figure shows, above it, wrapped to its width."""
    characters = int(figure.get_figwidth() * 72 / (NORMAL * 0.62))
    lines = textwrap.fill(" ".join(text.split()), characters)
    shown = "\n".join(drawable(line) for line in lines.split("\n"))
    figure.suptitle(shown, fontsize=NORMAL, color=css(theme.ink), x=0.01, ha="left", family=families([text]))


def write(figure: Figure, file: str | Path, *, dpi: int | None = None) -> None:
    """Save as .png, .svg or .pdf."""
    kind = Path(file).suffix.lower().removeprefix(".")
    if kind not in FILES:
        raise InputError(f"a figure is written as .png, .svg or .pdf, not as {str(file)!r}.")
    try:
        Path(file).write_bytes(figure_bytes(figure, kind, dpi=dpi))
    except OSError as error:
        raise WhenceError(f"the figure could not be written to {str(file)!r}: {error}.") from error


FILES: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}  # kind → metadata


def figure_bytes(figure: Figure, kind: str, *, dpi: int | None = None) -> bytes:
    """A figure as the bytes of a file: fonts embedded in PDF, text kept as text in SVG, no date in either."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "whence", "pdf.fonttype": 42, "text.hinting": "none"}):
        figure.savefig(buffer, format=kind, dpi=dpi or DPI, metadata=FILES[kind])
    return buffer.getvalue()


def rows_of(count: int, per_row: int) -> list[range]:
    """Cut `count` columns into rows of nearly equal length, at most `per_row` each.

    >>> rows_of(10, 4)
    [range(0, 4), range(4, 7), range(7, 10)]
    """
    rows = max(1, math.ceil(count / per_row))
    sizes = [count // rows + (i < count % rows) for i in range(rows)]
    starts = np.cumsum([0, *sizes])
    return [range(int(a), int(b)) for a, b in pairwise(starts)]
