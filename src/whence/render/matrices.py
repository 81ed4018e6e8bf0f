"""Token × token contributions of mixing methods (ALTI, figures 5 and 10–12), and generated × prompt tokens of language models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
    new_figure,
    shorten,
    titled,
)
from whence.render.scale import Theme, css, normalised
from whence.render.spans import Unit, heading, token_text, units

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from whence.explanation import Explanation

MEANING = {"C": "contributions within the layer", "R": "contributions of the input, through all layers so far"}


def by_unit(matrix: NDArray[Any], columns: Sequence[Unit]) -> NDArray[np.float64]:
    """(n, n) over tokens → (units, units): columns of a word are summed, its rows averaged, so that rows still sum to 1."""
    wide = np.stack([matrix[:, list(u.tokens)].sum(1) for u in columns], axis=1)
    return np.stack([wide[list(u.tokens)].mean(0) for u in columns]).astype(np.float64)


def chosen_matrices(e: Explanation, name: str) -> NDArray[Any]:
    if e.matrices is None:
        raise InputError(
            f"this explanation by {e.method!r} holds no matrices: ask for them with matrices=True", lacks=("matrices",)
        )
    if name not in e.matrices:
        raise UnknownName("matrix", name, list(e.matrices))
    return e.matrices[name]


def matrix_figure(
    e: Explanation,
    *,
    name: str = "R",
    layer: int | None = None,
    width: float | None = None,
    theme: str = "light",
    pieces: bool = False,
) -> Figure:
    """One layer's matrix (the last one's, unless `layer`, from 1, says otherwise) and below it the strip that the method's
    scores are: the row of the token that the answer is read at (ALTI, figure 5)."""
    stack = chosen_matrices(e, name)
    number = len(stack) if layer is None else layer
    if not 1 <= number <= len(stack):
        raise InputError(f"layer={layer}: this model has layers 1 to {len(stack)}.")
    columns = units(e, pieces=pieces, special=True)
    grid = by_unit(stack[number - 1], columns)
    side = max(2.0, 0.19 * len(columns))
    figure, look = new_figure(width or min(PAGE, side + 1.9), min(PAGE, side + 1.9) + 0.35, theme)
    axes, strip = figure.subplots(2, 1, gridspec_kw={"height_ratios": [len(columns), 1.2]})
    heat(axes, normalised(grid), False, look)
    axes.set_xticks([])
    unit_ticks(axes, "y", columns, look)
    axes.set_ylabel(f"token in layer {number}")
    scores = np.array([e.scores[list(u.tokens)].sum() for u in columns], dtype=np.float64)
    heat(strip, normalised(scores)[None], False, look)
    strip.set_yticks([0], ["score"])
    unit_ticks(strip, "x", columns, look)
    strip.set_xlabel("input token")
    headed(figure, f"{heading(e)}, layer {number}: {MEANING.get(name, name)}", look)
    colorbar(figure, [axes, strip], look, False)
    return figure


def matrices_figure(
    e: Explanation, *, name: str = "R", width: float = PAGE, theme: str = "light", pieces: bool = False
) -> Figure:
    """Every layer's matrix on one scale (ALTI, figures 10–12)."""
    stack = chosen_matrices(e, name)
    columns = units(e, pieces=pieces, special=True)
    grids = normalised([by_unit(matrix, columns) for matrix in stack])  # (L, units, units)
    across = min(3, len(grids))
    down = math.ceil(len(grids) / across)
    side = (width - 1.5) / across
    figure, look = new_figure(width, side * down + 1.2, theme)
    headed(figure, f"{heading(e)}: {MEANING.get(name, name)}", look)
    axes = np.atleast_2d(figure.subplots(down, across, squeeze=False))
    for number, one in enumerate(axes.flat):
        if number >= len(grids):
            one.set_visible(False)
            continue
        heat(one, grids[number], False, look)
        one.set_xticks([])
        one.set_yticks([])
        if number % across == 0:
            unit_ticks(one, "y", columns, look)
        if number + across >= len(grids):
            unit_ticks(one, "x", columns, look)
        titled(one, f"layer {number + 1}", look)
    colorbar(figure, list(axes.flat), look, False)
    return figure


def unit_ticks(axes: Axes, side: str, columns: Sequence[Unit], theme: Theme) -> None:
    """Tokens along one side, as large as there is room for; special tokens in the muted ink."""
    size = SMALL if len(columns) <= 26 else max(3.5, SMALL * 26 / len(columns))
    style: dict[str, Any] = {"fontsize": size, "family": families(u.text for u in columns)}
    labels = [drawable(shorten(u.text)) for u in columns]
    if side == "x":
        axes.set_xticks(range(len(columns)), labels, rotation=90, **style)
    else:
        axes.set_yticks(range(len(columns)), labels, **style)
    for unit, tick in zip(columns, axes.get_xticklabels() if side == "x" else axes.get_yticklabels(), strict=True):
        tick.set_color(css(theme.muted if unit.special else theme.ink))


def generation_figure(explanations: Sequence[Explanation], **options: Any) -> Figure:
    """`generated_figure` of what `Explainer.generate` gives: an Explanation per written token, each over the whole row. Columns
    are words; of a word that is still being written, the pieces that are there."""
    first, written = explanations[0], len(explanations)
    at = len(first) - written  # where the first written token stands
    columns = [u for u in units(first) if u.tokens[0] < len(first) - 1]
    grid = np.full((written, len(columns)), np.nan)
    for t, e in enumerate(explanations):
        for j, unit in enumerate(columns):
            seen = [i for i in unit.tokens if i < at + t]
            grid[t, j] = e.scores[seen].sum() if seen else np.nan
    title = options.pop("title", f"{first.model or 'language model'} · {first.method}")
    rows = [token_text(first, at + t) for t in range(written)]
    return generated_figure(grid, rows, [u.text for u in columns], title, **options)


def generated_figure(
    scores: ArrayLike,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
    *,
    width: float | None = None,
    theme: str = "light",
) -> Figure:
    """Which prompt (and earlier generated) tokens each generated token came from.

    scores: (T, n), a row per generated token; columns are the prompt's tokens and then, if scored, the generated ones; NaN where
    a token had not been written yet. Each row is normalised by its own strongest token.
    """
    grid = np.asarray(scores, dtype=np.float64)
    if grid.ndim != 2 or grid.shape != (len(rows), len(columns)):
        raise InputError(f"scores of shape {grid.shape} do not fit {len(rows)} rows and {len(columns)} columns.")
    known = np.nan_to_num(grid)
    signed = bool((known < 0).any())
    strength = np.stack([normalised(row) for row in known]) if len(known) else known
    wide = width or float(np.clip(1.6 + 0.21 * len(columns), COLUMN, PAGE))
    figure, look = new_figure(wide, 1.3 + 0.2 * len(rows), theme)
    axes = figure.subplots()
    heat(axes, np.ma.masked_array(strength, np.isnan(grid)).filled(np.nan), signed, look)
    style: dict[str, Any] = {"fontsize": SMALL, "family": families([*rows, *columns])}
    axes.set_xticks(
        range(len(columns)),
        [drawable(shorten(t.strip() or "␣")) for t in columns],
        rotation=60,
        ha="right",
        rotation_mode="anchor",
        **style,
    )
    axes.set_yticks(range(len(rows)), [drawable(shorten(t.strip() or "␣")) for t in rows], **style)
    axes.set_ylabel("written")
    axes.set_xlabel("because of")
    dress(axes, look, frame=False)
    if title:
        headed(figure, title, look)
    colorbar(figure, axes, look, signed)
    return figure
