"""Rows of a Parquet file from any row on: groups before it are never read, and reading on costs nothing twice."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from whence.errors import InputError, WhenceError

BATCH = 1024  # rows that are turned into Python objects at once


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
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise InputError(f"{path.name} cannot be read as Parquet: {str(error).splitlines()[0]}") from error
    check_names(file.schema_arrow.names, path)
    return file


def check_names(names: Sequence[str], path: Path) -> None:
    """A record has one value per name. Columns without a name, which nobody can ask for, may be several."""
    twice = next((name for name, count in Counter(names).items() if name and count > 1), None)
    if twice is not None:
        raise InputError(f"{path.name} has several columns {twice!r}: rename all but one.")


class ParquetRows:
    """A file that remembers where it was read last."""

    def __init__(self, path: Path, columns: Sequence[str] | None = None) -> None:
        self._file = parquet_file(path)
        names = self._file.schema_arrow.names
        self._columns = None if columns is None else [c for c in names if c in columns]
        meta = self._file.metadata
        self._groups = list(accumulate((meta.row_group(i).num_rows for i in range(meta.num_row_groups)), initial=0))
        self._batches: Iterator[tuple[int, Any]] = iter(())  # (first row, RecordBatch), from the row read last
        self._last: tuple[int, Any] | None = None

    def rows(self, start: int) -> Iterator[dict[str, Any]]:
        """Row after row as dicts, from row `start`."""
        if start >= self._groups[-1]:
            return
        for first, batch in self._from(start):
            yield from batch.slice(max(start - first, 0)).to_pylist()

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
        for batch in self._file.iter_batches(BATCH, row_groups=groups, columns=self._columns):
            yield at, batch
            at += batch.num_rows
