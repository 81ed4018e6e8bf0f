"""Rows that cannot be read: each keeps its place with its error; they are counted, and named by file and line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from whence.errors import InputError

NAMED = 3  # rows that a sentence names; the others are counted


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be read, in its place."""

    row: int  # its number among all rows, from 0
    place: str  # file and line, or the row's number where there are no lines
    error: str  # why, in a sentence
    text: str | None = None  # its text, where it has one

    def __str__(self) -> str:
        return self.error if self.error.startswith(self.place) else f"{self.place}: {self.error}"

    def to_dict(self) -> dict[str, Any]:
        """What stands in its place in JSON. Half characters, which no file can hold, become question marks."""
        return {k: v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for k, v in asdict(self).items()}


def sentence(bad: Sequence[BadRow], total: int, count: int | None = None) -> str:
    """How many rows could not be read, and which. count: how many, where `bad` are the first of them.

    >>> sentence([BadRow(16, "reviews.csv:17", "the text is empty.")], 200)
    '1 of 200 rows could not be read: reviews.csv:17: the text is empty.'
    """
    count = len(bad) if count is None else count
    named = [str(row).rstrip(".") for row in bad[:NAMED]]
    more = [f"and {count - len(named):,} more"] if count > len(named) else []
    return f"{count:,} of {total:,} rows could not be read: {'; '.join([*named, *more])}."


def stop(row: BadRow) -> InputError:
    """The error of a strict command."""
    return InputError(
        f"{str(row).rstrip('.')}. This run is strict: without --strict (strict=True) such a row keeps its place with its error, "
        "and the others go on."
    )


def nothing_left(bad: Sequence[BadRow], total: int) -> InputError:
    """The error where every row is bad."""
    return InputError(f"none of the rows could be read. {sentence(bad, total)}")
