"""A directory that `whence corpus` wrote, as data: the texts that were explained, and the columns that were kept."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whence.corpus.sources.checksums import DIFFERS, REMEDY, Damaged, check_file, check_footer, is_sealed, is_whole
from whence.corpus.sources.files import MANIFEST
from whence.corpus.sources.parquet import ParquetRows
from whence.errors import InputError, WhenceError

FORMAT = 2  # of what a run writes; format 1 carried no checksums, and is read and not gone on with
FORMATS = (1, FORMAT)
SHARDS = "shard-*.parquet"
# what a manifest holds, as far as anything reads it: key → kind
MANIFEST_KEYS = {"settings": dict, "shards": int, "runs": list, "model": str, "task": str, "labels": list}
SETTINGS_KEYS = {"methods": list, "columns": dict, "keep": list, "scores": str}
METHOD_KEYS = {"name": str, "options": dict}


MEND_MANIFEST = "put back the one that was written, or give the same `whence corpus` command: it writes another."


def is_run(path: Any) -> bool:
    """Is this a directory with the manifest of a run?"""
    return isinstance(path, (str, Path)) and (Path(path) / MANIFEST).is_file()


def manifest_of(directory: str | Path) -> dict[str, Any]:
    """What a run was made with. One that was damaged is a `Damaged` error."""
    path = Path(directory) / MANIFEST
    try:
        manifest: Any = json.loads(path.read_text(encoding="utf-8"))
        right = not (isinstance(manifest, dict) and is_sealed(manifest)) or is_whole(manifest)
    except FileNotFoundError:
        raise InputError(
            f"{str(directory)!r} holds no run: `whence corpus INPUT --output DIR` writes {MANIFEST} into it."
        ) from None
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{str(path)!r} cannot be read: {error}; {MEND_MANIFEST}", str(error)) from error
    if isinstance(manifest, dict) and manifest.get("format", 1) not in FORMATS:
        raise InputError(
            f"{str(directory)!r} is of format {manifest['format']!r}, and this version of whence reads {FORMATS[0]} to {FORMAT}: use "
            "the version that wrote it, or give another directory."
        )
    reason = lacking(manifest) if right else DIFFERS
    if reason is not None:
        raise Damaged(f"{str(path)!r} is no manifest of a run, {reason}: {MEND_MANIFEST}", reason)
    whole: dict[str, Any] = manifest
    return whole


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
    meanings = manifest.get("meanings", {})
    if not isinstance(meanings, dict) or not all(isinstance(meaning, dict) for meaning in meanings.values()):
        return "its 'meanings' are of another kind"
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
        raise Damaged(f"{str(shard)!r} is no shard of a run ({error}): {REMEDY}", str(error)) from error


def about_shard(shard: Path, sealed: bool = True) -> dict[str, Any]:
    """What a shard says of itself: its settings, and how many rows, errors, cut texts and tokens it holds. What a footer says is
    believed when its checksum is right; of format 1, which has none (sealed=False), as it is."""
    import pyarrow.parquet as pq

    with reading(shard):
        if sealed:
            with shard.open("rb") as file:
                check_footer(file)
        about: dict[str, Any] = json.loads(pq.read_schema(shard).metadata[b"whence"])
        return about


def shard_of(manifest: Mapping[str, Any], shard: Path, *, whole: bool = False) -> dict[str, Any]:
    """What a shard says of itself, once it is known to be a sound one of this run and in its place. whole: every byte is looked at,
    as whoever reads its rows must; else those of the footer."""
    sealed = is_sealed(manifest)
    if whole and sealed:
        with reading(shard):
            check_file(shard)
    about = about_shard(shard, sealed)
    if sealed:
        with reading(shard):
            right = about["settings"] == settings_digest(manifest["settings"]) and about["shard"] < manifest["shards"]
            if not right or shard.name != shard_name(about["shard"]):
                raise InputError(f"{str(shard)!r} is of another run, or of another place in this one: {REMEDY}")
    return about


def shard_name(number: int) -> str:
    return f"shard-{number:06d}.parquet"


def settings_digest(settings: Mapping[str, Any]) -> str:
    """Every shard names the settings that it was made with by this."""
    text = json.dumps(settings, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def warn_unsealed(directory: str | Path) -> None:
    """Results of format 1 are read, and nobody can tell whether they are what was written."""
    if not is_sealed(manifest_of(directory)):
        warnings.warn(
            f"the run in {str(directory)!r} was made by an older version of whence and carries no checksums: damage on the disk would "
            "not be noticed.",
            stacklevel=3,
        )


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
    return (record for _, record in run_rows(directory) if not isinstance(record, InputError))


def run_rows(directory: Path) -> Iterator[tuple[int, Any]]:
    """The same, each with the row's number; an InputError stands in the place of a row that was not explained."""
    warn_unfinished(directory)
    warn_unsealed(directory)
    manifest = manifest_of(directory)
    settings = manifest["settings"]
    roles = settings["columns"]
    names = ["text", *(["pair"] if {"pair", "context"} & set(roles) else [])]
    last = None
    for file in shard_files(directory):
        if is_sealed(manifest):
            shard_of(manifest, file, whole=True)
        for record in ParquetRows(file, [*names, *settings["keep"], "row", "error"]).rows(0):
            if isinstance(record, InputError):
                raise record
            if record["row"] == last:
                continue
            last = record["row"]
            values = {name: record[name] for name in (*names, *settings["keep"])}
            yield last, values if record["error"] is None else InputError(record["error"])
