"""What a command reads from stdin and writes to stdout, whatever these are: closed, full, of another encoding, or read by nobody."""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress
from typing import Any

from whence.errors import InputError
from whence.render.characters import as_json


def ready() -> None:
    """Streams that a command can print to: nowhere if the caller closed them, and what their encoding has no letter for as '?'."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (for as long as the process lives)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def let_go() -> None:
    """Forget what stdout holds and cannot be written: Python would try once more when it ends, and end with an error."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def from_stdin() -> str:
    """All of stdin."""
    if sys.stdin is None:
        raise InputError("stdin is closed: give the text itself in place of '-'.")
    try:
        if not isinstance(sys.stdin, io.TextIOWrapper):
            return sys.stdin.read()
        return as_text(sys.stdin.buffer.read(), sys.stdin.encoding)
    except UnicodeDecodeError as error:
        raise InputError(f"stdin cannot be read: it is not {error.encoding.upper()} text.") from error
    except OSError as error:
        raise InputError(f"stdin cannot be read: {error.strerror}.") from error


def as_text(data: bytes, encoding: str) -> str:
    """Bytes of stdin as text whose lines end with \\n. Packed files and other encodings are refused."""
    from whence.data.encoding import HEAD, check_text

    if codecs.lookup(encoding).name == "utf-8":
        check_text(data[:HEAD], "stdin")
    return data.decode(encoding).removeprefix("\ufeff").replace("\r\n", "\n")


def json_line(data: Any) -> str:
    """Data as JSON: on a screen that cannot show every character all the same whole, in escapes."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return as_json(data, ascii=not encoding.lower().startswith("utf"))
