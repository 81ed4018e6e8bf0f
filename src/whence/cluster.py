"""A Ray cluster, connected to on a thread of its own while the caller goes on: imports what it needs, loads a model, plans."""

from __future__ import annotations

import logging
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from whence.errors import WhenceError


class Connection:
    """The cluster at `address`; None: one that is made here. A cluster that was connected to here is left, and one that was made
    here taken down, at the end of the block."""

    def __init__(self, address: str | None = None) -> None:
        self.address = address
        # Its one thread lives as long as the cluster: Linux ends the processes that a thread has started together with the thread.
        self.thread = ThreadPoolExecutor(1, "ray")
        self._ray: Future[Any] | None = None
        self._ours = False  # Ray was connected to here, not by the caller before

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._ray is not None and self._ray.exception() is None and self._ours:  # waits for what has begun
            self._ray.result().shutdown()
            self._ours = False
        self.thread.shutdown()

    @property
    def made_here(self) -> bool:
        """Whether this is a cluster of our own, on this machine, that does not grow."""
        return self._ours and self.address is None

    def begin(self) -> Future[Any]:
        """Connect, and wait for nothing but the import of Ray, which would only come to stand beside the caller's own work: Python
        runs one of the two at a time. What comes is the package `ray`, connected."""
        if self._ray is None:
            self._ray = self.thread.submit(self._connect, import_ray())
        return self._ray

    def _connect(self, ray: Any) -> Any:
        if not ray.is_initialized():
            connect(ray, self.address)
            self._ours = True
        return ray


def import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing phones home
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise WhenceError("--engine ray needs Ray: pip install 'whence[ray]'.") from None
    return ray


def connect(ray: Any, address: str | None) -> None:
    if address is None:
        # Ray's workers give way to everybody else (nice 15); here they are all there is to do
        os.environ.setdefault("RAY_worker_niceness", "0")
        os.environ.setdefault("RAY_prestart_worker_first_driver", "0")  # processes for tasks, of which there are none
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=False if address is None else None,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise WhenceError(
            f"no Ray cluster answers at {address or 'this machine'!r}: {str(error).splitlines()[0]} "
            "Start one with `ray start --head`, or leave --address out."
        ) from error
