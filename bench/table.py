"""The one kind of table that suites yield: rows with times, ratios to the floor, memory, and the bars wanted of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

# what may be wanted of a row (each time "at most"): the field, how its bar is printed
BARS = {
    "ratio": "≤ {:g}×",
    "seconds": "≤ {:g} s",
    "extra_megabytes": "≤ {:g} MB more",
    "difference": "differs ≤ {:.0e}",
}


@dataclass
class Row:
    """One thing measured."""

    name: str
    seconds: float | None = None
    ratio: float | None = None  # to the table's floor
    megabytes: float | None = None  # peak above the start of the run: resident on a CPU, allocated on CUDA
    extra_megabytes: float | None = None  # that less the floor's
    difference: float | None = None  # from a reference, as a share of its largest entry
    wanted: dict[str, float] = field(default_factory=dict)  # field → the most it may be
    beside: str | None = None  # a peer's row: the row of ours that does the same work
    x: float | None = None  # where the row stands on the table's axis
    series: str | None = None  # the curve it belongs to
    note: str = ""
    failed: bool = False  # it was to be measured, and did not run

    def missed(self) -> list[str]:
        """The bars that the row does not hold."""
        return [key for key, most in self.wanted.items() if not holds(getattr(self, key), most)]


def holds(value: float | None, most: float) -> bool:
    return value is not None and value <= most


@dataclass
class Table:
    """Rows that were measured together."""

    title: str
    rows: list[Row]
    floor: str | None = None  # the row that ratios are to
    axis: str | None = None  # what `x` counts: the table is then drawn as curves
    notes: list[str] = field(default_factory=list)

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def wanted_nothing(self) -> None:
        """Drop the bars: they are for full sizes."""
        for row in self.rows:
            row.wanted = {}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> Table:
        return Table(**{**found, "rows": [Row(**row) for row in found["rows"]]})

    def text(self) -> str:
        """As printed."""
        columns = {"seconds": "seconds", "ratio": "× floor", "megabytes": "peak MB", "difference": "differs by"}
        shown = [key for key in columns if any(getattr(row, key) is not None for row in self.rows)]
        width = max(24, *(len(row.name) for row in self.rows)) + 2
        head = f"{'':{width}s}" + "".join(f"{columns[key]:>11s}" for key in shown) + "  wanted"
        lines = [self.title, head]
        for row in self.rows:
            cells = "".join(f"{cell(key, getattr(row, key)):>11s}" for key in shown)
            lines.append(f"{row.name:{width}s}{cells}  {self.verdict(row)}".rstrip())
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def verdict(self, row: Row) -> str:
        """The bars with whether they were held, how a peer compares, and what else is to say."""
        bars = [BARS[key].format(most) for key, most in row.wanted.items()]
        said = [", ".join(bars) + (": MISSED" if row.missed() else ": held")] if bars else []
        if row.beside is not None and row.seconds:
            ours = next((own.seconds for own in self.rows if own.name == row.beside), None)
            said += [] if ours is None else [f"whence takes {ours / row.seconds:.2f} of its time"]
        return "; ".join([*said, *([row.note] if row.note else [])])


def cell(key: str, value: float | None) -> str:
    if value is None:
        return ""
    if key == "difference":
        return f"{value:.1e}"
    if key == "seconds":
        return f"{value:.3f}" if value >= 0.1 else f"{value * 1000:.2f} ms"
    return f"{value:.2f}" if key == "ratio" else f"{value:.0f}"
