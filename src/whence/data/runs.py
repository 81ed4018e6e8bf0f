"""A directory that `whence corpus` wrote, as data: the texts that were explained, and the columns that were kept."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whence.data.files import MANIFEST
from whence.data.parquet import ParquetRows
from whence.errors import InputError, WhenceError

SHARDS = "shard-*.parquet"
# what a manifest holds, as far as anything reads it: key → kind
MANIFEST_KEYS = {"settings": dict, "shards": int, "runs": list, "model": str, "task": str, "labels": list}
SETTINGS_KEYS = {"methods": list, "columns": dict, "keep": list, "scores": str}
METHOD_KEYS = {"name": str, "options": dict}


def is_run(path: Any) -> bool:
    """Is this a directory with the manifest of a run?"""
    return isinstance(path, (str, Path)) and (Path(path) / MANIFEST).is_file()


def manifest_of(directory: str | Path) -> dict[str, Any]:
    """What a run was made with."""
    path = Path(directory) / MANIFEST
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{str(directory)!r} holds no run: `whence corpus INPUT --output DIR` writes {MANIFEST} into it."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{str(path)!r} cannot be read: {error}.") from error
    lacks = lacking(found)
    if lacks is not None:
        raise InputError(
            f"{str(path)!r} is no manifest of a run, {lacks}: put back the one that was written, or run `whence corpus` into "
            "another directory."
        )
    manifest: dict[str, Any] = found
    return manifest


def lacking(manifest: Any) -> str | None:
    """What keeps JSON from being a run's manifest, in words; None if nothing does.

    >>> lacking({})
    "its 'settings' are missing or of another kind"
    """
    tables: list[tuple[Any, Mapping[str, type]]] = [(manifest, MANIFEST_KEYS)]
    settings = manifest.get("settings") if isinstance(manifest, Mapping) else None
    tables.append((settings, SETTINGS_KEYS))
    methods = settings.get("methods") if isinstance(settings, Mapping) else None
    tables += [(method, METHOD_KEYS) for method in (methods if isinstance(methods, list) else [])]
    for table, keys in tables:
        wrong = next(
            (k for k, kind in keys.items() if not isinstance(table, dict) or not isinstance(table.get(k), kind)), None
        )
        if wrong is not None:
            return f"its {wrong!r} are missing or of another kind"
    return None if methods else "it names no method"


@contextmanager
def reading(shard: Path) -> Iterator[None]:
    """A file that is no shard, or no longer, is said in a sentence with what to do."""
    try:
        yield
    except WhenceError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        if (
            isinstance(error, OSError) and error.errno is not None
        ):  # the system's word, and no reason to delete anything
            raise InputError(f"{str(shard)!r} cannot be read: {error.strerror or error}.") from error
        raise InputError(f"{str(shard)!r} is no shard of a run ({error}): delete it, and it is made again.") from error


def about_shard(shard: Path) -> dict[str, Any]:
    """What a shard says of itself: its settings, and how many rows, errors, cut texts and tokens it holds."""
    import pyarrow.parquet as pq

    with reading(shard):
        about: dict[str, Any] = json.loads(pq.read_schema(shard).metadata[b"whence"])
        return about


def warn_unfinished(directory: str | Path) -> None:
    """What is read of a run that was interrupted is less than was asked for."""
    have, shards = len(shard_files(directory)), manifest_of(directory)["shards"]
    if have < shards:
        warnings.warn(
            f"the run in {str(directory)!r} is not finished: {have:,} of {shards:,} shards are there; the same `whence corpus` "
            "command makes the rest.",
            stacklevel=3,
        )


def shard_files(directory: str | Path) -> list[Path]:
    """The shards that are finished, in order."""
    return sorted(Path(directory).glob(SHARDS))


def run_records(directory: Path) -> Iterator[dict[str, Any]]:
    """Text (and pair) of every row that was explained, with the kept columns; each row once, whatever was explained of it."""
    warn_unfinished(directory)
    settings = manifest_of(directory)["settings"]
    roles = settings["columns"]
    names = ["text", *(["pair"] if {"pair", "context"} & set(roles) else [])]
    last = None
    for file in shard_files(directory):
        for record in ParquetRows(file, [*names, *settings["keep"], "row", "error"]).rows(0):
            if record["error"] is None and record["row"] != last:
                last = record["row"]
                yield {name: record[name] for name in (*names, *settings["keep"])}
