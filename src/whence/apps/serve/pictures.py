"""Explanations as files to download, drawn as everywhere else in whence."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from whence.explanation import Explanation
from whence.render.canvas import PAGE, figure_bytes
from whence.render.characters import as_json
from whence.render.highlight import text_figure
from whence.render.html import compare_html, page

TYPES = {
    "svg": "image/svg+xml",
    "png": "image/png",
    "html": "text/html; charset=utf-8",
    "json": "application/json",
}
_DRAWING = threading.Lock()  # matplotlib's settings belong to the whole process


def picture(found: Mapping[str, Explanation], format: str, *, kind: str | None, theme: str, pieces: bool) -> bytes:
    """One method as its own figure or page, several as rows."""
    first = next(iter(found.values()))
    if format == "json":
        dicts = {name: e.to_dict() for name, e in found.items()}
        return as_bytes(as_json(dicts if len(found) > 1 else first.to_dict()))
    if format == "html":
        several = len(found) > 1
        title = "Methods compared" if several else f"{first.target} · {first.method}"
        return as_bytes(page(title, compare_html(found, pieces=pieces) if several else first.to_html(pieces=pieces)))
    with _DRAWING:
        if len(found) > 1 or kind == "text":
            return figure_bytes(text_figure(found, width=PAGE, theme=theme, pieces=pieces), format)
        return figure_bytes(first.figure(kind, theme=theme, pieces=pieces), format)


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
