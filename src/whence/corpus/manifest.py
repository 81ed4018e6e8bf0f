"""The output directory: its manifest, what of it is finished, and one run at a time."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from whence import version
from whence.corpus.job import Finished, Job
from whence.corpus.sources.checksums import Damaged, check_file, seal_manifest
from whence.corpus.sources.files import MANIFEST
from whence.corpus.sources.runs import FORMAT, about_shard, manifest_of, reading, shard_files
from whence.errors import InputError, WhenceError
from whence.run.provenance import refuse_others, versions, write_whole

LOCK = "_lock"
READERS = 8  # threads that look at finished shards; hashing lets go of the interpreter
NAMED = 3  # files that a warning names


def begin(job: Job, about: Mapping[str, Any], refusal: OSError | None, accept_version: bool) -> None:
    """A directory that holds this job's manifest: made now, or found and agreeing. refusal: what keeps it from being written to.
    accept_version: go on also where another version of whence began."""
    path = job.directory / MANIFEST
    if path.exists():
        try:
            manifest = manifest_of(job.directory)
        except Damaged as error:
            restore(job, about, error, refusal, accept_version)
            return
        if manifest.get("format", 1) != FORMAT:
            raise InputError(
                f"{str(job.directory)!r} was begun by an older version of whence (format {manifest.get('format', 1)}, without "
                f"checksums; this one writes {FORMAT}): finish it with that version, or give another --output. Reports still read it."
            )
        refuse_others(manifest["settings"], job.settings, job.directory)
        if not accept_version:
            refuse_versions({str(v.get("whence")) for v in manifest["versions"]}, job.directory)
        return
    strangers = sorted(f.name for f in job.directory.iterdir() if not f.name.startswith((".", "_")))
    if not strangers:
        write_manifest(job, about, refusal)
        return
    no_run = InputError(
        f"{str(job.directory)!r} holds files that are not of a run ({', '.join(strangers[:NAMED])}…): give an empty directory."
    )
    if not {file.name for file in shard_files(job.directory)}.issuperset(strangers):
        raise no_run
    restore(job, about, no_run, refusal, accept_version)


def write_manifest(job: Job, about: Mapping[str, Any], refusal: OSError | None, earlier: Iterable[str] = ()) -> None:
    """A manifest without runs. earlier: versions of whence that made shards before."""
    check_writable(refusal)
    head = {
        "format": FORMAT,
        **about,
        "shards": job.shards,
        "versions": [*({"whence": v} for v in earlier), versions()],
    }
    manifest = {**head, "settings": job.settings, "runs": []}
    write_whole(job.directory / MANIFEST, as_bytes(manifest))


def refuse_versions(before: set[str], directory: Path) -> None:
    """Another version of whence may explain otherwise, and goes on with a run only when it is told to."""
    here = version.__version__
    if here not in before:
        raise InputError(
            f"{str(directory)!r} was made by whence {', '.join(sorted(before))}, and this is whence {here}, which may score otherwise: "
            "give --accept-version (accept_version=True) to go on with this version all the same, or another --output."
        )


def join(directory: Path) -> None:
    """Before shards are made: note the versions that make them, and say where they are others than those before."""
    manifest, here = manifest_of(directory), versions()
    if here in manifest["versions"]:
        return
    before = manifest["versions"][-1]
    changed = [name for name in sorted({*before, *here}) if before.get(name) != here.get(name)]
    named = ", ".join(f"{name} {before.get(name, 'none')}, now {here.get(name, 'none')}" for name in changed)
    warnings.warn(
        f"the run in {str(directory)!r} was begun with other versions ({named}): scores of the shards that are made "
        "now may differ a little from those before; the manifest names both.",
        stacklevel=2,
    )
    write_whole(directory / MANIFEST, as_bytes({**manifest, "versions": [*manifest["versions"], here]}))


def restore(
    job: Job, about: Mapping[str, Any], error: InputError, refusal: OSError | None, accept_version: bool
) -> None:
    """A manifest in place of one that was lost or damaged, if a sound shard tells that the directory is of this very job; shards of
    other settings are an error, and so is the lack of any."""
    earlier = {shard.version for shard in look_at(job) if isinstance(shard, Finished)}
    if not earlier:
        raise error
    if not accept_version:
        refuse_versions(earlier, job.directory)
    write_manifest(job, about, refusal, sorted(earlier - {version.__version__}))
    warnings.warn(
        f"the manifest of {str(job.directory)!r} was damaged or lost, and is written again; when earlier runs were, it no longer says.",
        stacklevel=2,
    )


def record_run(directory: Path, run: Mapping[str, Any]) -> None:
    """Add when and how a run went to the manifest."""
    manifest = manifest_of(directory)
    write_whole(directory / MANIFEST, as_bytes({**manifest, "runs": [*manifest["runs"], run]}))


def as_bytes(manifest: Mapping[str, Any]) -> bytes:
    """JSON with the checksums of what it says, once half characters are question marks."""
    plain = json.loads(json.dumps(manifest, ensure_ascii=False).encode("utf-8", "replace"))
    return (json.dumps(seal_manifest(plain), indent=1, ensure_ascii=False) + "\n").encode()


def look_at(job: Job) -> Iterator[Finished | Damaged | None]:
    """What became of every shard so far, in order; each file is read from end to end."""
    with ThreadPoolExecutor(min(READERS, os.cpu_count() or 1), "check") as readers:
        yield from readers.map(partial(state_of, job), range(job.shards))


def state_of(job: Job, shard: int) -> Finished | Damaged | None:
    """What a shard holds; None if it is not there, an error (as a value) if its bytes are not what was written. One of other settings
    is refused."""
    path = job.file(shard)
    if not path.exists():
        return None
    try:
        with reading(path):
            check_file(path)
            about = about_shard(path)
            if about["format"] != FORMAT:
                raise InputError(
                    f"{str(path)!r} is of format {about['format']!r}, and this version of whence writes {FORMAT}: delete it, and it is "
                    "made again."
                )
            if about["settings"] != job.digest or about["shard"] != shard:
                raise InputError(f"{str(path)!r} was made with other settings: delete it, and it is made again.")
            counts = (about["rows"], about["errors"], about["truncated"], about["tokens"])
            more = {name: about.get(name, 0) for name in ("unkept", "incomplete")}
            return Finished(shard, *counts, **more, version=str(about["whence"]))
    except Damaged as error:
        return error


def finished(job: Job, shard: int) -> Finished | None:
    """What a shard holds; None if it is to be made, for the first time or again."""
    state = state_of(job, shard)
    return state if isinstance(state, Finished) else None


def warn_damaged(job: Job, damaged: Mapping[int, Damaged]) -> None:
    """Shards that are made again, because they are not what was written."""
    named = [f"{job.file(shard).name}: {error.reason}" for shard, error in list(damaged.items())[:NAMED]]
    more = "; …" if len(damaged) > NAMED else ""
    warnings.warn(
        f"{len(damaged):,} of the {job.shards:,} shards in {str(job.directory)!r} are damaged, and are made again "
        f"({'; '.join(named)}{more}).",
        stacklevel=2,
    )


@contextmanager
def held(directory: Path) -> Iterator[OSError | None]:
    """One run at a time in a directory; what killed runs left half-written is swept away. The system lets go of the lock
    whatever ends the process. Gives what keeps the directory from being written to, which is an error only for who must write: a run
    that is complete is complete on a read-only disk too."""
    try:
        file = (directory / LOCK).open("ab")
    except OSError as error:
        yield error
        return
    with file:
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
        yield None


def check_writable(refusal: OSError | None) -> None:
    """Raise what `held` gave, before anything is written."""
    if refusal is not None:
        raise refusal


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
