"""Data to evaluate on: a file, a `datasets` name or object, or a list, as inputs with what is known about them."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whence.corpus.bad_rows import BadRow, nothing_left, sentence, stop
from whence.corpus.sources import (
    expand,
    from_hub,
    guess,
    input_of,
    is_run,
    placed,
    readable,
    rows_of_table,
    run_rows,
    typical,
)
from whence.errors import BadRows, InputError, Truncated, UnknownName
from whence.explainer import Explainer
from whence.inputs.numbers import short
from whence.tasks import Question

ROLES = ("text", "pair", "question", "context", "label", "rationales", "answer", "start")


@dataclass(frozen=True)
class Example:
    """One input and what the data say about it."""

    input: Any  # a text, a (text, text) pair, or {"question": …, "context": …}
    label: Any = None  # a class's name or number
    rationales: Any = None  # [[first word, last word + 1], …], or one mark per word
    answer: tuple[int, int] | None = None  # characters [start, end) of the context
    place: str = ""  # file and line
    error: str | None = None  # why this row cannot be read; then nothing else is said of it


@dataclass(frozen=True)
class Sample:
    """Rows of data: those that a model can read, and the others in their places."""

    examples: list[Example]
    rows: list[int]  # their numbers among all rows
    bad: tuple[BadRow, ...] = ()

    @property
    def total(self) -> int:
        return len(self.examples) + len(self.bad)


def sample_of(explainer: Explainer, data: Any, *, strict: bool = False, **how: Any) -> Sample:
    """The rows of data as `read` reads them, and as a model does. A row that cannot be read (blank, broken, too long) keeps its
    place with its error, and a warning counts and names them; strict: the first such row is an error."""
    return checked(explainer, read(data, strict=False, **how), strict)


def checked(explainer: Explainer, examples: Sequence[Example], strict: bool = False) -> Sample:
    """Which of these rows the model can read."""
    broken = {i: e.error for i, e in enumerate(examples) if e.error is not None}
    whole = [i for i in range(len(examples)) if i not in broken]
    reasons = unreadable(explainer, [examples[i].input for i in whole])
    broken |= {whole[k]: reason for k, reason in reasons.items()}
    bad = tuple(bad_row(i, examples[i], broken[i]) for i in sorted(broken))
    if strict and bad:
        raise stop(bad[0])
    if len(bad) == len(examples):
        raise nothing_left(bad, len(examples))
    if bad:
        warnings.warn(sentence(bad, len(examples)), BadRows, stacklevel=4)
    rows = [i for i in range(len(examples)) if i not in broken]
    return Sample([examples[i] for i in rows], rows, bad)


def bad_row(row: int, example: Example, error: str) -> BadRow:
    return BadRow(row, example.place or f"row {row}", error, example.input if isinstance(example.input, str) else None)


def unreadable(
    explainer: Explainer, inputs: Sequence[Any], question: Question | None = None, on_long: str = "truncate"
) -> dict[int, str]:
    """Which inputs the model cannot read, and why."""
    question = question or explainer.ask()
    reasons: dict[int, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Truncated)
        try:
            explainer.session.task.encode(inputs, [question] * len(inputs), on_long)
            return reasons
        except InputError:
            pass
        for i, item in enumerate(inputs):
            try:
                explainer.encode(item, question, on_long)
            except InputError as error:
                reasons[i] = str(error)
    return reasons


def read(
    data: Any,
    *,
    columns: Mapping[str, str] | None = None,
    limit: int | None = None,
    split: str | None = None,
    seed: int = 0,
    shuffle: bool = False,
    strict: bool = True,
) -> list[Example]:
    """Examples from Parquet, CSV, TSV or JSONL files (a path, a pattern, a directory), what `whence corpus` wrote, a `datasets`
    name or object, a table of pandas, polars or Arrow, or a list of texts, pairs or dicts.

    columns: role → column, where a column goes by a name that is not known: {"text": "body", "label": "stars"}.
    limit: the first so many, or so many drawn at random (by `seed`) if `shuffle`.
    strict: the first row that cannot be read is an error; else an Example with that error stands in its place.
    """
    for role in columns or {}:
        if role not in ROLES:
            raise UnknownName("role of a column", role, ROLES)
    if limit is not None and limit < 1:
        raise InputError(f"limit={limit}: give 1 or more, or None for all.")
    records = []
    for place, record in readable(placed_of(data, split, None if shuffle else limit)):
        if strict and isinstance(record, InputError):
            raise record
        records.append((place, record))
    if not records:
        raise InputError("the data hold no rows; give at least one text.")
    if shuffle:
        chosen = np.random.default_rng(seed).permutation(len(records))[:limit]
        records = [records[i] for i in sorted(chosen.tolist())]
    return examples_of(records, columns or {}, strict)


def examples_of(records: Sequence[tuple[str, Any]], columns: Mapping[str, str], strict: bool = False) -> list[Example]:
    """Records, each with its place, as examples; where one cannot be read, an Example with the error stands in its place."""
    whole = [record for _, record in records if not isinstance(record, InputError)]
    tables = sum(isinstance(record, Mapping) for record in whole)
    if 2 * tables < len(whole) or not tables:
        return [as_example(place, record, item_example) for place, record in records]
    head = typical(whole, columns)
    assert head is not None
    roles = {**guess(list(head)), **columns}
    missing = sorted(set(roles.values()) - set(head))
    if missing:
        raise InputError(f"there is no column {missing[0]!r}; the data have: {', '.join(map(str, head))}.")
    if not {"text", "question"} & set(roles) and "input_ids" not in head:
        input_of(head, roles)  # says that there is none with a text
    return [
        as_example(place, record, lambda one: example(filled(one, roles), roles), strict) for place, record in records
    ]


def as_example(place: str, record: Any, make: Callable[[Any], Example], strict: bool = False) -> Example:
    try:
        if isinstance(record, InputError):
            raise record
        return replace(make(record), place=place)
    except InputError as error:
        if strict:
            raise
        return Example(None, place=place, error=str(error))


def item_example(record: Any) -> Example:
    """A text or a pair, which JSON writes as a list."""
    return Example(tuple(record) if isinstance(record, list) else record)


def filled(record: Any, roles: Mapping[str, str]) -> dict[str, Any]:
    """A record with None where it lacks a column that the others have."""
    if not isinstance(record, Mapping):
        raise InputError(f"it is no record with columns, as the other rows are: got {short(record)}.")
    return {**dict.fromkeys(roles.values()), **record}


def placed_of(data: Any, split: str | None, limit: int | None) -> Iterator[tuple[str, Any]]:
    """Raw records, each with its place; an InputError stands where one cannot be read."""
    if isinstance(data, (str, Path)):
        if is_run(data):
            path = Path(data)
            return islice(((f"{path.name}, row {row}", record) for row, record in run_rows(path)), limit)
        files = expand(data)
        if files is not None:
            return islice(placed(files), limit)
    return ((f"row {row}", record) for row, record in enumerate(records_of(data, split, limit)))


def records_of(data: Any, split: str | None, limit: int | None) -> Iterator[Any]:
    """Raw records of what is no file, lazily where that is possible."""
    if isinstance(data, (str, Path)):
        return islice(iter(from_hub(str(data), split)), limit)
    if isinstance(data, Mapping) and not isinstance(data, Sequence):
        raise InputError("the data have several splits: give one of them, e.g. data['test'].")
    rows = rows_of_table(data)
    if rows is not None:
        return islice(iter(rows), limit)
    if not hasattr(data, "__iter__"):
        raise InputError(f"data must be a file, a `datasets` name or object, or a list, got {type(data).__name__}.")
    return islice(iter(data), limit)


def example(record: Mapping[str, Any], roles: Mapping[str, str]) -> Example:
    value = {role: record[column] for role, column in roles.items()}
    return Example(input_of(record, roles), value.get("label"), value.get("rationales"), answer_of(value))


def answer_of(value: Mapping[str, Any]) -> tuple[int, int] | None:
    """Where the answer stands in the context: SQuAD's lists, or a text and a start. An empty one is no answer."""
    text: Any = value.get("answer")
    start: Any = value.get("start")
    if isinstance(text, Mapping):
        text, start = text.get("text"), text.get("answer_start")
    text, start = first_of(text), first_of(start)
    first = -1 if start is None or start == "" else whole(start, "the start of an answer")
    return (first, first + len(str(text))) if text and first >= 0 else None


