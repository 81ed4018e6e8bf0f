"""Rows of a Parquet file from any row on: groups before it are never read, and reading on costs nothing twice."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from whence.errors import InputError, WhenceError

BATCH = 1024  # rows that are turned into Python objects at once
UNFIT = (
    ValueError,
    ArithmeticError,
    LookupError,
    TypeError,
    NotImplementedError,
)  # a value that Python has no object for


def parquet_file(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet as parquet  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise WhenceError(
            f"{path.name} is a Parquet file: pip install pyarrow, or give the data as CSV or JSONL."
        ) from None
    try:
        file = parquet.ParquetFile(path)
        check_names(file.schema_arrow.names, path)
        for field in file.schema_arrow:
            check_fields(field.type, field.name, path)
    except (pyarrow.ArrowException, OSError, ArithmeticError) as error:
        raise unreadable(path, error) from error
    return file


def unreadable(path: Path, error: Exception) -> InputError:
    return InputError(f"{path.name} cannot be read as Parquet: {first_line(error)}")


def first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def check_names(names: Sequence[str], path: Path) -> None:
    """A record has one value per name. Columns without a name, which nobody can ask for, may be several."""
    twice = repeated(name for name in names if name)
    if twice is not None:
        raise InputError(f"{path.name} has several columns {twice!r}: rename all but one.")


def check_fields(kind: Any, where: str, path: Path) -> None:
    """So has a record within a record, at any depth."""
    from pyarrow.types import is_struct

    inner = [kind.field(i) for i in range(kind.num_fields)]
    twice = repeated(field.name for field in inner) if is_struct(kind) else None
    if twice is not None:
        raise InputError(
            f"{path.name} has several fields {twice!r} within the column {where!r}: rename all but one, or leave the column out."
        )
    for field in inner:
        check_fields(field.type, f"{where}.{field.name}" if is_struct(kind) else where, path)


def repeated(names: Iterable[str]) -> str | None:
    """The first name that occurs twice."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


class ParquetRows:
    """A file that remembers where it was read last."""

    def __init__(self, path: Path, columns: Sequence[str] | None = None) -> None:
        self._path, self._file = path, parquet_file(path)
        names = self._file.schema_arrow.names
        self._columns = None if columns is None else [c for c in names if c in columns]
        meta = self._file.metadata
        self._groups = list(accumulate((meta.row_group(i).num_rows for i in range(meta.num_row_groups)), initial=0))
        self._batches: Iterator[tuple[int, Any]] = iter(())  # (first row, RecordBatch), from the row read last
        self._last: tuple[int, Any] | None = None

    def rows(self, start: int) -> Iterator[dict[str, Any] | InputError]:
        """Row after row as dicts, from row `start`; an InputError stands in the place of one that cannot be read."""
        if start >= self._groups[-1]:
            return
        for first, batch in self._from(start):
            skipped = max(start - first, 0)
            yield from self._records(batch.slice(skipped), first + skipped)

    def _records(self, batch: Any, first: int) -> list[dict[str, Any] | InputError]:
        try:
            records: list[dict[str, Any] | InputError] = batch.to_pylist()
        except UNFIT as error:
            if len(batch) > 1:
                return [record for i in range(len(batch)) for record in self._records(batch.slice(i, 1), first + i)]
            return [
                InputError(
                    f"{self._path.name}, record {first + 1} cannot be read: {first_line(error)}; mend the value, or leave its "
                    "column out."
                )
            ]
        return records

    def _from(self, start: int) -> Iterator[tuple[int, Any]]:
        """Batches from the one with row `start`: on from where reading stopped, unless that was later or in another group."""
        group = bisect_right(self._groups, start) - 1
        if self._last is None or not self._groups[group] <= self._last[0] <= start:
            self._batches = self._read(group)
            self._last = next(self._batches)
        while self._last is not None:
            first, batch = self._last
            if first + batch.num_rows > start:
                yield self._last
            self._last = next(self._batches, None)

    def _read(self, group: int) -> Iterator[tuple[int, Any]]:
        at = self._groups[group]
        groups = list(range(group, len(self._groups) - 1))
        batches = self._file.iter_batches(BATCH, row_groups=groups, columns=self._columns)
        while True:
            try:
                batch = next(batches, None)
            except (*UNFIT, OSError) as error:  # pages that are cut off or broken
                raise unreadable(self._path, error) from error
            if batch is None:
                return
            yield at, batch
            at += batch.num_rows
