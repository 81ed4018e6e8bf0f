"""Parquet, CSV, TSV and JSONL files: streamed from the beginning, or any stretch of rows without reading what is before it.

Text files are read once to count their records and to note where every STEP-th begins; a Parquet file knows its own rows.
A record that cannot be read (a line that is not JSON) is an `InputError` in its place: it costs only itself.
"""

from __future__ import annotations

import csv
import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from glob import glob, has_magic
from itertools import accumulate, islice
from pathlib import Path
from typing import IO, Any

from whence.data.parquet import ParquetRows, parquet_file
from whence.errors import InputError

SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl")
STEP = 1024  # records between two places that are noted in a text file
SAMPLE = 1 << 16  # bytes of a file's beginning and end that tell it from another
MANIFEST = "_manifest.json"  # what a directory that `whence corpus` wrote holds beside its shards


def expand(given: str | Path) -> list[Path] | None:
    """The files that a path, a pattern or a directory names, in order; None if it names nothing here."""
    path = Path(given)
    if path.is_dir():
        found = sorted(f for f in path.rglob("*") if f.suffix.lower() in SUFFIXES and f.is_file() and is_shown(f, path))
        if not found:
            raise InputError(f"the directory {str(given)!r} holds no file that ends in {', '.join(SUFFIXES)}.")
        return found
    if has_magic(str(given)) and not path.exists():
        found = [f for f in sorted(Path(name) for name in glob(str(given), recursive=True)) if f.is_file()]
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


def stream(files: Iterable[Path]) -> Iterator[Any]:
    """Every record of every file, lazily; a record that cannot be read raises."""
    for path in files:
        rows = ParquetRows(path).rows(0) if is_parquet(path) else text_records(path)
        for record in rows:
            if isinstance(record, InputError):
                raise record
            yield record


def is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


# ---- text files ---------------------------------------------------------------------------------------------------


def text_records(path: Path, at: int = 0, number: int = 0) -> Iterator[Any]:
    """The records of a CSV, TSV or JSONL file from byte `at`, where record `number` begins."""
    with path.open("rb") as file:
        if path.suffix.lower() == ".jsonl":
            file.seek(at)
            yield from json_lines(file, path.name, number)
        else:
            names = next(csv_rows(lines(file), path), [])
            if at:
                file.seek(at)
            for values in csv_rows(lines(file), path):
                yield {
                    **dict.fromkeys(names),
                    **dict(zip(names, values, strict=False)),
                }  # short rows lack values: None


def lines(file: IO[bytes]) -> Iterator[str]:
    """Decoded lines. Bytes that are not UTF-8 become lone surrogates, which encoding a text refuses with its position."""
    while raw := file.readline():
        yield raw.decode("utf-8", "surrogateescape").removeprefix("\ufeff")


def csv_rows(text: Iterator[str], path: Path) -> Iterator[list[str]]:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    csv.field_size_limit(1 << 30)
    return (row for row in csv.reader(text, delimiter=delimiter) if row)


def json_lines(file: IO[bytes], name: str, number: int) -> Iterator[Any]:
    for line in lines(file):
        if line.strip():
            number += 1
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                yield InputError(f"{name}, record {number} is not JSON: {error.msg}.")


def marks_of(path: Path) -> tuple[list[int], int]:
    """Where every STEP-th record of a text file begins, and how many records there are."""
    marks, count = [], 0
    with path.open("rb") as file:
        if path.suffix.lower() == ".jsonl":
            at = 0
            for raw in file:
                if raw.strip():
                    if count % STEP == 0:
                        marks.append(at)
                    count += 1
                at += len(raw)
        else:
            rows = csv_rows(lines(file), path)
            next(rows, None)
            at = file.tell()
            for _ in rows:
                if count % STEP == 0:
                    marks.append(at)
                count += 1
                at = file.tell()
    return marks, count


# ---- files as one long table --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One file of the data."""

    path: Path
    rows: int
    marks: tuple[int, ...] = ()  # byte offsets of records 0, STEP, 2·STEP, … of a text file


@dataclass
class Files:
    """Files in order as one table whose rows are numbered through. Travels to other processes; reads in one thread."""

    parts: tuple[Part, ...]
    columns: tuple[str, ...] | None = None  # read only these, where the format can
    _starts: tuple[int, ...] = ()
    _open: dict[Path, ParquetRows] = field(default_factory=dict)

    @classmethod
    def of(cls, paths: Sequence[Path]) -> Files:
        parts = []
        for path in (p.absolute() for p in paths):  # workers stand elsewhere
            if is_parquet(path):
                parts.append(Part(path, int(parquet_file(path).metadata.num_rows)))
            else:
                marks, rows = marks_of(path)
                parts.append(Part(path, rows, tuple(marks)))
        return cls(tuple(parts))

    def __post_init__(self) -> None:
        self._starts = tuple(accumulate((p.rows for p in self.parts), initial=0))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}

    def __len__(self) -> int:
        return self._starts[-1]

    def read(self, start: int, stop: int) -> list[Any]:
        """Records [start, stop)."""
        found: list[Any] = []
        while start < stop:
            number = bisect_right(self._starts, start) - 1
            end = min(stop, self._starts[number + 1])
            found += self._read(self.parts[number], start - self._starts[number], end - start)
            start = end
        return found

    def _read(self, part: Part, start: int, count: int) -> list[Any]:
        if is_parquet(part.path):
            if part.path not in self._open:
                self._open = {part.path: ParquetRows(part.path, self.columns)}  # one file is open at a time
            rows: Iterator[Any] = self._open[part.path].rows(start)
        else:
            mark = start // STEP
            rows = islice(text_records(part.path, part.marks[mark], mark * STEP), start - mark * STEP, None)
        return list(islice(rows, count))

    def identity(self) -> str:
        """Enough of a hash to know the same data again without reading them whole: names, sizes, both ends of each file."""
        found = hashlib.sha256()
        for part in self.parts:
            size = part.path.stat().st_size
            found.update(f"{part.path.name} {size} {part.rows}\n".encode("utf-8", "surrogateescape"))
            with part.path.open("rb") as file:
                found.update(file.read(SAMPLE))
                file.seek(max(size - SAMPLE, 0))
                found.update(file.read(SAMPLE))
        return found.hexdigest()[:16]
