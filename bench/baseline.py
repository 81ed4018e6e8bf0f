"""Files of measured tables, and what has become worse since one was written.

A file holds {"suites": {name: {"where": …, "tables": […]}}}; each run adds its suites, so that a baseline can be made in pieces.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import transformers

from bench.settings import Settings
from bench.table import Table

WORSE = 1.2  # a ratio this much above the baseline's is reported


def where(settings: Settings) -> dict[str, Any]:
    device = torch.cuda.get_device_name() if settings.cuda else f"{platform.machine()} CPU, {settings.threads} threads"
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "device": device,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def add(file: Path, measured: Mapping[str, Sequence[Table]], settings: Settings) -> None:
    """Put the suites' tables into the file, in place of those it has of them."""
    content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"suites": {}}
    for name, tables in measured.items():
        content["suites"][name] = {"where": where(settings), "tables": [rounded(t.to_dict()) for t in tables]}
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def rounded(value: Any) -> Any:
    """Four digits are more than a clock tells; fields that say nothing are left out."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items() if v not in (None, "", False, {}, [])}
    return [rounded(v) for v in value] if isinstance(value, list) else value


def stored(file: Path) -> dict[str, list[Table]]:
    content = json.loads(file.read_text(encoding="utf-8"))
    return {name: [Table.from_dict(t) for t in suite["tables"]] for name, suite in content["suites"].items()}


def in_common(now: Mapping[str, Sequence[Table]], before: Mapping[str, Sequence[Table]]) -> int:
    """How many ratios of ours both have: tables of another size, device or number of threads are not compared."""

    def ratios(suites: Mapping[str, Sequence[Table]]) -> set[tuple[str, str, str]]:
        rows = ((name, t.title, r) for name, tables in suites.items() for t in tables for r in t.rows)
        return {(name, title, r.name) for name, title, r in rows if r.ratio and r.beside is None}

    return len(ratios(now) & ratios(before))


def regressions(now: Mapping[str, Sequence[Table]], before: Mapping[str, Sequence[Table]]) -> list[str]:
    """Ratios of ours that are more than 20% worse than they were in the same table; peers are no concern of ours."""
    found = []
    for name, tables in now.items():
        known = {(t.title, row.name): row.ratio for t in before.get(name, ()) for row in t.rows if row.ratio}
        for table in tables:
            for row in table.rows:
                old = known.get((table.title, row.name))
                if old and row.ratio and row.beside is None and row.ratio > WORSE * old:
                    found.append(f"{name}, {table.title}: {row.name} {row.ratio:.2f}× the floor, was {old:.2f}×")
    return found
