"""A directory that `whence corpus` wrote, as data: the texts that were explained, and the columns that were kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whence.data.files import MANIFEST
from whence.data.parquet import ParquetRows
from whence.errors import InputError

SHARDS = "shard-*.parquet"


def is_run(path: Any) -> bool:
    """Is this a directory with the manifest of a run?"""
    return isinstance(path, (str, Path)) and (Path(path) / MANIFEST).is_file()


def manifest_of(directory: str | Path) -> dict[str, Any]:
    """What a run was made with."""
    path = Path(directory) / MANIFEST
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{str(directory)!r} holds no run: `whence corpus INPUT --output DIR` writes {MANIFEST} into it."
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)!r} cannot be read: {error}.") from error
    return found


def shard_files(directory: str | Path) -> list[Path]:
    """The shards that are finished, in order."""
    return sorted(Path(directory).glob(SHARDS))


def run_records(directory: Path) -> Iterator[dict[str, Any]]:
    """Text (and pair) of every row that was explained, with the kept columns; each row once, whatever was explained of it."""
    settings = manifest_of(directory)["settings"]
    roles = settings["columns"]
    names = ["text", *(["pair"] if {"pair", "context"} & set(roles) else [])]
    last = None
    for file in shard_files(directory):
        for record in ParquetRows(file, [*names, *settings["keep"], "row", "error"]).rows(0):
            if record["error"] is None and record["row"] != last:
                last = record["row"]
                yield {name: record[name] for name in (*names, *settings["keep"])}