def first_of(value: Any) -> Any:
    """The first of several answers, as SQuAD lists them; None where the list is empty.

    >>> first_of(["Rome", "in Rome"]), first_of([]), first_of("Rome")
    ('Rome', None, 'Rome')
    """
    if isinstance(value, (list, tuple, np.ndarray)):
        return value[0] if len(value) else None
    return value


def whole(value: Any, what: str) -> int:
    """
    >>> whole("3", "a label"), whole(3.0, "a label")
    (3, 3)
    """
    try:
        number = int(value)
        exact = isinstance(value, str) or number == value
    except (TypeError, ValueError, OverflowError):
        exact = False
    if not exact:
        raise InputError(f"{what} in the data must be a whole number, got {short(value)}.")
    return number


def class_of(label: Any, labels: Sequence[str]) -> int | None:
    """A class's number from its name or number; None where the data have none (missing, NaN, or negative as in SNLI)."""
    if label is None or label == "" or label != label:
        return None
    if isinstance(label, str):
        folded = [name.casefold() for name in labels]
        if label.casefold() in folded:
            return folded.index(label.casefold())
        if not label.lstrip("-").isdecimal():
            raise UnknownName("label", label, labels)
    number = whole(label, "a label")
    if number >= len(labels):
        raise InputError(f"label {number} in the data, but the model has {len(labels)} labels: {', '.join(labels)}.")
    return number if number >= 0 else None


