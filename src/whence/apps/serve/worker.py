"""One thread per model: requests wait in a queue, and those that can share a call of the model are run as one batch."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from whence.apps.serve.jobs import Job
from whence.apps.serve.settings import Settings
from whence.errors import WhenceError, as_exception
from whence.explainer import Explainer
from whence.fast.freed import Freed

log = logging.getLogger("whence.apps.serve")

REST = 0.25  # seconds without work after which memory is given back
STOPPING = "the server is shutting down: ask again when it is back."
THREAD = "whence-model-"  # what threads that run models are called, before the model's name


class Unavailable(WhenceError):
    """The server cannot take this request now; the same one may succeed later."""


class Abandoned(Exception):
    """Nobody waits for this batch any more."""


@dataclass(eq=False)
class Pending:
    """A job that waits or runs. `abandoned` tells the worker that nobody wants the result of a job that runs already."""

    job: Job
    key: Hashable  # of the job: asked for once, by whoever submits it, who is told what is wrong with it
    future: Future[Any] = field(default_factory=Future)
    abandoned: bool = False

    def drop(self) -> None:
        """The client is gone, or has waited too long."""
        self.abandoned = True
        self.future.cancel()

    def fail(self, error: BaseException) -> None:
        with suppress(InvalidStateError):  # answered, or cancelled, already
            self.future.set_exception(as_exception(error))


class Worker:
    """Runs the jobs of one model, oldest first, each time with all others that wait and have the same key."""

    def __init__(self, explainer: Explainer, settings: Settings) -> None:
        self.explainer, self.settings = explainer, settings
        self.batches = self.rows = 0  # batches run, and the requests they held
        self._queue: deque[Pending] = deque()
        self._running: list[Pending] = []
        self._change = threading.Condition()
        self._freed = Freed()
        self._stopping = self._over = False  # no more jobs are taken; what runs must end
        self._gone = False  # the thread has ended, though nobody has asked it to
        self._no_more = f"the model {explainer.name} answers no more: the server must be started anew."
        self._thread = threading.Thread(target=self._work, name=THREAD + explainer.name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def answers(self) -> bool:
        """Whether jobs are taken and run."""
        return self._thread.is_alive() and not self._stopping and not self._gone

    def submit(self, job: Job) -> Pending:
        """Put a job at the end of the queue, or say why not."""
        pending = Pending(job, job.key)
        with self._change:
            if self._stopping:
                raise Unavailable(STOPPING)
            if self._gone:
                raise Unavailable(self._no_more)
            if len(self._queue) >= self.settings.max_queue:
                raise Unavailable(f"{len(self._queue)} requests wait for this model already: try again in a moment.")
            self._queue.append(pending)
            self._change.notify()
            return pending

    def drain(self, seconds: float) -> None:
        """Take no more jobs, refuse those that wait, and give the batch that runs some seconds to end."""
        with self._change:
            self._stopping = True
            self._change.notify()
        self._refuse(STOPPING)
        self._thread.join(seconds)
        self._over = True  # the batch ends before its next forward
        for pending in list(self._running):
            pending.fail(Unavailable(STOPPING))

    def _work(self) -> None:
        try:
            with stopping_between_forwards(self.explainer, self._check):
                while self._one_batch():
                    with suppress(Exception):
                        self._tidy()
        finally:
            with self._change:
                self._gone = not self._stopping
            self._refuse(self._no_more)

    def _one_batch(self) -> bool:
        """Take a batch and run it; False when the server stops. Whatever goes wrong is the answer to those who asked: the thread
        outlives it."""
        batch: list[Pending] = []
        try:
            taken = self._take()
            if taken is None:
                return False
            batch = taken
            self._run([pending for pending in batch if pending.future.set_running_or_notify_cancel()])
        except BaseException as error:
            log.error("a batch of %s ended with %s", self.explainer.name, type(error).__name__)
            for pending in batch or self._drop_queue():
                pending.fail(error)
            time.sleep(REST)  # should it come back at once, the log is not flooded
        return True

    def _drop_queue(self) -> list[Pending]:
        """What waits, which is nobody's job from now on."""
        with self._change:
            waiting = list(self._queue)
            self._queue.clear()
        return waiting

    def _refuse(self, sentence: str) -> None:
        """Answer what waits, without running it."""
        for pending in self._drop_queue():
            if pending.future.set_running_or_notify_cancel():
                pending.fail(Unavailable(sentence))

    def _tidy(self) -> None:
        """Return freed memory when nobody asks for a while, and what piles up when somebody always does."""
        with self._change:
            busy = self._change.wait_for(self._has_news, REST)
        if busy:
            self._freed.give_back_if_grown()
        else:
            self._freed.give_back()

    def _has_news(self) -> bool:
        return bool(self._queue) or self._stopping

    def _take(self) -> list[Pending] | None:
        """The oldest job with those that go with it; None when the server stops."""
        with self._change:
            self._change.wait_for(self._has_news)
            until = time.monotonic() + self.settings.batch_wait
            while (
                not self._stopping
                and len(self._queue) < self.settings.max_batch
                and (left := until - time.monotonic()) > 0
            ):
                self._change.wait(left)
            if self._stopping:
                return None
            key = self._queue[0].key
            batch = [pending for pending in self._queue if pending.key == key][: self.settings.max_batch]
            taken = set(map(id, batch))
            self._queue = deque(pending for pending in self._queue if id(pending) not in taken)
            return batch

    def _run(self, batch: list[Pending]) -> None:
        """Answer a batch; if it fails, run its jobs one by one, so that each gets its own answer or its own error."""
        if not batch:
            return
        self._running = batch
        self.batches, self.rows = self.batches + 1, self.rows + len(batch)
        try:
            self._check()
            results = run_jobs(self.explainer, [pending.job for pending in batch])
        except (
            BaseException
        ) as error:  # a panic, or a method that ends the process, ends neither this thread nor the server
            if len(batch) == 1:
                batch[0].fail(error)
                return
        else:
            for pending, result in zip(batch, results, strict=True):
                if not pending.future.done():
                    pending.future.set_result(result)
            return
        finally:
            self._running = []
        for pending in batch:
            if not pending.future.done():
                self._run([pending])

    def _check(self) -> None:
        if self._over:
            raise Unavailable(STOPPING)
        if self._running and all(pending.abandoned for pending in self._running):
            raise Abandoned("nobody waits for this any more.")


def run_jobs(explainer: Explainer, jobs: Sequence[Job]) -> list[Any]:
    """Jobs with the same key, in one call."""
    with explainer.session.exclusive():
        return type(jobs[0]).run(explainer, jobs)


@contextmanager
def stopping_between_forwards(explainer: Explainer, check: Any) -> Iterator[None]:
    """Call `check` before every forward of the model in this thread: what it raises ends long work (perturbations, paths) in
    between. Who runs the same model in another thread is not meant."""
    own = threading.get_ident()
    with (
        explainer.session.exclusive()
    ):  # a hook that comes while another thread has the model would go with that thread's
        handle = explainer.model.register_forward_pre_hook(lambda *_: check() if threading.get_ident() == own else None)
    try:
        yield
    finally:
        handle.remove()
