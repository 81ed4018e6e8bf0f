"""What commands share to show explanations: as text, JSON, a page or LaTeX, on the screen or in a file, and as figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from whence.cli.streams import json_line
from whence.errors import InputError, UnknownName, WhenceError
from whence.explanation import Explanation
from whence.render.canvas import write
from whence.render.figures import KINDS
from whence.render.html import page
from whence.render.report import report_html
from whence.render.scale import theme_named
from whence.render.terminal import explanation_text

SHOWN_AS = ("text", "json", "html", "latex")


def as_shown(
    found: Sequence[Explanation], format: str, *, pieces: bool = False, top: int | None = None, layers: bool = False
) -> str:
    """Explanations in the format asked for; several in HTML are a report page."""
    if format == "json":
        dicts = [e.to_dict() for e in found]
        return json_line(dicts[0] if len(dicts) == 1 else dicts)
    if format == "html":
        if len(found) > 1:
            return report_html(found)
        return page(f"{found[0].target} · {found[0].method}", found[0].to_html(pieces=pieces))
    if format == "latex":
        documents = [e.to_latex(pieces=pieces, document=len(found) == 1) for e in found]
        return "\n".join(documents)
    if layers:
        return "\n\n".join(e.to_text(pieces=pieces, layers=True) for e in found)
    return "\n\n".join(explanation_text(e, pieces=pieces, top=top) for e in found)


def check_format(format: str, known: Sequence[str]) -> None:
    if format not in known:
        raise UnknownName("format", format, known)


def check_look(theme: str, kind: str | None = None, *, figure: Path | None = None) -> None:
    """What is said of a figure is checked before the model runs, and also where nothing is drawn."""
    theme_named(theme)
    if kind is not None and kind not in KINDS:
        raise UnknownName("kind of figure", kind, list(KINDS))
    if kind is not None and figure is None:
        raise InputError("--kind says what --figure draws: give --figure, a file, too.")


def put(text: str, output: Path | None) -> None:
    """Print, or write to a file."""
    if output is None:
        print(text)
        return
    try:
        output.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8", errors="replace")
    except OSError as error:
        raise WhenceError(f"{str(output)!r} could not be written: {error.strerror}.") from error


def draw_one(found: Sequence[Explanation], file: Path, kind: str | None, theme: str, pieces: bool) -> None:
    """The figure of one explanation."""
    if len(found) != 1:
        raise InputError(f"--figure draws one explanation and {len(found)} were made; give one text and one method.")
    write(found[0].figure(kind, theme=theme, pieces=pieces), file)
