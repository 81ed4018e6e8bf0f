"""Every message that the troubleshooting page quotes exists in the code, word by word."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.docs.blocks import ROOT, blocks

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
MESSAGES = [b.code.strip() for b in blocks(PAGE) if b.language == "text"]
GAP = "\0"  # stands for a value in a message


def written(node: ast.expr) -> str:
    """A string as the code writes it, with a gap for every value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(written(v) if isinstance(v, ast.Constant) else GAP for v in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return written(node.left) + written(node.right)
    return GAP


@cache
def sentences() -> tuple[str, ...]:
    found = []
    for file in sorted((ROOT / "src" / "whence").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        found += [written(n) for n in ast.walk(tree) if isinstance(n, (ast.Constant, ast.JoinedStr, ast.BinOp))]
    return tuple(found)


@pytest.mark.parametrize("message", MESSAGES)
def test_message_is_in_the_code(message: str) -> None:
    parts = [re.escape(part) for part in message.split("…")]
    pattern = re.compile(".*?".join(parts), flags=re.DOTALL)
    whole = "".join(message.split("…"))
    assert len(re.findall(r"\w+", whole)) >= 2, "a message of gaps alone says nothing"
    assert any(pattern.fullmatch(s) for s in sentences()), f"no such message in src: {message}"


def test_every_message_says_why_and_what_to_do() -> None:
    assert len(MESSAGES) >= 40
    assert PAGE.count("**Why.**") == PAGE.count("**Do.**") == len(MESSAGES)


def test_a_message_that_is_not_there_is_found_out() -> None:
    assert not any("whence has run out of ink" in s for s in sentences())
