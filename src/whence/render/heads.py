"""A head mask as a matplotlib figure: layers × heads, one panel for the syntactic and one for the positional heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from whence.errors import WhenceError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Labels = Mapping[tuple[int, int], str]  # (layer, head), from 0 → what the head was counted for
COLORS = {"syntactic": "#2166ac", "positional": "#b35806", "heads": "#4d4d4d"}


def mask_figure(panels: Mapping[str, ArrayLike], labels: Mapping[str, Labels] | None = None, title: str = "") -> Figure:
    """panels: name → counts (L, H). Cells in the mask are filled, darker for higher counts, and say what they stand for."""
    try:
        from matplotlib.colors import LinearSegmentedColormap
        from matplotlib.figure import Figure
    except ImportError:
        raise WhenceError("figures need matplotlib: pip install 'whence[plots]'.") from None
    tables = {name: np.asarray(values, dtype=float) for name, values in panels.items()}
    depth, heads = next(iter(tables.values())).shape
    figure = Figure(
        figsize=(len(tables) * max(3.0, 0.5 * heads + 1.0), max(2.4, 0.42 * depth + 1.3)), layout="constrained"
    )
    all_axes = np.atleast_1d(figure.subplots(1, len(tables)))
    for axes, (name, table) in zip(all_axes, tables.items(), strict=True):
        scale = LinearSegmentedColormap.from_list(name, ["#f2f2f2", COLORS.get(name, COLORS["heads"])])
        axes.imshow(
            np.minimum(table, 2.0), cmap=scale, vmin=0, vmax=2 if table.max() > 1 else 1, origin="lower", aspect="auto"
        )
        axes.set_xticks(np.arange(heads), [str(h + 1) for h in range(heads)], fontsize=8)
        axes.set_yticks(np.arange(depth), [str(layer + 1) for layer in range(depth)], fontsize=8)
        axes.set_xticks(np.arange(heads + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(depth + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=1.5)
        axes.tick_params(which="both", length=0)
        axes.set_xlabel("head")
        axes.set_ylabel("layer")
        axes.set_title(f"{name} ({int(np.count_nonzero(table))} of {table.size} heads)", fontsize=9)
        for (layer, head), text in ((labels or {}).get(name) or {}).items():
            axes.text(
                head,
                layer,
                text,
                ha="center",
                va="center",
                fontsize=7,
                color="white",
                rotation=45 if len(text) > 3 else 0,
            )
    figure.suptitle(title, fontsize=10)
    return figure
