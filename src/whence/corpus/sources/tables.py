"""Rows of CSV and TSV text, each with the line it begins at. A quote that is out of place costs its own line and no other."""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

QUOTED = re.compile(r'"((?:[^"]|"")*)"')  # a value of a .tsv in quotes, with those inside it doubled
MOST = 1 << 23  # bytes of a record that takes several lines, and so how far is looked for the quote that closes a value
UNCLOSED = (
    "a quote opens a value and none closes it before a comma or the end of a line; double the quotes inside a value"
)
MISPLACED = "a quote that closes a value is followed by neither a comma nor the end of the line; double the quotes inside a value"
TORN = "put a text that holds a carriage return into quotes"


class Row(NamedTuple):
    """One row, or the line that is none."""

    values: list[str]
    line: int  # the number of its first line, from 1
    at: int  # the byte at which it begins
    lines: int = 1
    reason: str = ""  # why it cannot be read, and what to do


class Lines:
    """The lines of a file as text, record by record: those of a record that turns out to be none are given again."""

    def __init__(self, raw: Iterable[bytes], line: int = 1, at: int = 0) -> None:
        self.line, self.at = line, at  # where the record that is read now begins
        self.stopped = False  # the record asked for another line and got none
        self._raw = iter(raw)
        self._record: list[bytes] = []
        self._length = 0  # bytes of these
        self._ahead: deque[bytes] = deque()  # lines that were looked at already
        self._size = 0  # bytes of these
        self._torn = False  # a value in quotes that reaches the last of them breaks there; all before it lie inside one
        self._granted = 0  # so many of them belong to this record

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = b""
        if not self._record or self._goes_on():
            if self._ahead:
                line = self._ahead.popleft()
                self._size -= len(line)
            else:
                line = next(self._raw, b"")
        if not line:
            self.stopped = True
            raise StopIteration
        self._record.append(line)
        self._length += len(line)
        text = decoded(line)
        return text.removeprefix("\ufeff") if self.at == 0 and self._length == len(line) else text

    @property
    def unclosed(self) -> bool:
        """Whether the first line of the record left a quote open."""
        return self.stopped or len(self._record) > 1

    def next_record(self, torn: bool = False) -> int:
        """How many lines the record takes that was read last: one, if it was torn."""
        record, self._record = self._record, []
        if torn and len(record) > 1:
            self._torn = not self.stopped
            self._ahead.extendleft(reversed(record[1:]))
            self._size += self._length - len(record[0])
            self._length, record = len(record[0]), record[:1]
        self._torn = self._torn and bool(self._ahead)
        self.line, self.at = self.line + len(record), self.at + self._length
        self._length, self._granted, self.stopped = 0, 0, False
        return len(record)

    def _goes_on(self) -> bool:
        """Whether the next line belongs to the record, which has a quote open."""
        if not self._ahead:
            return self._length <= MOST
        if not self._granted:
            self._granted = self._closing()
            if not self._granted:
                return False
        self._granted -= 1
        return True

    def _closing(self) -> int:
        """How many lines ahead the value ends whose quote is open; 0 if it does not end well. What is known of the lines ahead is
        kept: no file makes this look at a line again and again."""
        while not self._torn and self._length + self._size <= MOST:
            line = next(self._raw, b"")
            if not line:
                return 0
            self._ahead.append(line)
            self._size += len(line)
            rest = Lines([b'"' + line])
            try:
                next(csv.reader(rest, strict=True))
                return len(self._ahead)
            except csv.Error:
                self._torn = not rest.stopped
        return 0


def decoded(line: bytes) -> str:
    """Bytes that are not UTF-8 become lone surrogates, which encoding a text refuses with its position."""
    return line.decode("utf-8", "surrogateescape")


def comma_rows(lines: Lines) -> Iterator[Row]:
    """The rows of a CSV file, blank ones too."""
    csv.field_size_limit(1 << 30)
    rows = csv.reader(lines, strict=True)
    while True:
        line, at, values, reason = lines.line, lines.at, [], ""
        try:
            values = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            reason = reason_of(error, lines.unclosed)
        yield Row(values, line, at, lines.next_record(bool(reason)), reason)


def reason_of(error: csv.Error, unclosed: bool) -> str:
    """Why a record cannot be read, and what to do about it."""
    if unclosed:
        return UNCLOSED
    reason = str(error)
    return MISPLACED if "expected after" in reason else f"{reason.partition(' - ')[0]}; {TORN}"


def tab_rows(lines: Lines) -> Iterator[Row]:
    """The rows of a TSV file, blank ones too. Tabs part values and a line is a row: in the TSV files of this field (GLUE, SST)
    a quote is a letter like any other."""
    for text in lines:
        line, at, body = lines.line, lines.at, text.rstrip("\r\n")
        yield Row([unquoted(v) for v in body.split("\t")] if body else [], line, at, lines.next_record())


def unquoted(value: str) -> str:
    """A value that is wholly in quotes, as spreadsheets write it, without them; any other as it is.

    >>> unquoted('"a ""fine"" film"'), unquoted('"a fine film')
    ('a "fine" film', '"a fine film')
    """
    match = QUOTED.fullmatch(value)
    return value if match is None else match[1].replace('""', '"')
