"""One rule for rows that cannot be read, in every command: they keep their places, are counted and named, and `--strict` stops."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from whence.corpus.bad_rows import BadRow, nothing_left, sentence, stop
from whence.errors import BadRows, InputError

ROWS_IN_ERROR = 3  # exit status of a command that went on past rows that could not be read
Strict = Annotated[
    bool, typer.Option("--strict", help="Stop at the first row that cannot be read (blank, broken, too long).")
]


def say(bad: Sequence[BadRow], total: int, strict: bool = False, count: int | None = None) -> None:
    """Which rows could not be read; strict: the first of them is an error. count: how many, where `bad` are the first of them."""
    if strict and bad:
        raise stop(bad[0])
    if bad:
        warnings.warn(sentence(bad, total, count), BadRows, stacklevel=2)


def finish(bad: Sequence[BadRow]) -> None:
    """The exit status tells whether rows could not be read."""
    if bad:
        raise typer.Exit(ROWS_IN_ERROR)


def explain_rows(
    rows: Sequence[tuple[str, Any]],
    unreadable: Callable[[list[Any]], dict[int, str]],
    explain: Callable[[list[Any]], list[Any]],
    strict: bool = False,
) -> list[Any]:
    """What `explain` answers for each row, a BadRow in the place of each that cannot be read.

    rows: each with its place; an InputError where there is no text. unreadable: which inputs the model cannot read, and why."""
    errors = {i: str(item) for i, (_, item) in enumerate(rows) if isinstance(item, InputError)}
    whole = [i for i in range(len(rows)) if i not in errors]
    errors |= {whole[k]: reason for k, reason in unreadable([rows[i][1] for i in whole]).items()}

    def bad() -> list[BadRow]:
        return [as_bad(i, *rows[i], errors[i]) for i in sorted(errors)]

    if strict and errors:
        raise stop(bad()[0])
    good = [i for i in range(len(rows)) if i not in errors]
    if not good:
        raise nothing_left(bad(), len(rows))
    try:
        answers: dict[int, Any] = dict(zip(good, explain([rows[i][1] for i in good]), strict=True))
    except InputError as error:
        answers, reasons = one_by_one(explain, {i: rows[i][1] for i in good})
        if not answers:
            raise error from None
        errors |= reasons
        if strict:
            raise stop(bad()[0]) from None
    return [answers[i] if i in answers else as_bad(i, *row, errors[i]) for i, row in enumerate(rows)]


def one_by_one(
    explain: Callable[[list[Any]], list[Any]], inputs: dict[int, Any]
) -> tuple[dict[int, Any], dict[int, str]]:
    """Rows of which one or more do not fit what is asked: the answers, and the errors of the others."""
    answers, errors = {}, {}
    for i, item in inputs.items():
        try:
            (answers[i],) = explain([item])
        except InputError as error:
            errors[i] = str(error)
    return answers, errors


def as_bad(row: int, place: str, item: Any, error: str) -> BadRow:
    text = item[0] if isinstance(item, tuple) else item
    return BadRow(row, place, error, text if isinstance(text, str) else None)
