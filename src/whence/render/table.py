"""A list of rows that prints itself as a table, in a terminal and in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]


class Table(list[Row]):
    """Rows (dicts with the same keys) that show as a table.

    >>> Table([{"name": "gae", "cost": 1}, {"name": "attcat", "cost": 1}])
    name    cost
    gae     1
    attcat  1
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        super().__init__(rows)

    @property
    def columns(self) -> list[str]:
        return list(self[0]) if self else []

    def __repr__(self) -> str:
        cells = [self.columns, *([str(row[c]) for c in self.columns] for row in self)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(self.columns))]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(c)}</th>" for c in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(row[c]))}</td>" for c in self.columns) + "</tr>" for row in self
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
