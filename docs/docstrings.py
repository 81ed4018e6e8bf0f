"""Teach the site our docstrings, which are written to be read in a terminal, without headings.

Lines that begin with a parameter's name and a colon are its description: they are gathered under "Args:". Examples (`>>>`) become code
blocks. All of it in the copy that the site is made of.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """Rewrites every docstring for the site."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            names = [p.name for p in obj.parameters] if isinstance(obj, griffe.Function) else []
            obj.docstring.value = with_args(with_fences(obj.docstring.value), names)


def with_fences(docstring: str) -> str:
    """
    >>> with_fences("So:\\n\\n>>> 1 + 1\\n2").splitlines()[2:]
    ['```pycon', '>>> 1 + 1', '2', '```']
    """
    return re.sub(r"^>>> .*(?:\n.+)*", lambda found: f"```pycon\n{found[0]}\n```", docstring, flags=re.MULTILINE)


def with_args(docstring: str, names: list[str]) -> str:
    """
    >>> print(with_args("Do it.\\n\\nhow: fast\\n    or slowly\\nAnd rest.", ["how"]))
    Do it.
    <BLANKLINE>
    And rest.
    <BLANKLINE>
    Args:
        how: fast
            or slowly
    """
    described = re.compile(rf"(?:{'|'.join(map(re.escape, names))}): ") if names else None
    kept: list[str] = []
    args: list[str] = []
    inside = False
    for line in docstring.splitlines():
        if described and described.match(line):
            inside = True
        elif not line.startswith("    "):
            inside = False
        (args if inside else kept).append(line)
    if not args:
        return docstring
    return "\n".join(kept).rstrip() + "\n\nArgs:\n" + "\n".join(f"    {line}" for line in args)
