"""What a corpus run reads from: rows by number, from files or from anything that has a length and can be cut."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from whence.corpus.sources.files import Files, expand
from whence.errors import InputError, WhenceError

STRETCH = 1024  # records that are hashed at a time


class Source(Protocol):
    """Rows that are numbered through, in an order that never changes."""

    columns: tuple[str, ...] | None

    def __len__(self) -> int: ...

    def read(self, start: int, stop: int) -> list[Any]:
        """Records [start, stop): dicts, texts or pairs; an InputError stands where one cannot be read."""

    def place(self, row: int) -> str:
        """How a row is named: by file and line where it has one."""

    def identity(self) -> str:
        """A hash that tells these data from others."""


@dataclass
class Records:
    """A list, or a `datasets.Dataset`: what has a length and slices."""

    data: Any
    columns: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.data)

    def read(self, start: int, stop: int) -> list[Any]:
        found = self.data[start:stop]
        if isinstance(found, Mapping):  # a Dataset's slice has a list per column
            names = [name for name in found if self.columns is None or name in self.columns]
            return [dict(zip(names, values, strict=True)) for values in zip(*(found[n] for n in names), strict=True)]
        return list(found)

    def place(self, row: int) -> str:
        return f"row {row}"

    def identity(self) -> str:
        """By the fingerprint of a `Dataset`; of anything else by every record."""
        fingerprint = getattr(self.data, "_fingerprint", None)
        digest = hashlib.sha256(str(fingerprint or "").encode())
        if fingerprint is None:
            columns, self.columns = self.columns, None
            for start in range(0, len(self), STRETCH):
                for record in self.read(start, min(start + STRETCH, len(self))):
                    digest.update(as_bytes(record))
            self.columns = columns
        return digest.hexdigest()[:16]


def as_bytes(record: Any) -> bytes:
    """JSON of a record, arrays with all their numbers."""
    return json.dumps(
        record, ensure_ascii=True, default=lambda v: v.tolist() if hasattr(v, "tolist") else str(v)
    ).encode()


def source_of(data: Any, split: str | None = None) -> Source:
    """Files, a pattern, a directory, several of these, a Hugging Face name, a Dataset or a list of texts, pairs or dicts."""
    if isinstance(data, (str, Path)):
        files = expand(data)
        return Records(from_hub(str(data), split)) if files is None else Files.of(files)
    if isinstance(data, Mapping) and not isinstance(data, Sequence):
        raise InputError("the data have several splits: give one of them, e.g. data['test'].")
    if isinstance(data, (list, tuple)) and data and all(isinstance(d, Path) or names_files(d) for d in data):
        several = [files for d in data if (files := expand(d)) is not None]
        return Files.of([file for files in several for file in files])
    rows = rows_of_table(data)
    if rows is not None:
        return Records(rows)
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise InputError(
            f"a corpus is read by row number, which {type(data).__name__} does not allow: give files, the name of a dataset, "
            "a Dataset (not a stream), or a list."
        )
    return Records(data)


def names_files(text: Any) -> bool:
    """A list of such texts means files, not texts to explain."""
    return isinstance(text, str) and text.lower().endswith((".parquet", ".csv", ".tsv", ".jsonl")) and "\n" not in text


def from_hub(name: str, split: str | None) -> Any:
    """A dataset by its Hugging Face name: `name`, `owner/name`, and `/config` after it where it has configurations."""
    try:
        import datasets  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise WhenceError(
            f"{name!r} is no file here; to load it by its Hugging Face name: pip install datasets. "
            "Or give a .parquet, .csv, .tsv or .jsonl file."
        ) from None
    first: Exception | None = None
    for path, config in readings(name):
        try:
            return datasets.load_dataset(path, config, split=split or "validation")
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
            first = first or error
    raise WhenceError(
        f"the dataset {name!r} could not be loaded: {str(first).strip().splitlines()[0]} "
        "(a split other than 'validation' is chosen by split=, --split.)"
    ) from first


def readings(name: str) -> list[tuple[str, str | None]]:
    """What a name can mean: a dataset, or a dataset and one of its configurations.

    >>> readings("imdb"), readings("glue/sst2"), readings("nyu-mll/glue/sst2")
    ([('imdb', None)], [('glue/sst2', None), ('glue', 'sst2')], [('nyu-mll/glue', 'sst2')])
    """
    *path, last = name.split("/")
    whole: list[tuple[str, str | None]] = [(name, None)] if len(path) < 2 else []
    return [*whole, *([("/".join(path), last)] if path else [])]


# tables whose iterator gives columns: what tells pandas, polars and Arrow, and how they give rows
TABLES: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("iterrows", lambda data: data.to_dict("records")),
    ("to_dicts", lambda data: data.to_dicts()),
    ("to_pylist", lambda data: data.to_pylist()),
)


def rows_of_table(data: Any) -> list[dict[str, Any]] | None:
    """The rows of a table of pandas, polars or Arrow; None if it is none."""
    found: list[dict[str, Any]] | None = next(
        (list(rows(data)) for tells, rows in TABLES if hasattr(data, tells)), None
    )
    return found


def readable(records: Iterator[Any]) -> Iterator[Any]:
    """The records; whatever goes wrong on the way (bytes that are no text, a broken table) is said in a sentence."""
    try:
        yield from records
    except WhenceError:
        raise
    except (ValueError, OSError, RecursionError, csv.Error) as error:
        raise InputError(f"the data cannot be read: {' '.join(str(error).splitlines()[:1])}.") from error
