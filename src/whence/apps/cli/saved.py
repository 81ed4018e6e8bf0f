"""Explanations that were saved: a directory of `whence corpus`, or the JSON of `whence explain`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whence.apps.cli.streams import LONE, decode, lines_of
from whence.corpus.bad_rows import BadRow
from whence.errors import InputError
from whence.explanation import Explanation

if TYPE_CHECKING:
    from whence.corpus import Explanations


def saved_run(directory: str | Path, method: str | None) -> Explanations:
    """What a corpus run holds of one method (None: its first), read as it is asked for."""
    from whence.corpus import open as open_run
    from whence.corpus.sources.runs import warn_unfinished

    saved = open_run(directory)
    warn_unfinished(directory)
    return saved[method or saved.methods[0]]


def saved_rows(rows: Sequence[tuple[str, Any]]) -> list[Explanation | BadRow] | None:
    """Explanations from JSON rows, and in their places the rows that could not be read, then or now; None if these are something
    else."""
    if not any(is_saved(row) for _, row in rows) or not all(is_saved(row) or is_bad(row) for _, row in rows):
        return None
    return [saved_row(i, place, row) for i, (place, row) in enumerate(rows)]


def is_saved(row: Any) -> bool:
    return isinstance(row, dict) and "tokens" in row


def is_bad(row: Any) -> bool:
    return isinstance(row, InputError) or (isinstance(row, dict) and isinstance(row.get("error"), str))


def saved_row(number: int, place: str, row: Any) -> Explanation | BadRow:
    if isinstance(row, InputError):
        return BadRow(number, place, str(row))
    if not is_saved(row):
        origin, text = row.get("place"), row.get("text")
        return BadRow(
            number, origin if isinstance(origin, str) else place, row["error"], text if isinstance(text, str) else None
        )
    try:
        return Explanation.from_dict(row)
    except InputError as error:
        return BadRow(number, place, str(error))


def bad_of(rows: Iterable[Any]) -> list[BadRow]:
    """The rows that could not be read, each once: beside others that have an explanation per method it stands as often."""
    return list({(row.place, row.error): row for row in rows if isinstance(row, BadRow)}.values())


def models_of(found: Iterable[Explanation | BadRow]) -> str:
    return ", ".join(sorted({e.model for e in found if isinstance(e, Explanation) and e.model}))


def as_rows(text: str, file: str) -> list[tuple[str, Any]]:
    """JSON, JSON lines, or plain lines, each row with its place; an InputError stands in the place of a line that is no JSON or no
    text."""
    name = "stdin" if file == "-" else Path(file).name
    if file.endswith((".json", ".jsonl")) or text.lstrip()[:1] in ("[", "{"):
        try:
            if not LONE.search(text):
                whole = json.loads(text)
                if not isinstance(whole, list):
                    return [(f"{name}:1", whole)]
                return [(f"{name}, row {i}", row) for i, row in enumerate(whole)]
        except (ValueError, RecursionError):  # numbers of thousands of digits are a plain ValueError
            pass
        lines = [(place, json_row(line, place)) for place, line in lines_of(text, name) if str(line).strip()]
        if any(isinstance(row, (dict, list)) for _, row in lines):
            return lines
        if file.endswith((".json", ".jsonl")):
            first = next((str(row) for _, row in lines if isinstance(row, InputError)), "it holds no rows.")
            raise InputError(f"{file!r} is neither JSON nor JSON lines: {first}")
    return list(lines_of(text, name))


def json_row(line: str | InputError, place: str) -> Any:
    """What a line of JSON says, or why it says nothing."""
    if isinstance(line, InputError):
        return line
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return InputError(f"{place} is not JSON: {getattr(error, 'msg', None) or str(error).partition(';')[0]}.")


def read(file: Path) -> str:
    """The text of a file."""

    try:
        return decode(file.read_bytes(), file.name, by_line=True)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"{str(file)!r} cannot be read: {reason}.") from error
