"""The pages on evaluation name commands, metrics and presets that exist (tests/test_docs.py runs their Python)."""

from __future__ import annotations

import re
from pathlib import Path

import whence
from whence.apps.cli import app

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_commands_and_metrics_are_those_that_exist() -> None:
    commands = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback}
    pages = [*DOCS.glob("evaluate.md"), *DOCS.glob("metrics/*.md"), *DOCS.glob("results/README.md")]
    found = [
        c for page in pages for c in re.findall(r"(?:^\$ |`)whence (\w+)", page.read_text("utf-8"), flags=re.MULTILINE)
    ]
    assert {"evaluate", "tune", "check", "metrics"} <= set(found) <= commands
    table = (DOCS / "metrics" / "README.md").read_text(encoding="utf-8")
    for row in whence.metrics():
        if row["family"] != "plug-in":
            assert row["name"] in table
            assert all(preset in table for preset in filter(None, row["presets"].split(", ")))
