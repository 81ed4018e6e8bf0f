"""Parquet, CSV, TSV and JSONL files: streamed from the beginning, or any stretch of rows without reading what is before it.

Files are read once for a hash of them; text files also to count their records and to note where every STEP-th begins.
A record that cannot be read (a line that is not JSON) is an `InputError` in its place: it costs only itself.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from glob import glob, has_magic
from itertools import accumulate, islice, takewhile
from pathlib import Path
from typing import IO, Any, NamedTuple

from whence.corpus.sources.checksums import check_if_shard
from whence.corpus.sources.encoding import HEAD, check_text
from whence.corpus.sources.parquet import ParquetRows, check_names, parquet_file
from whence.corpus.sources.steady import State, read_steadily, settled, state_of
from whence.corpus.sources.tables import TORN, Lines, Row, comma_rows, decoded, tab_rows
from whence.errors import InputError

SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl")
STEP = 1024  # records between two places that are noted in a text file
MANIFEST = "_manifest.json"  # what a directory that `whence corpus` wrote holds beside its shards
NO_NAME = "an empty name names no data: give a file, a pattern, a directory or the name of a Hugging Face dataset."


def expand(given: str | Path) -> list[Path] | None:
    """The files that a path, a pattern or a directory names, in order; None if it names nothing here."""
    if given == "":
        raise InputError(NO_NAME)
    path = Path(given)
    if path.is_dir():
        found = sorted(
            f
            for f in path.rglob("*")
            if f.suffix.lower() in SUFFIXES and f.is_file() and is_shown(f, path) and not is_output(f, path)
        )
        if not found:
            raise InputError(
                f"the directory {str(given)!r} holds no file that ends in {', '.join(SUFFIXES)} (what `whence corpus` wrote "
                "into a directory below it does not count)."
            )
        return found
    if has_magic(str(given)) and not path.exists():
        root = Path(*takewhile(lambda part: not has_magic(part), path.parts))
        found = sorted(f for f in map(Path, glob(str(given), recursive=True)) if f.is_file() and not is_output(f, root))
        if not found:
            raise InputError(f"no file fits the pattern {str(given)!r}.")
    elif path.suffix.lower() in SUFFIXES or path.exists() or path.is_absolute() or isinstance(given, Path):
        found = [path]
    else:
        return None
    for file in found:
        if not file.is_file():
            raise InputError(f"there is no file {str(file)!r}.")
        if file.suffix.lower() not in SUFFIXES:
            raise InputError(f"{file.name!r}: give a file that ends in {', '.join(SUFFIXES)}.")
    return found


def is_shown(file: Path, root: Path) -> bool:
    """Names that begin with a dot or an underscore are nobody's data."""
    return not any(part.startswith((".", "_")) for part in file.relative_to(root).parts)


def is_output(file: Path, root: Path) -> bool:
    """Does a run's directory below `root` hold it? A run that writes beside its data does not read itself."""
    below = file.relative_to(root).parents
    return any((root / folder / MANIFEST).is_file() for folder in below if folder.parts)


def stream(files: Iterable[Path]) -> Iterator[Any]:
    """Every record of every file, lazily; a record that cannot be read raises."""
    for _, record in placed(list(files)):
        if isinstance(record, InputError):
            raise record
        yield record


def placed(files: Sequence[Path]) -> Iterator[tuple[str, Any]]:
    """Every record of every file, lazily, each with its file and line; an InputError stands in the place of one that cannot be
    read."""
    for path in files:
        check_if_shard(path, MANIFEST)
        name = name_among(path, files)
        if is_parquet(path):
            yield from ((place(name, None, i), record) for i, record in enumerate(ParquetRows(path).rows(0)))
        else:
            yield from ((place(name, line, 0), record) for line, record in text_rows(path))


def name_among(path: Path, files: Iterable[Path]) -> str:
    """A file's name; its path where several files have that name."""
    return path.name if sum(other.name == path.name for other in files) == 1 else str(path)


def place(name: str, line: int | None, number: int) -> str:
    """Where a record stands: Parquet has no lines.

    >>> place("a.csv", 17, 15), place("a.parquet", None, 15)
    ('a.csv:17', 'a.parquet, record 16')
    """
    return f"{name}, record {number + 1}" if line is None else f"{name}:{line}"


