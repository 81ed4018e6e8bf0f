"""Code blocks of Markdown pages: found, and run as printed, top to bottom, in one folder and one scope per page.

The convention of the pages:

    ```python    is run.
    ```console   every line that starts with "$ " is run; the lines under it, if any, are what it prints ("…" stands for any lines).
                 `whence …` runs in this process; of `make`, `python -m` and `pip` only that there is such a target, module or
                 extra is checked.
    ```text, ```json, ```toml, ```yaml   are shown, not run.

A block that cannot be run here says so, and why, in a comment on the line before its fence: <!-- not run: needs a hub -->.
"""

from __future__ import annotations

import importlib.util
import io
import re
import shlex
import sys
import tomllib
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from whence.apps.cli import app

ROOT = Path(__file__).parents[2]
SHOWN = {"text", "json", "toml", "yaml", "html", "bibtex"}
REASONS = ("needs a hub", "needs a GPU", "needs a server", "takes long", "needs data")
FENCE = re.compile(
    r"(?:^<!-- not run: (?P<why>.*?) -->\n)?^(?P<indent> *)```(?P<language>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    line: int
    why_not: str | None  # why it is not run


def blocks(page: str) -> list[Block]:
    """
    >>> [b.language for b in blocks("```python\\n1\\n```\\n")]
    ['python']
    """
    return [
        Block(m["language"].strip(), m["code"], page[: m.start()].count("\n") + 1, m["why"])
        for m in FENCE.finditer(page)
    ]


def commands(code: str) -> list[tuple[str, list[str]]]:
    """Every command of a console block with the lines that it prints."""
    found: list[tuple[str, list[str]]] = []
    for line in code.replace("\\\n", "").splitlines():  # a command may go on after a backslash
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line.rstrip())
    return found


def run_page(page: str, name: str) -> None:
    """Run every block of a page, in the current folder."""
    module = ModuleType("page")  # dataclasses look their module up
    sys.modules["page"] = module
    try:
        for block in blocks(page):
            run_block(block, name, module.__dict__)
    finally:
        del sys.modules["page"]


def run_block(block: Block, name: str, scope: dict[str, Any]) -> None:
    where = f"{name}, line {block.line}"
    if block.why_not is not None:
        assert block.why_not.startswith(REASONS), f"{where}: say why it is not run: {', '.join(REASONS)}"
    elif block.language == "python":
        exec(compile("\n" * block.line + block.code, name, "exec"), scope)
    elif block.language == "console":
        for command, printed in commands(block.code):
            run_command(command, printed, where)
    else:
        assert block.language in SHOWN, f"{where}: a block of {block.language or 'no language'} is never run"


def run_command(command: str, printed: list[str], where: str) -> None:
    words = shlex.split(command, comments=True)
    if words[0] == "whence":
        shown = whence_says(words[1:])
        while printed and not printed[-1]:
            printed = printed[:-1]
        if printed:
            wanted = "\n".join(".*" if line == "…" else re.escape(line) for line in printed)
            assert re.fullmatch(wanted, shown, flags=re.DOTALL), f"{where}: {command}\nprints\n{shown}"
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE), where
    elif words[:2] == ["python", "-m"]:
        assert words[2] in ("venv", "pip") or importlib.util.find_spec(words[2]), f"{where}: no module {words[2]}"
    elif words[:2] == ["pip", "install"]:
        check_extras(words[2:], where)
    else:
        raise AssertionError(f"{where}: nobody runs {command!r}")


def whence_says(words: list[str]) -> str:
    """What `whence …` prints, not on a terminal; `< FILE` gives it its input."""
    stdin = ""
    if "<" in words:
        at = words.index("<")
        stdin = Path(words[at + 1]).read_text(encoding="utf-8")
        words = words[:at] + words[at + 2 :]
    shown = io.StringIO()
    with redirect_stdout(shown), mock.patch("sys.stdin", io.StringIO(stdin)):
        app(words, standalone_mode=False)
    return "\n".join(line.rstrip() for line in shown.getvalue().rstrip("\n").splitlines())


def check_extras(words: list[str], where: str) -> None:
    """The extras of whence that a page installs exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for word in words:
        if found := re.fullmatch(r"(?:whence|\.)\[(.*)\]", word):
            unknown = set(found[1].split(",")) - set(project["optional-dependencies"])
            assert not unknown, f"{where}: no extra {unknown}"
