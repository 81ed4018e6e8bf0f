"""Curves with intervals (perturbation curves, overlap curves): one line a method, told apart in grey as well.

Plain data in: nothing here knows where the numbers come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NotRequired, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from whence.errors import InputError
from whence.render.canvas import COLUMN, DASHES, HUES, MARKERS, SMALL, dress, headed, new_figure, plain
from whence.render.scale import css

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Curve(TypedDict):
    """One line: x and mean (m,), and where there is an interval its low and high ends (m,)."""

    x: ArrayLike
    mean: ArrayLike
    low: NotRequired[ArrayLike]
    high: NotRequired[ArrayLike]


def curves_figure(
    curves: Mapping[str, Curve],
    xlabel: str = "tokens removed (%)",
    ylabel: str = "probability",
    title: str = "",
    *,
    width: float = COLUMN,
    theme: str = "light",
) -> Figure:
    """One line per name with its interval shaded (decoded saliency figures 2–3, Mask-LRP figure 3).

    >>> figure = curves_figure({"gae": {"x": [0, 50, 100], "mean": [1, 0.6, 0.2], "low": [1, 0.5, 0.1], "high": [1, 0.7, 0.3]}})
    >>> figure.axes[0].get_xlabel()
    'tokens removed (%)'
    """
    if not curves:
        raise InputError("no curve to draw: give {name: {'x': …, 'mean': …}}.")
    longest = max(len(plain(name)) for name in curves)
    fit = max(1, int(width / (0.6 + longest * SMALL / 115)))  # a handle and a name, in inches
    legend_rows = -(-len(curves) // fit)
    columns = -(-len(curves) // legend_rows)  # rows of nearly equal length: no name is left alone on the last
    figure, look = new_figure(width, 2.2 + 0.16 * legend_rows, theme)
    axes = figure.subplots()
    for i, (name, curve) in enumerate(curves.items()):
        x, mean = np.asarray(curve["x"], dtype=float), np.asarray(curve["mean"], dtype=float)
        hue, every = HUES[i % len(HUES)], max(1, len(x) // 8)
        axes.plot(
            x,
            mean,
            color=hue,
            linestyle=DASHES[(i + i // len(HUES)) % len(DASHES)],
            linewidth=1.2,
            marker=MARKERS[i % len(MARKERS)],
            markersize=3,
            markevery=every,
            label=plain(name),
        )
        if "low" in curve and "high" in curve:
            low, high = np.asarray(curve["low"], dtype=float), np.asarray(curve["high"], dtype=float)
            axes.fill_between(x, low, high, color=hue, alpha=0.18, linewidth=0)
    axes.set_xlabel(plain(xlabel))
    axes.set_ylabel(plain(ylabel))
    axes.grid(color=css(look.line), linewidth=0.4)
    axes.set_axisbelow(True)
    dress(axes, look)
    axes.spines[["top", "right"]].set_visible(False)
    if title:
        headed(figure, title, look)
    legend = figure.legend(loc="outside lower center", ncols=columns, fontsize=SMALL, frameon=False, handlelength=3)
    for text in legend.get_texts():
        text.set_color(css(look.ink))
    return figure
