"""`whence.corpus.run`: data in, a Parquet dataset of scores out; what is there already is not made again."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from whence.corpus import local, manifest
from whence.corpus.bad_rows import NAMED, BadRow, stop
from whence.corpus.cluster import Connection
from whence.corpus.job import SHARD_ROWS, Finished, Job, Profile, check
from whence.corpus.on_ray import Crew, Wish
from whence.corpus.plan import from_anywhere, planned, settings_of
from whence.corpus.rows import Advance
from whence.corpus.saved import open_run
from whence.corpus.sources import Files, source_of
from whence.corpus.sources.checksums import Damaged
from whence.corpus.worker import Worker
from whence.errors import Incomplete, InputError, Truncated, UnknownName
from whence.explainer import Explainer
from whence.load import load as load_model
from whence.registry import get_method
from whence.run import interrupts
from whence.run.limits import BATCH_TOKENS
from whence.run.progress import counting
from whence.run.provenance import identity_of, versions

Maker = Callable[
    [Sequence[int], Advance], Generator[Finished, None, None]
]  # shards that are missing → as they are made

ENGINES = ("local", "ray")


@dataclass
class Summary:
    """How a run went; rows, errors and other counts are of the whole dataset, earlier runs included."""

    directory: Path
    rows: int = 0
    errors: int = 0
    truncated: int = 0
    incomplete: int = 0  # rows of which a method's scores leave more than 2% of what they should sum to unexplained
    unkept: int = 0  # values of kept columns that are null, because they are of another type than the column
    tokens: int = 0
    shards: int = 0
    made: int = 0  # rows explained now
    seconds: float = 0.0
    profile: Profile = field(default_factory=Profile)
    bad: tuple[BadRow, ...] = ()  # the first rows in error

    def add(self, shard: Finished) -> None:
        self.rows += shard.rows
        self.errors += shard.errors
        self.truncated += shard.truncated
        self.incomplete += shard.incomplete
        self.unkept += shard.unkept
        self.tokens += shard.tokens
        self.shards += 1
        self.profile.add(shard.profile)


def run(
    data: Any,
    output: str | Path,
    model: str | Path | Explainer = "sentiment",
    method: str | Sequence[str] | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
    target: Any = None,
    contrast: Any = None,
    continuation: Any = None,
    place: Any = None,
    split: str | None = None,
    limit: int | None = None,
    shard_rows: int = SHARD_ROWS,
    batch_tokens: int = BATCH_TOKENS,
    on_long: str = "truncate",
    scores: str = "float32",
    seed: int = 0,
    engine: str = "local",
    workers: int | None = None,
    threads: int | None = None,
    address: str | Connection | None = None,
    gpus: float | None = None,
    device: str | None = None,
    dtype: str | None = None,
    task: str | None = None,
    recipe: str | Path | None = None,
    progress: bool | None = None,
    accept_version: bool = False,
    strict: bool = False,
    **options: Any,
) -> Summary:
    """Explain every row of a corpus and write a Parquet dataset; run again, it does only what is missing.

    data: a Parquet, CSV, TSV or JSONL file, a pattern, a directory, a list of these, the name of a Hugging Face dataset, a
        `Dataset`, or a list of texts, pairs or dicts.
    output: the directory of the dataset. One of other settings is refused, and the differences are shown.
    model: as for `whence.load`, or an Explainer (local engine, one worker).
    columns: role → column, where it cannot be guessed. Roles: text, pair, question, context, answer, start, target,
        contrast, continuation, place.
    keep: columns of the data to copy into the output.
    target, contrast, continuation, place: as for `Explainer.explain`, for every row; a column gives each row its own.
    shard_rows: rows of one file. Rows are sorted by length within a shard, so larger shards pad less.
    scores: "float32", "float16" or "float64" on disk.
    engine: "local" (one worker per GPU, or one on the CPU; `workers` says otherwise) or "ray" (`address` of a cluster, or a
        `whence.corpus.cluster.Connection` that has been begun; `workers` actors with `gpus` each, which may be a fraction).
    threads: CPU threads of each worker.
    accept_version: go on with a run that another version of whence began, which is otherwise refused.
    strict: stop at the first row in error, also of an earlier run; else its error is written in its place, and `Summary.bad` names the
        first few.

    >>> import tempfile, whence.corpus
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = whence.corpus.run(["a charming film", "", "dull"], folder, method=["attcat", "gae"])
    ...     saved = whence.corpus.open(folder)
    ...     (done.rows, done.errors, saved["gae"][0].top(1)[0].text)
    (3, 1, 'charming')
    """
    interrupts.begin()
    if engine not in ENGINES:
        raise UnknownName("engine", engine, ENGINES)
    check(shard_rows, batch_tokens, scores, on_long)
    load = {"model": from_anywhere(model), "dtype": dtype, "task": task, "recipe": from_anywhere(recipe)}
    on = [None] if isinstance(model, Explainer) and workers in (None, 1) else local.devices(device, workers)
    alone = engine == "local" and len(on) == 1
    if isinstance(model, Explainer) and not alone:
        raise InputError("several workers load the model themselves: give its name or directory, not an Explainer.")
    team = threads or max(torch.get_num_threads() // len(on), 1)
    there = {**load, "device": device or ("cuda" if gpus else None)}  # how a worker loads
    connection = address if isinstance(address, Connection) else Connection(address)
    with connection, Crew(connection, Wish(team, workers, gpus)) as crew:
        # over what is there already it starts when it is asked to run: there may be nothing left to do
        if engine == "ray" and not Path(output).exists():
            crew.start()
        explainer = model if isinstance(model, Explainer) else load_model(**load, device=on[0] if alone else "cpu")
        source = source_of(data, split)
        job = Job(
            source=source,
            directory=Path(output).absolute(),
            methods=(),
            options=options,
            roles={},
            asked={"target": target, "contrast": contrast, "continuation": continuation, "place": place},
            keep={},
            settings={},
            load=there,
            rows=len(source) if limit is None else min(limit, len(source)),
            shard_rows=shard_rows,
            batch_tokens=batch_tokens,
            on_long=on_long,
            scores=scores,
            threads=team,
            identity=identity_of(explainer.model, explainer.tokenizer),
            strict=strict,
        )
        job = planned(job, explainer, method, columns or {}, keep, seed)
        kind = (
            torch.device(on[0] or explainer.device).type if engine == "local" else "cuda" if gpus else device or "cpu"
        )
        job = replace(job, settings=settings_of(job, explainer, kind, seed))
        about = {
            "model": explainer.name,
            "task": explainer.task,
            "labels": list(explainer.labels),
            "meanings": {
                m["name"]: get_method(m["name"]).meaning(m["options"]).to_dict() for m in job.settings["methods"]
            },
            "data": [str(p.path) for p in source.parts] if isinstance(source, Files) else str(type(data).__name__),
        }

        def made(missing: Sequence[int], advance: Advance) -> Generator[Finished, None, None]:
            if engine == "ray":
                return crew.run(job, missing, advance)
            if alone:
                return Worker(job, explainer).run(missing, advance)
            return local.run_processes(job, on, missing, advance)

        how = {"engine": engine, "workers": workers or len(on), "device": kind, "threads": job.threads}
        with warnings.catch_warnings(), manifest.disk_errors(job.directory), cpu_threads(threads if alone else None):
            warnings.simplefilter("ignore", Truncated)  # they are counted, and marked in the output
            warnings.simplefilter("ignore", Incomplete)  # so are these
            job.directory.mkdir(parents=True, exist_ok=True)
            with manifest.held(job.directory) as refusal:
                manifest.begin(job, about, refusal, accept_version)
                return complete(job, made, how, progress, refusal)


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """So many threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def rows_in_error(job: Job, summary: Summary) -> tuple[BadRow, ...]:
    """The first few, by file and line."""
    errors = open_run(job.directory).errors() if summary.errors else ()
    return tuple(BadRow(row, job.source.place(row), error) for row, error in islice(errors, NAMED))


