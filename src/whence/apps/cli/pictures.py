"""What commands share to show explanations: as text, JSON, a page or LaTeX, on the screen or in a file, and as figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from whence.apps.cli.streams import json_line
from whence.corpus.bad_rows import BadRow
from whence.errors import InputError, UnknownName, WhenceError
from whence.explanation import Explanation
from whence.render.canvas import write
from whence.render.characters import visible
from whence.render.figures import KINDS
from whence.render.html import page
from whence.render.report import report_html
from whence.render.scale import theme_named
from whence.render.terminal import explanation_text

SHOWN_AS = ("text", "json", "html", "latex")


def as_shown(
    rows: Sequence[Explanation | BadRow],
    format: str,
    *,
    pieces: bool = False,
    top: int | None = None,
    layers: bool = False,
) -> str:
    """Explanations in the format asked for; several in HTML are a report page. A row that could not be read stands in its place with
    its error."""
    if format == "json":
        dicts = [row.to_dict() for row in rows]
        return json_line(dicts[0] if len(dicts) == 1 else dicts)
    if format == "html" and len(rows) > 1:
        return report_html(rows)

    def shown(row: Explanation | BadRow) -> str:
        if isinstance(row, BadRow):
            line = visible(str(row))
            return "% " + " ".join(line.split()) if format == "latex" else line
        if format == "html":
            return page(f"{row.target} · {row.method}", row.to_html(pieces=pieces))
        if format == "latex":
            return row.to_latex(pieces=pieces, document=len(rows) == 1)
        return row.to_text(pieces=pieces, layers=True) if layers else explanation_text(row, pieces=pieces, top=top)

    return ("\n" if format == "latex" else "\n\n").join(map(shown, rows))


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


def draw_one(found: Sequence[Explanation | BadRow], file: Path, kind: str | None, theme: str, pieces: bool) -> None:
    """The figure of one explanation."""
    if len(found) != 1 or isinstance(found[0], BadRow):
        raise InputError(f"--figure draws one explanation and {len(found)} were made; give one text and one method.")
    write(found[0].figure(kind, theme=theme, pieces=pieces), file)
