"""Explanations that were saved: a directory of `whence corpus`, or the JSON of `whence explain`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from whence.errors import InputError
from whence.explanation import Explanation


def saved_run(directory: str | Path, method: str | None) -> Sequence[Explanation]:
    """What a corpus run holds of one method (None: its first), read as it is asked for."""
    from whence.corpus import open as open_run
    from whence.data.runs import warn_unfinished

    saved = open_run(directory)
    warn_unfinished(directory)
    return saved[method or saved.methods[0]]


def saved_rows(rows: Sequence[Any]) -> list[Explanation] | None:
    """Explanations from JSON rows; None if these are something else."""
    if rows and all(isinstance(row, dict) and "tokens" in row for row in rows):
        return [Explanation.from_dict(row) for row in rows]
    return None


def models_of(found: Iterable[Explanation]) -> str:
    return ", ".join(sorted({e.model for e in found if e.model}))


def as_rows(text: str, file: str) -> list[Any]:
    """JSON, JSON lines, or plain lines."""
    if file.endswith((".json", ".jsonl")) or text.lstrip()[:1] in ("[", "{"):
        try:
            whole = json.loads(text)
            return whole if isinstance(whole, list) else [whole]
        except (ValueError, RecursionError):  # numbers of thousands of digits are a plain ValueError
            try:
                return [json.loads(line) for line in text.splitlines() if line.strip()]
            except (ValueError, RecursionError) as error:
                if file.endswith((".json", ".jsonl")):
                    raise InputError(f"{file!r} is neither JSON nor JSON lines: {error}.") from error
    return [line for line in text.splitlines() if line.strip()]


def read(file: Path) -> str:
    """The text of a file."""
    from whence.data.encoding import HEAD, check_text

    try:
        data = file.read_bytes()
        check_text(data[:HEAD], file.name)
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"{str(file)!r} cannot be read: {reason}.") from error
