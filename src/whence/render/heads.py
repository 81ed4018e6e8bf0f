"""A head mask as a matplotlib figure: layers × heads, one panel for the syntactic and one for the positional heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from whence.render.canvas import PAGE, SMALL, dress, headed, new_figure, plain, titled
from whence.render.scale import css, ink_on, mix

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Labels = Mapping[tuple[int, int], str]  # (layer, head), from 0 → what the head was counted for
COLORS = {"syntactic": (33, 102, 172), "positional": (179, 88, 6), "heads": (94, 46, 146)}
CELL = 0.5  # inches


def mask_figure(
    panels: Mapping[str, ArrayLike],
    labels: Mapping[str, Labels] | None = None,
    title: str = "",
    *,
    theme: str = "light",
) -> Figure:
    """panels: name → counts (L, H). Cells in the mask are filled, darker for higher counts, and say what they stand for, one
    function a line (Mask-LRP, figure 5)."""
    tables = {name: np.asarray(values, dtype=float) for name, values in panels.items()}
    depth, heads = next(iter(tables.values())).shape
    lines = max((text.count(" ") + 1 for cells in (labels or {}).values() for text in cells.values()), default=1)
    row = max(0.22, 0.11 * lines + 0.05)  # inches
    figure, look = new_figure(min(PAGE, CELL * heads + 0.8), (row * depth + 0.65) * len(tables) + 0.3, theme)
    for axes, (name, table) in zip(np.atleast_1d(figure.subplots(len(tables), 1)), tables.items(), strict=True):
        filled, none = COLORS.get(name, COLORS["heads"]), mix(look.paper, look.muted, 0.12)
        top = 2 if table.max() > 1 else 1
        colors = [[mix(none, filled, min(value, top) / top) for value in line] for line in table]
        axes.imshow(np.array(colors, dtype=np.uint8), origin="lower", aspect="auto")
        axes.set_xticks(np.arange(heads), [str(h + 1) for h in range(heads)])
        axes.set_yticks(np.arange(depth), [str(layer + 1) for layer in range(depth)])
        axes.set_xticks(np.arange(heads + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(depth + 1) - 0.5, minor=True)
        axes.grid(which="minor", color=css(look.paper), linewidth=1.5)
        axes.set_xlabel("head")
        axes.set_ylabel("layer")
        dress(axes, look, frame=False)
        axes.tick_params(which="both", length=0)
        titled(axes, f"{name} ({int(np.count_nonzero(table))} of {table.size} heads)", look)
        for (layer, head), text in ((labels or {}).get(name) or {}).items():
            ink = css(ink_on(colors[layer][head]))
            size = min(SMALL, 44 / max(map(len, text.split())))
            axes.text(
                head,
                layer,
                plain(text).replace(" ", "\n"),
                ha="center",
                va="center",
                fontsize=size,
                color=ink,
                linespacing=0.95,
            )
    headed(figure, title, look)
    return figure
