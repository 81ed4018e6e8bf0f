"""One explanation as a matplotlib figure: `Explanation.figure(kind=…)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whence.errors import InputError, UnknownName
from whence.render.canvas import (
    COLUMN,
    PAGE,
    SMALL,
    colorbar,
    drawable,
    dress,
    families,
    headed,
    heat,
    inches,
    new_figure,
    rows_of,
    shorten,
)
from whence.render.highlight import text_figure
from whence.render.matrices import matrices_figure, matrix_figure
from whence.render.scale import Theme, css, is_signed, normalised, shade
from whence.render.spans import Unit, heading, layer_names, score_name, unit_scores, units

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from whence.explanation import Explanation

MOST_BARS = 40
CELL = 0.24  # inches


def explanation_figure(e: Explanation, kind: str | None = None, **options: Any) -> Figure:
    """The figure called `kind`; without a name, layers where the method has them and bars elsewhere."""
    chosen = kind or ("bars" if e.layers is None else "layers")
    if chosen not in KINDS:
        raise UnknownName("kind of figure", chosen, list(KINDS))
    draw = KINDS[chosen]
    known = [name for name, p in inspect.signature(draw).parameters.items() if p.kind is p.KEYWORD_ONLY]
    for name, value in options.items():
        if name not in known:
            raise UnknownName(f"option of the figure {chosen!r}", name, known)
        if name == "width" and value is not None:
            inches(value)
    return draw(e, **options)


def bars_figure(e: Explanation, *, width: float = COLUMN, theme: str = "light", pieces: bool = False) -> Figure:
    """A bar per word in reading order; of a long text, the words that weigh most. Bars against the target are hatched."""
    columns = units(e, pieces=pieces)
    scores = unit_scores(e, e.scores, columns) if columns else np.zeros(0)
    kept = sorted(np.argsort(-np.abs(scores), kind="stable")[:MOST_BARS].tolist())
    figure, look = new_figure(width, 0.7 + 0.16 * max(len(kept), 3), theme)
    axes = figure.subplots()
    signed = is_signed(e)
    for at, i in enumerate(kept):
        negative = scores[i] < 0
        color = css(shade(-0.9 if negative else 0.9, signed, look))
        axes.barh(
            at,
            scores[i],
            color=color,
            height=0.75,
            hatch="////" if negative else None,
            edgecolor=css(look.paper),
            linewidth=0,
        )
    axes.axvline(0, color=css(look.muted), linewidth=0.6)
    axes.set_ylim(len(kept) - 0.4, -0.6)
    word_ticks(axes.set_yticks, [columns[i] for i in kept])
    axes.set_xlabel("against  ←  score  →  for" if signed else "score")
    dress(axes, look)
    axes.tick_params(axis="y", length=0)
    axes.locator_params(axis="x", nbins=5)
    axes.ticklabel_format(axis="x", scilimits=(-2, 3), useMathText=True)
    axes.xaxis.get_offset_text().set(fontsize=SMALL, color=css(look.ink))
    axes.spines[["top", "right", "left"]].set_visible(False)
    part = f", {len(kept)} of {len(columns)} words" if len(kept) < len(columns) else ""
    headed(figure, heading(e) + part, look)
    return figure


def layers_figure(
    e: Explanation,
    *,
    rows: Mapping[str, Explanation] | None = None,
    width: float = PAGE,
    theme: str = "light",
    pieces: bool = False,
) -> Figure:
    """Words over layers, the method's own score below, and a row for each explanation in `rows` (AttCAT, figure 4: the sum,
    and rollout). The layers share one normalisation; each row below has its own, as everywhere: 1 is its strongest word.
    Long texts go on below."""
    if e.layers is None:
        raise InputError(f"{e.method} has no layers to draw", lacks=("layers",))
    others = rows or {}
    for name, other in others.items():
        if not hasattr(other, "input_ids"):
            raise InputError(
                f"row {name!r} is a {type(other).__name__}: rows={{name: an Explanation}} draws one below the layers."
            )
        if other.input_ids != e.input_ids:
            raise InputError(f"row {name!r} explains another input; rows must be of the same tokens.")
    columns, signed = units(e, pieces=pieces), is_signed(e)
    grid = normalised(unit_scores(e, e.layers, columns))[::-1]  # the last layer on top
    below = {score_name(e): (normalised(unit_scores(e, e.scores, columns)), signed)}
    below |= {n: (normalised(unit_scores(o, o.scores, columns)), is_signed(o)) for n, o in others.items()}
    lines = rows_of(len(columns), max(8, int((width - 1.2) / CELL)))
    names = layer_names(e)[::-1]
    tall = (len(grid) + len(below)) * 0.16 + 0.75
    figure, look = new_figure(min(width, 1.6 + CELL * len(lines[0])), tall * len(lines) + 0.35, theme)
    headed(figure, heading(e), look)
    heights = [len(grid), *([1] * len(below))] * len(lines)
    axes = np.atleast_1d(figure.subplots(len(heights), 1, gridspec_kw={"height_ratios": heights}))
    for at, line in enumerate(lines):
        own = axes[at * (1 + len(below)) : (at + 1) * (1 + len(below))]
        draw_layers(
            own,
            [columns[i] for i in line],
            grid[:, line],
            {k: (v[line], s) for k, (v, s) in below.items()},
            signed,
            names,
            look,
            len(lines[0]),
        )
    colorbar(figure, list(axes), look, signed)
    if any(is_signed(o) != signed for o in others.values()):
        colorbar(figure, list(axes), look, not signed)
    return figure


def draw_layers(
    axes: NDArray[Any],
    columns: list[Unit],
    grid: NDArray[np.float64],
    below: Mapping[str, tuple[NDArray[np.float64], bool]],
    signed: bool,
    names: list[str],
    theme: Theme,
    wide: int,
) -> None:
    """One line of the text: the layers (L, units), then a strip for each row below, then the words."""
    heat(axes[0], grid, signed, theme)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylabel("layer")
    for strip, (name, (values, its_sign)) in zip(axes[1:], below.items(), strict=True):
        heat(strip, values[None], its_sign, theme)
        strip.set_yticks([0], [name])
    for one in axes:
        one.set_xlim(-0.5, wide - 0.5)  # words of the last, shorter line keep their width
        one.set_xticks([])
    word_ticks(axes[-1].set_xticks, columns, rotation=60, ha="right", rotation_mode="anchor")
    axes[-1].tick_params(axis="x", pad=2)


def word_ticks(set_ticks: Callable[..., Any], columns: list[Unit], **style: Any) -> None:
    """Words as tick labels, drawn as they are."""
    set_ticks(
        range(len(columns)),
        [drawable(shorten(u.text)) for u in columns],
        fontsize=SMALL,
        family=families(u.text for u in columns),
        **style,
    )


def highlight_figure(e: Explanation, *, width: float = COLUMN, theme: str = "light", pieces: bool = False) -> Figure:
    """The highlighted text itself."""
    return text_figure({e.method: e}, width=width, theme=theme, pieces=pieces)


KINDS: dict[str, Callable[..., Figure]] = {
    "bars": bars_figure,
    "layers": layers_figure,
    "text": highlight_figure,
    "matrix": matrix_figure,
    "matrices": matrices_figure,
}
