"""Curves: seconds and peak memory of tables that have an axis, one small PNG each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.table import Row, Table


def draw(measured: Mapping[str, Sequence[Table]], folder: Path) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for suite, tables in measured.items():
        for axis in dict.fromkeys(table.axis for table in tables if table.axis):
            rows = [row for table in tables if table.axis == axis for row in table.rows]
            yield draw_curves(rows, axis, folder / f"{slug(f'{suite} {axis}')}.png")


def slug(text: str) -> str:
    """
    >>> slug("scaling words in the vocabulary")
    'scaling-words-in-the-vocabulary'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def draw_curves(rows: Sequence[Row], along: str, file: Path) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator

    series: dict[str, list[Row]] = {}
    for row in rows:
        series.setdefault(row.series or row.name, []).append(row)
    with_memory = any((row.megabytes or 0) >= 50 for row in rows)
    figure, axes = plt.subplots(1, 1 + with_memory, figsize=(4.2 * (1 + with_memory) + 1.2, 3.2), squeeze=False)
    fields = [("seconds", "seconds"), ("megabytes", "peak MB above the start")][: 1 + with_memory]
    for axis, (key, label) in zip(axes[0], fields, strict=True):
        for name, points_of in series.items():
            points = [(row.x, getattr(row, key)) for row in points_of if getattr(row, key)]
            style = {"color": "black", "linestyle": "--"} if name in ("floor", "forward") else {}
            axis.plot(*zip(*points, strict=True), marker=".", linewidth=1.2, label=name, **style)
        axis.set(xscale="log", yscale="log", xlabel=along, ylabel=label)
        axis.set_xticks(
            sorted({row.x for row in rows if row.x}),
            [f"{x:g}" for x in sorted({row.x for row in rows if row.x})],
        )
        axis.minorticks_off()
        values = [value for row in rows if (value := getattr(row, key))]
        few_decades = max(values) < 100 * min(values)
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few_decades else (1.0,)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.grid(alpha=0.3)
    axes[0][-1].legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))  # never over a curve
    figure.tight_layout()
    figure.savefig(file, dpi=90, metadata={"Software": None})
    plt.close(figure)
    return file
