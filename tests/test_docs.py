"""Every Python block of the README runs as printed, and every command it shows exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from whence.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_python_blocks_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) >= 3
    scope: dict[str, object] = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), scope)


@pytest.mark.parametrize("command", re.findall(r"^\$ whence (\S+)", README, flags=re.MULTILINE))
def test_commands_exist(command: str) -> None:
    assert command in {c.name or c.callback.__name__ for c in app.registered_commands}


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^\$ make (\S+)", README, flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