def complete(
    job: Job, made: Maker, how: Mapping[str, Any], progress: bool | None, refusal: OSError | None = None
) -> Summary:
    """Make the shards that are missing, and note in the manifest when and how. refusal: what keeps the directory from being
    written to, an error if anything is missing."""
    summary, states = Summary(job.directory), list(manifest.look_at(job))
    for state in states:
        if isinstance(state, Finished):
            summary.add(state)
    if job.strict:
        for row in rows_in_error(job, summary):
            raise stop(row)
    missing = [shard for shard, state in enumerate(states) if not isinstance(state, Finished)]
    if not missing:
        summary.bad = rows_in_error(job, summary)
        return summary
    manifest.check_writable(refusal)
    manifest.join(job.directory)
    damaged = {shard: state for shard, state in enumerate(states) if isinstance(state, Damaged)}
    if damaged:
        manifest.warn_damaged(job, damaged)
    before, began, start = summary.rows, datetime.now(UTC), time.perf_counter()
    with (
        counting("explaining", job.rows, progress, before) as counter,
        closing(made(missing, counter.advance)) as shards,
    ):
        for one in shards:
            summary.add(one)
    summary.made, summary.seconds = summary.rows - before, time.perf_counter() - start
    summary.bad = rows_in_error(job, summary)
    times = {"started": began.isoformat(timespec="seconds"), "seconds": round(summary.seconds, 3)}
    told = {"rows": summary.made, "errors": summary.errors, "versions": versions("ray")}
    manifest.record_run(job.directory, {**times, **how, **told})
    return summary
