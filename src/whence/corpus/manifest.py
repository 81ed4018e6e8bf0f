"""The output directory: its manifest, what of it is finished, and one run at a time."""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whence.corpus.job import Finished, Job
from whence.data.files import MANIFEST
from whence.data.runs import about_shard, manifest_of, reading
from whence.errors import InputError, WhenceError
from whence.provenance import refuse_others, write_whole

FORMAT = 1
LOCK = "_lock"


def begin(job: Job, about: Mapping[str, Any]) -> None:
    """A directory that holds this job's manifest: made now, or found and agreeing."""
    path = job.directory / MANIFEST
    if path.exists():
        refuse_others(manifest_of(job.directory)["settings"], job.settings, job.directory)
        return
    strangers = sorted(f.name for f in job.directory.iterdir() if not f.name.startswith((".", "_")))
    if strangers:
        raise InputError(
            f"{str(job.directory)!r} holds files that are not of a run ({', '.join(strangers[:3])}…): give an empty directory."
        )
    manifest = {"format": FORMAT, **about, "shards": job.shards, "settings": job.settings, "runs": []}
    write_whole(path, as_bytes(manifest))


def record_run(directory: Path, run: Mapping[str, Any]) -> None:
    """Add when and how a run went to the manifest."""
    manifest = manifest_of(directory)
    write_whole(directory / MANIFEST, as_bytes({**manifest, "runs": [*manifest["runs"], run]}))


def as_bytes(manifest: Mapping[str, Any]) -> bytes:
    return (json.dumps(manifest, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def finished(job: Job, shard: int) -> Finished | None:
    """What a shard holds; None if it is not there. A file of other settings, or one that cannot be read, is refused."""
    path = job.file(shard)
    if not path.exists():
        return None
    about = about_shard(path)
    with reading(path):
        if about["settings"] != job.digest or about["shard"] != shard:
            raise InputError(f"{str(path)!r} was made with other settings: delete it, and it is made again.")
        return Finished(
            shard, about["rows"], about["errors"], about["truncated"], about["tokens"], unkept=about.get("unkept", 0)
        )


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """One run at a time in a directory; what killed runs left half-written is swept away. The system lets go of the lock
    whatever ends the process."""
    with (directory / LOCK).open("ab") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WhenceError(f"another run is writing into {str(directory)!r}: wait for it, or stop it.") from None
        except (ImportError, OSError):
            pass  # no locks here: shards are still whole or absent
        for partial in directory.glob(".*.partial"):
            with contextlib.suppress(OSError):
                partial.unlink()
        yield


@contextmanager
def disk_errors(directory: Path) -> Iterator[None]:
    """A full disk or a directory that cannot be written to, as a sentence."""
    try:
        yield
    except OSError as error:
        if isinstance(error, WhenceError):
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            what = "there is no space left for"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            what = "nothing may be written into"
        else:
            raise WhenceError(f"{str(directory)!r} cannot be used: {error.strerror or error}.") from error
        raise WhenceError(
            f"{what} {str(directory)!r}. Every finished shard is whole: mend it, and the same command goes on from there."
        ) from error