def is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def is_jsonl(path: Path) -> bool:
    return path.suffix.lower() == ".jsonl"


def is_tsv(path: Path) -> bool:
    return path.suffix.lower() == ".tsv"


# ---- text files ---------------------------------------------------------------------------------------------------


class Mark(NamedTuple):
    """Where a record of a text file begins."""

    at: int  # byte
    line: int  # from 1


def text_records(path: Path, mark: Mark | None = None, number: int = 0) -> Iterator[Any]:
    """The records of a CSV, TSV or JSONL file from a mark, where record `number` begins; an InputError stands in the place of one
    that cannot be read."""
    return (record for _, record in text_rows(path, mark, number))


def text_rows(path: Path, mark: Mark | None = None, number: int = 0) -> Iterator[tuple[int, Any]]:
    """The same, each with the number of its line."""
    with opened(path) as file:
        if is_jsonl(path):
            file.seek(mark.at if mark else 0)
            for i, (start, line) in enumerate(filled(file, mark), number + 1):
                yield start.line, json_record(line, path, start.line, i)
            return
        rows = rows_of(Lines(file), path)
        names = header_of(rows, path)
        if mark is not None:
            file.seek(mark.at)
            rows = rows_of(Lines(file, mark.line, mark.at), path)
        for i, row in enumerate(rows, number + 1):
            yield row.line, table_record(row, names, path, i)


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """A text file, at its beginning; what is none is refused."""
    with path.open("rb") as file:
        check_text(file.read(HEAD), path.name)
        file.seek(0)
        yield file


def filled(raw: Iterable[bytes], mark: Mark | None = None) -> Iterator[tuple[Mark, bytes]]:
    """The lines of a JSONL file that hold a record, and where they begin."""
    at, first = mark or (0, 1)
    for number, line in enumerate(raw, first):
        if line.strip():
            yield Mark(at, number), line
        at += len(line)


