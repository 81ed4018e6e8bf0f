"""Explanations as matplotlib figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whence.errors import WhenceError
from whence.render.scale import AGAINST, FOR, css

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from whence.explanation import Explanation


def explanation_figure(e: Explanation) -> Figure:
    """Words over layers where the method has layers, otherwise one bar per word."""
    try:
        from matplotlib.colors import LinearSegmentedColormap
        from matplotlib.figure import Figure
    except ImportError:
        raise WhenceError("figures need matplotlib: pip install 'whence[plots]'.") from None
    words = e.words()
    labels = [w.text for w in words]
    figure = Figure(figsize=(max(4.0, 0.45 * len(words) + 1.2), 3.2), layout="constrained")
    axes = figure.subplots()
    title = e.target if e.probability is None else f"{e.target} {e.probability:.1%}"
    axes.set_title(f"{title} · {e.method}", fontsize=9)
    if e.layers is not None:
        grid = np.stack([e.layers[:, list(w.tokens)].sum(1) for w in words], axis=1)  # (L, words)
        red, blue = (tuple(c / 255 for c in color) for color in (AGAINST, FOR))
        limit = float(np.abs(grid).max()) or 1.0
        scale = LinearSegmentedColormap.from_list("whence", [red, (1, 1, 1), blue])
        image = axes.imshow(grid, cmap=scale, vmin=-limit, vmax=limit, aspect="auto", origin="lower")
        figure.colorbar(image, ax=axes, fraction=0.04)
        axes.set_ylabel("layer")
        axes.set_yticks(range(len(grid)))
    else:
        colors = [css(FOR if w.score >= 0 else AGAINST) for w in words]
        axes.bar(range(len(words)), [w.score for w in words], color=colors)
        axes.axhline(0, color="black", linewidth=0.6)
        axes.set_ylabel("score")
    axes.set_xticks(range(len(words)), labels, rotation=60, ha="right", fontsize=8)
    return figure
