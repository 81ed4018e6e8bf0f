"""A method × metric table as a heat map: each column coloured from its worst to its best method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from whence.errors import InputError
from whence.render.canvas import NORMAL, SMALL, dress, headed, new_figure, plain, scale_colors
from whence.render.scale import css, ink_on, shade

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def table_figure(
    table: Mapping[str, Mapping[str, float | None]],
    higher_is_better: Mapping[str, bool] | None = None,
    title: str = "",
    *,
    width: float | None = None,
    theme: str = "light",
) -> Figure:
    """table: {method: {metric: value}}; a value may be missing or None.

    A metric's values are spread from its worst (paper) to its best method (full colour), so that columns with different units
    share one scale; the best value is printed bold. `higher_is_better` says which way a metric goes (True where it is silent);
    an arrow in the header repeats it.
    """
    if not table:
        raise InputError("an empty table: give {method: {metric: value}}.")
    metrics = list(dict.fromkeys(metric for row in table.values() for metric in row))
    values = np.array([[_number(row.get(m)) for m in metrics] for row in table.values()], dtype=np.float64)
    up = [(higher_is_better or {}).get(metric, True) for metric in metrics]
    goodness = np.stack([_spread(values[:, j] if up[j] else -values[:, j]) for j in range(len(metrics))], axis=1)
    longest = max(map(len, table))
    wide = width or 0.5 + 0.075 * longest + 0.8 * len(metrics)
    figure, look = new_figure(wide, 0.75 + 0.22 * len(table) + 0.05 * max(map(len, metrics)), theme)
    axes = figure.subplots()
    axes.imshow(goodness * 0.85, cmap=scale_colors(False, look), vmin=0, vmax=1, aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        if np.isnan(value):
            axes.text(j, i, "–", ha="center", va="center", fontsize=SMALL, color=css(look.muted))
            continue
        ink = css(ink_on(shade(0.85 * float(goodness[i, j]), False, look)))
        best = "bold" if goodness[i, j] == 1 else "normal"
        axes.text(j, i, f"{value:.3g}", ha="center", va="center", fontsize=SMALL, color=ink, weight=best)
    axes.set_xticks(range(len(metrics)), [f"{plain(m)} {'↑' if u else '↓'}" for m, u in zip(metrics, up, strict=True)])
    axes.tick_params(axis="x", rotation=30 if max(map(len, metrics)) > 12 else 0)
    axes.set_yticks(range(len(table)), [plain(name) for name in table])
    axes.set_xticks(np.arange(len(metrics) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(table) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color=css(look.paper), linewidth=1.2)
    axes.xaxis.tick_top()
    dress(axes, look, frame=False)
    axes.tick_params(which="minor", length=0)
    for tick in axes.get_xticklabels():
        tick.set_horizontalalignment("left" if max(map(len, metrics)) > 12 else "center")
        tick.set_rotation_mode("anchor")
    if title:
        headed(figure, title, look)
    figure.supxlabel(
        "darker is better, best in bold" if theme == "light" else "brighter is better, best in bold",
        fontsize=NORMAL - 1,
        color=css(look.muted),
    )
    return figure


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _spread(values: np.ndarray) -> np.ndarray:
    """0 for the worst, 1 for the best, in between by distance; NaN stays, and equal values are all best."""
    known = values[~np.isnan(values)]
    if not len(known):
        return values
    low, high = known.min(), known.max()
    return (values - low) / (high - low) if high > low else np.where(np.isnan(values), values, 1.0)