def json_record(line: bytes, path: Path, number: int, record: int) -> Any:
    text = decoded(line)
    try:
        return json.loads(text.removeprefix("\ufeff") if number == 1 else text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
        reason = getattr(error, "msg", None) or str(error).partition(";")[0]
        return InputError(f"{path.name}:{number}, record {record} is not JSON: {reason}.")


def rows_of(lines: Lines, path: Path) -> Iterator[Row]:
    """The rows of a CSV or TSV file that are not blank, the header first."""
    rows = tab_rows(lines) if is_tsv(path) else comma_rows(lines)
    return (row for row in rows if row.values or row.reason)


def header_of(rows: Iterator[Row], path: Path) -> list[str]:
    """The names in a table's first row, each given once."""
    header = next(rows, Row([], 1, 0))
    if TORN in header.reason or any("\r" in name for name in header.values):
        raise InputError(
            f"the header of {path.name} cannot be read: lines end in carriage returns alone; save the file with line feeds."
        )
    if header.reason:
        raise InputError(f"the header of {path.name} cannot be read: {header.reason}.")
    check_names(header.values, path)
    return header.values


def table_record(row: Row, names: Sequence[str], path: Path, number: int) -> dict[str, str | None] | InputError:
    """A row under the header's names; None where a short row lacks values. What would be cut off, or was torn apart, is refused."""
    where, values = f"{path.name}:{row.line}, record {number}", row.values
    if row.reason:
        return InputError(f"{where} cannot be read: {row.reason}.")
    more, less = any(values[len(names) :]), len(values) < len(names)
    if more or (less and is_tsv(path) and any('"' in v for v in values)):
        fix = (
            "in a .tsv tabs and line ends part values also inside quotes: give such texts as .csv or .jsonl"
            if is_tsv(path)
            else "put a text that holds a comma into quotes"
        )
        reach = f" on {row.lines} lines" if row.lines > 1 else ""
        return InputError(
            f"{where}: the header names {len(names)} columns and this record has {len(values)}{reach}; {fix}."
        )
    return {**dict.fromkeys(names), **dict(zip(names, values, strict=False))}


@dataclass
class Hashed:
    """The lines of a file, with a hash of what was read of it."""

    file: IO[bytes]
    hash: Any = field(default_factory=hashlib.sha256)

    def __iter__(self) -> Iterator[bytes]:
        for line in self.file:
            self.hash.update(line)
            yield line


def survey(path: Path) -> Part:
    """A file read once from end to end: how many records it has, where every STEP-th of a text file begins, and its hash."""
    if is_parquet(path):
        check_if_shard(path, MANIFEST)
        rows = int(parquet_file(path).metadata.num_rows)
        with path.open("rb") as file:
            return Part(path, rows, hashlib.file_digest(file, "sha256").hexdigest())
    with opened(path) as file:
        read, marks, count = Hashed(file), [], 0
        for mark in starts(read, path):
            if count % STEP == 0:
                marks.append(mark)
            count += 1
        return Part(path, count, read.hash.hexdigest(), tuple(marks))


def part_of(path: Path) -> Part:
    """A file as it is now, to be known again."""
    state = settled(path)
    part = replace(survey(path), state=state)
    if state_of(path) != state:
        raise InputError(f"the input file {str(path)!r} is being written: wait until it is whole.")
    return part


def starts(raw: Iterable[bytes], path: Path) -> Iterator[Mark]:
    """Where each record of a text file begins."""
    if is_jsonl(path):
        yield from (mark for mark, _ in filled(raw))
        return
    rows = rows_of(Lines(raw), path)
    header_of(rows, path)
    for row in rows:
        yield Mark(row.at, row.line)


# ---- files as one long table --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One file of the data."""

    path: Path
    rows: int
    digest: str  # of all its bytes
    marks: tuple[Mark, ...] = ()  # of records 0, STEP, 2·STEP, … of a text file
    state: State | None = None  # when it was hashed


@dataclass
class Files:
    """Files in order as one table whose rows are numbered through. Travels to other processes; reads in one thread."""

    parts: tuple[Part, ...]
    columns: tuple[str, ...] | None = None  # read only these, where the format can
    _starts: tuple[int, ...] = ()
    _open: dict[tuple[Path, tuple[str, ...] | None], ParquetRows] = field(default_factory=dict)
    # of files that were seen to hold what they held at the beginning
    _states: dict[Path, State] = field(default_factory=dict)

    @classmethod
    def of(cls, paths: Sequence[Path]) -> Files:
        return cls(tuple(part_of(path.absolute()) for path in paths))  # workers stand elsewhere

    def __post_init__(self) -> None:
        self._starts = tuple(accumulate((p.rows for p in self.parts), initial=0))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}, "_states": {}}

    def __len__(self) -> int:
        return self._starts[-1]

    def read(self, start: int, stop: int) -> list[Any]:
        """Records [start, stop), of files that hold what they held at the beginning."""
        found: list[Any] = []
        while start < stop:
            number = bisect_right(self._starts, start) - 1
            end = min(stop, self._starts[number + 1])
            part, first = self.parts[number], start - self._starts[number]
            read = partial(self._read, part, first, end - start)
            found += read_steadily(part, self._states, read, self._close)
            start = end
        return found

    def _close(self) -> None:
        self._open = {}

    def _read(self, part: Part, start: int, count: int) -> list[Any]:
        if is_parquet(part.path):
            key = part.path, self.columns  # a value that cannot be read spoils no row where its column is not asked for
            if key not in self._open:
                self._open = {key: ParquetRows(part.path, self.columns)}  # one file is open at a time
            rows: Iterator[Any] = self._open[key].rows(start)
        else:
            mark = start // STEP
            rows = islice(text_records(part.path, part.marks[mark], mark * STEP), start - mark * STEP, None)
        return list(islice(rows, count))

    def place(self, row: int) -> str:
        """The file and line of a row."""
        number = bisect_right(self._starts, row) - 1
        part, record = self.parts[number], row - self._starts[number]
        name = name_among(part.path, (p.path for p in self.parts))
        if is_parquet(part.path):
            return place(name, None, record)
        mark = record // STEP
        rows = islice(text_rows(part.path, part.marks[mark], mark * STEP), record - mark * STEP, None)
        return place(name, next(rows)[0], record)

    def identity(self) -> str:
        """A hash that knows the same data again: names, rows, and every byte of the files."""
        found = hashlib.sha256()
        for part in self.parts:
            found.update(f"{part.path.name} {part.rows} {part.digest}\n".encode("utf-8", "surrogateescape"))
        return found.hexdigest()[:16]
