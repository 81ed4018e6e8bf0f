"""Distributions side by side: agreement of explanations between models that differ by seed only (ALTI, figures 7–8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from whence.errors import InputError
from whence.render.canvas import COLUMN, HUES, dress, headed, new_figure, plain
from whence.render.scale import css

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def violins_figure(
    values: Mapping[str, ArrayLike],
    ylabel: str = "similarity",
    title: str = "",
    *,
    width: float = COLUMN,
    theme: str = "light",
) -> Figure:
    """One violin per name, with its median (dot) and quartiles (bar).

    >>> figure = violins_figure({"alti": [0.8, 0.9, 0.7], "gradient": [0.3, 0.5, 0.4]}, "Jaccard-25%")
    >>> [t.get_text() for t in figure.axes[0].get_xticklabels()]
    ['alti', 'gradient']
    """
    samples = {
        name: np.asarray(v, dtype=np.float64)[~np.isnan(np.asarray(v, dtype=np.float64))] for name, v in values.items()
    }
    if not samples or any(len(v) == 0 for v in samples.values()):
        raise InputError("a violin needs at least one number under every name.")
    figure, look = new_figure(max(width, 0.5 + 0.45 * len(samples)), 2.4, theme)
    axes = figure.subplots()
    for at, sample in enumerate(samples.values()):
        if len(sample) > 2 and np.ptp(sample) > 0:
            drawn: dict[str, Any] = axes.violinplot([sample], positions=[at], widths=0.8, showextrema=False)
            drawn["bodies"][0].set(facecolor=HUES[at % len(HUES)], alpha=0.55, edgecolor=css(look.muted), linewidth=0.5)
        low, middle, high = np.quantile(sample, [0.25, 0.5, 0.75])
        axes.plot([at, at], [low, high], color=css(look.ink), linewidth=2.2, solid_capstyle="butt")
        axes.plot(
            at, middle, "o", color=css(look.paper), markeredgecolor=css(look.ink), markersize=4, markeredgewidth=0.8
        )
    long = max(map(len, samples)) > 5 and len(samples) > 3
    axes.set_xticks(range(len(samples)), [plain(name) for name in samples])
    axes.set_ylabel(plain(ylabel))
    axes.grid(axis="y", color=css(look.line), linewidth=0.4)
    axes.set_axisbelow(True)
    dress(axes, look)
    for tick in axes.get_xticklabels() if long else []:
        tick.set(rotation=45, ha="right", rotation_mode="anchor")
    axes.spines[["top", "right"]].set_visible(False)
    if title:
        headed(figure, title, look)
    return figure
