"""What Python does while a GPU's backward is launched.

Autograd launches it from a thread of its own, and whoever asked for it waits: on a batch that does not fill the device that is nearly
half of a call. Answers that are there already are read in this time, and the model is looked at again, by a thread that all calls
share. The launch needs Python's lock only to free what Python once named, and a graph that is kept spares it that
(`recording.KEPT_TOKENS`).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from torch import Tensor

Found = TypeVar("Found")


class Later(Generic[Found]):
    """A job that is done once, by whoever comes first: the thread that was given it, or the one that asks for what it finds. So nobody
    waits for a thread that is busy, or gone (in a forked process)."""

    def __init__(self, job: Callable[[], Found]) -> None:
        self._job: Callable[[], Found] | None = job
        self._lock = threading.Lock()
        self._found: list[Found] = []
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Do the job, unless it is done; what goes wrong is said to whoever asks."""
        with self._lock:
            if self._job is None:
                return
            try:
                self._found.append(self._job())
            except BaseException as error:
                self._error = error
            self._job = None

    def __call__(self) -> Found:
        self.begin()
        if self._error is not None:
            raise self._error
        return self._found[0]


class Meanwhile:
    """The jobs for the time of one backward. in_python: it runs Python itself (rules of relevance) and would take turns with them, so
    none is begun, and whoever asks for what a job finds does it."""

    def __init__(self, in_python: bool = False) -> None:
        self.in_python = in_python
        self._waiting: list[Later[Any]] = []

    def add(self, later: Later[Any]) -> None:
        self._waiting.append(later)

    def begin_with(self, start: Tensor) -> bool:
        """Give the jobs to the thread when the backward from `start` runs: any earlier, and they would have Python's lock while it is
        still being asked for. Tells whether that will be."""
        if self.in_python or not self._waiting or not launched_by_another_thread(start):
            return False
        start.register_hook(self._begin)  # type: ignore[no-untyped-call]
        return True

    def _begin(self, gradient: Tensor) -> None:
        while self._waiting:
            give(self._waiting.pop(0))


def launched_by_another_thread(tensor: Tensor) -> bool:
    """Whether autograd leaves Python to others while it runs the tensor's backward: on a CPU it computes, and has use for every core."""
    return tensor.is_cuda


_given: SimpleQueue[Later[Any]] = SimpleQueue()
_starting = threading.Lock()
_thread: threading.Thread | None = None


def give(later: Later[Any]) -> None:
    """To the thread, which is started for the first job. Where none can be started (the program is ending), whoever asks does the job."""
    global _thread
    if _thread is None:
        with _starting, contextlib.suppress(RuntimeError):
            if _thread is None:
                thread = threading.Thread(target=work, name="whence-meanwhile", daemon=True)
                thread.start()
                _thread = thread
    if _thread is not None:
        _given.put(later)


def work() -> None:
    while True:
        later = _given.get()
        later.begin()
        del later  # or the last batch's answers would be held until the next


def forget_thread() -> None:
    """A forked process has none of its parent's threads."""
    global _given, _starting, _thread
    _given, _starting, _thread = SimpleQueue(), threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_thread)