def marked_tokens(
    rationales: Any, text: str, offsets: Sequence[tuple[int, int]], segments: Sequence[int | None]
) -> NDArray[np.bool_] | None:
    """(n,) the tokens of marked words; None if none is. Words are what white space parts."""
    words = text.split()
    marked_words = marked_of(rationales, len(words))
    spans, at = [], 0
    for number, word in enumerate(words):
        at = text.index(word, at)
        if number in marked_words:
            spans.append((at, at + len(word)))
        at += len(word)
    marked = np.array(
        [
            s == 0 and any(a < end and start < b for start, end in spans)
            for (a, b), s in zip(offsets, segments, strict=True)
        ]
    )
    return marked if marked.any() else None


def marked_of(rationales: Any, count: int) -> set[int]:
    """Which of `count` words people marked, from spans [[first, last + 1], …] or one mark per word.

    >>> sorted(marked_of([[1, 3], [6, 99]], 8)), marked_of([0, 1, 0], 3)
    ([1, 2, 6, 7], {1})
    """
    entries = [] if rationales is None else rationales.tolist() if hasattr(rationales, "tolist") else rationales
    spans = isinstance(entries, (list, tuple)) and bool(entries) and isinstance(entries[0], (list, tuple))
    try:
        if not spans:
            return {w for w, mark in enumerate(entries) if mark}
        return {w for a, b in entries for w in range(max(int(a), 0), min(int(b), count))}
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"rationales are spans of words, [[first, last + 1], …], or one mark per word; got {short(rationales)}."
        ) from None


def answer_tokens(
    answer: tuple[int, int], offsets: Sequence[tuple[int, int]], segments: Sequence[int | None]
) -> tuple[int, ...] | None:
    """Positions of the tokens of the context that the answer touches; None if it was cut away."""
    found = tuple(
        i
        for i, ((a, b), s) in enumerate(zip(offsets, segments, strict=True))
        if s == 1 and a < answer[1] and answer[0] < b
    )
    return found or None


def digest(examples: Sequence[Example], bad: Sequence[BadRow] = ()) -> str:
    """Enough of a hash to know the same data again."""
    rows: list[Any] = [[e.input, e.label, e.rationales, e.answer] for e in examples]
    text = json.dumps([*rows, *([row.row, row.error] for row in bad)], ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
