"""What a command reads from stdin and writes to stdout, whatever these are: closed, full, of another encoding, or read by nobody."""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
from contextlib import suppress
from typing import Any

from whence.errors import InputError
from whence.render.characters import as_json

LONE = re.compile("[\udc80-\udcff]")  # what stands for a byte that could not be decoded


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


def from_stdin(by_line: bool = False) -> str:
    """All of stdin. by_line: single lines in another encoding are no reason to refuse all; see `decode`."""
    if sys.stdin is None:
        raise InputError("stdin is closed: give the text itself in place of '-'.")
    try:
        if not isinstance(sys.stdin, io.TextIOWrapper):
            return sys.stdin.read()
        return decode(sys.stdin.buffer.read(), "stdin", sys.stdin.encoding, by_line)
    except UnicodeDecodeError as error:
        raise InputError(f"stdin cannot be read: it is not {error.encoding.upper()} text.") from error
    except OSError as error:
        raise InputError(f"stdin cannot be read: {error.strerror}.") from error


def decode(data: bytes, name: str, encoding: str = "utf-8", by_line: bool = False) -> str:
    """Bytes as text whose lines end with \\n. Packed files and other encodings are refused. by_line: in lines that cannot be decoded
    lone surrogates stand for their bytes; if there is no other line the error is raised."""
    from whence.corpus.sources.encoding import HEAD, check_text

    if codecs.lookup(encoding).name == "utf-8":
        check_text(data[:HEAD], name)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        if not by_line or not any(is_text(line, encoding) for line in data.split(b"\n") if line.strip()):
            raise
        text = data.decode(encoding, "surrogateescape")
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def is_text(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def lines_of(text: str, name: str) -> list[tuple[str, str | InputError]]:
    """Every line with its place, the blank ones too, so that what becomes of them lines up with the lines."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [
        (f"{name}:{number}", checked(line.removesuffix("\r"), f"{name}:{number}"))
        for number, line in enumerate(lines, 1)
    ]


def checked(line: str, place: str) -> str | InputError:
    return InputError(f"{place} is not UTF-8 text.") if LONE.search(line) else line


def json_line(data: Any) -> str:
    """Data as JSON: on a screen that cannot show every character all the same whole, in escapes."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return as_json(data, ascii=not encoding.lower().startswith("utf"))
