"""A worker: one model, shard after shard. Tokenising the next shard and writing the last go on while the model runs."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

import torch

from whence.corpus.identity import differing
from whence.corpus.job import Finished, Job, Profile
from whence.corpus.rows import Advance, Row, check_strict, compute, prepare
from whence.corpus.table import finish
from whence.errors import ModelError
from whence.explainer import Explainer
from whence.fast.freed import Freed
from whence.load import load as load_model
from whence.run.plan import Plan
from whence.run.provenance import identity_of, write_whole

AHEAD = 2  # shards that are tokenised before the model wants them, and that wait to be written
T = TypeVar("T")


def nothing(rows: int, tokens: int) -> None:
    """For who does not want to be told."""


def load_explainer(load: Mapping[str, Any], threads: int | None) -> Explainer:
    """As a job says: arguments of whence.load, and how many threads compute."""
    if threads:
        torch.set_num_threads(threads)
    return load_model(**load)


class Worker:
    """Makes shards of a job. `run` overlaps the stages, and runs the model on the thread that calls it; `one` makes a single
    shard, and may be called from several threads."""

    def __init__(self, job: Job, explainer: Explainer) -> None:
        self.job, self.explainer = job, explainer
        self.plan = Plan.of(job.methods, job.options, explainer.defaults)
        self._reading = threading.Lock()
        self._freed = Freed()

    @classmethod
    def load(cls, job: Job, device: str | None = None) -> Worker:
        """A worker with its own copy of the model."""
        given = {**job.load} if device is None else {**job.load, "device": device}
        return cls.of(job, load_explainer(given, job.threads))

    @classmethod
    def of(cls, job: Job, explainer: Explainer) -> Worker:
        """A worker with a model that was loaded here, and must be the very model of the job."""
        other = differing(job.identity, identity_of(explainer.model, explainer.tokenizer))
        if other:
            raise ModelError(
                f"this worker's {job.load['model']!r} is another model than the run began with (other: {', '.join(other)}): "
                "give every machine the same checkpoint, tokenizer and packages, and leave them as they are while it runs."
            )
        return cls(job, explainer)

    def one(self, shard: int, computing: Executor) -> Finished:
        """Read, tokenise, run and write one shard; the model runs on the one thread of `computing`."""
        prepared = self._prepare(shard)
        return self._write(computing.submit(self._compute, prepared, nothing).result())

    def run(self, shards: Iterable[int], advance: Advance = nothing) -> Generator[Finished, None, None]:
        """Shard after shard, as they are finished. An error ends it, and what was written stays."""
        with ThreadPoolExecutor(1, "tokenise") as reader, ThreadPoolExecutor(1, "write") as writer:
            waiting: deque[Future[Finished]] = deque()
            try:
                for prepared in ahead(reader, self._prepare, shards):
                    while len(waiting) >= AHEAD:
                        yield waiting.popleft().result()
                    waiting.append(writer.submit(self._write, self._compute(prepared, advance)))
                    del prepared  # so that no more shards are held than these
                    while waiting and waiting[0].done():
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                reader.shutdown(cancel_futures=True)
                writer.shutdown()

    def _prepare(self, shard: int) -> tuple[int, list[Row], Profile]:
        profile = Profile()
        start, stop = self.job.span(shard)
        with timed(profile, "read"), self._reading:
            records = self.job.source.read(start, stop)
        with timed(profile, "tokenise"):
            rows = prepare(self.explainer, self.job, records, start)
            check_strict(self.job, rows)
        return shard, rows, profile

    def _compute(self, prepared: tuple[int, list[Row], Profile], advance: Advance) -> tuple[int, list[Row], Profile]:
        shard, rows, profile = prepared

        def after_batch(rows: int, tokens: int) -> None:
            self._freed.give_back_if_grown()
            advance(rows, tokens)

        with timed(profile, "run"):
            profile.add(compute(self.explainer, self.job, self.plan, rows, after_batch))
        return shard, rows, profile

    def _write(self, computed: tuple[int, list[Row], Profile]) -> Finished:
        shard, rows, profile = computed
        check_strict(self.job, rows)
        with timed(profile, "write"):
            finished, content = finish(self.job, shard, rows, profile)
            write_whole(self.job.file(shard), content)
        return finished


def ahead(reader: ThreadPoolExecutor, work: Callable[[int], T], numbers: Iterable[int]) -> Iterator[T]:
    """Results in order, with at most AHEAD of them made before they are wanted."""
    left = iter(numbers)
    made = deque(reader.submit(work, n) for n in islice(left, AHEAD))
    while made:
        result = made.popleft().result()
        made.extend(reader.submit(work, n) for n in islice(left, 1))
        yield result
        del result


@contextmanager
def timed(profile: Profile, stage: str) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        profile.add(Profile({stage: time.perf_counter() - start}))
