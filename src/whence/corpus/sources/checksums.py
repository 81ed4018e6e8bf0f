"""Checksums of what a corpus run writes, so that a file that was damaged on the disk is never read as other numbers.

A shard carries two SHA-256 sums in its own footer, one of its data and one of the footer (with the sum's own place blank, and with the
eight bytes that end the file). So a shard and its sums come to be in one rename, what is in the footer can be trusted without reading the
data, and every other reader of Parquet sees nothing but one more word in the metadata. A manifest carries the sum of its content.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from whence.errors import InputError

KEY = "whence sha256"
RUNS = "runs"
FIELD = f'"{KEY}": "'.encode()
DIGITS = 64
BLANK = "0" * (2 * DIGITS)  # where the two sums of a shard will stand
END = 8  # bytes after the footer: its length, and MAGIC
MAGIC = b"PAR1"
CHUNK = 1 << 20
SHARD_NAME = re.compile(r"shard-\d+\.parquet")
DIFFERS = "its checksum differs: it was damaged or changed after it was written"


class Damaged(InputError):
    """A file of a run that is not what was written."""

    def __init__(self, sentence: str, reason: str) -> None:
        super().__init__(sentence)
        self.reason = reason


def seal(content: memoryview) -> bytes:
    """A Parquet file's bytes whose metadata hold BLANK under KEY, with the sums in its place."""
    start = len(content) - END - int.from_bytes(content[-END:-4], "little")
    footer = bytearray(content[start:])
    at = place_in(footer)
    footer[at : at + DIGITS] = hashlib.sha256(content[:start]).hexdigest().encode()
    footer[at + DIGITS : at + 2 * DIGITS] = hashlib.sha256(footer).hexdigest().encode()
    return b"".join((content[:start], footer))


def place_in(footer: bytes | bytearray) -> int:
    """Where the sums stand. Texts of the data may stand in a footer too, as a column's least and greatest, but before the metadata."""
    at = footer.rfind(FIELD)
    if at < 0 or len(footer) - END < at + len(FIELD) + 2 * DIGITS:
        raise ValueError("it carries no checksum")
    return at + len(FIELD)


def check_footer(file: IO[bytes]) -> tuple[int, str]:
    """Raise ValueError unless a shard's footer is what was written. Returns how long the data before it are, and their sum."""
    size = file.seek(0, 2)
    file.seek(max(size - END, 0))
    end = file.read(END)
    start = size - END - int.from_bytes(end[:4], "little")
    if len(end) < END or end[4:] != MAGIC or start < len(MAGIC):
        raise ValueError("it is cut off")
    file.seek(start)
    footer = bytearray(file.read())
    at = place_in(footer)
    data, recorded = (footer[at + i * DIGITS : at + (i + 1) * DIGITS] for i in range(2))
    footer[at + DIGITS : at + 2 * DIGITS] = BLANK[:DIGITS].encode()
    if hashlib.sha256(footer).hexdigest().encode() != recorded:
        raise ValueError(DIFFERS)
    return start, data.decode()


def check_file(path: Path) -> None:
    """Raise ValueError unless every byte of a shard is what was written."""
    with path.open("rb") as file:
        left, expected = check_footer(file)
        file.seek(0)
        digest = hashlib.sha256()
        while left:
            chunk = file.read(min(left, CHUNK))
            if not chunk:
                raise ValueError("it is cut off")
            digest.update(chunk)
            left -= len(chunk)
    if digest.hexdigest() != expected:
        raise ValueError(DIFFERS)


def digest_of(content: Mapping[str, Any]) -> str:
    """The sum of what JSON says, however it is written down; of a manifest without its runs, which have sums of their own."""
    summed = {name: value for name, value in content.items() if name not in (KEY, RUNS)}
    return hashlib.sha256(json.dumps(summed, sort_keys=True).encode()).hexdigest()


def seal_manifest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """With the sums of what it says and of every run: two manifests of the same settings differ in their runs alone."""
    runs = [{**run, KEY: digest_of(run)} for run in manifest[RUNS]]
    return {**manifest, RUNS: runs, KEY: digest_of(manifest)}


def is_whole(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest says what was written."""
    runs = manifest.get(RUNS)
    parts = [manifest, *(runs if isinstance(runs, list) else [])]
    return all(isinstance(part, Mapping) and part.get(KEY) == digest_of(part) for part in parts)


def check_if_shard(path: Path, manifest: str) -> None:
    """Raise InputError for a damaged shard that is given as a plain file, beside its run's manifest (a name)."""
    try:
        if not SHARD_NAME.fullmatch(path.name) or not is_sealed(json.loads(path.with_name(manifest).read_bytes())):
            return
    except OSError:
        return  # no manifest: just a file
    except (ValueError, RecursionError):
        pass
    try:
        check_file(path)
    except ValueError as error:
        raise Damaged(f"{str(path)!r} is no shard of a run ({error}): {REMEDY}", str(error)) from error


REMEDY = "delete it, and it is made again by the same `whence corpus` command."


def is_sealed(manifest: Any) -> bool:
    """Whether a run's files carry checksums: those of format 1 did not."""
    return not isinstance(manifest, Mapping) or KEY in manifest or manifest.get("format", 1) != 1
