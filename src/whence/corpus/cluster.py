"""A Ray cluster, connected to on a thread of its own while the caller goes on: imports what it needs, loads a model, plans.

Nothing heavy is imported here: a command begins with this, and an actor is up as soon as its process is.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from whence.errors import WhenceError
from whence.run import interrupts

if TYPE_CHECKING:
    from whence.corpus.job import Finished, Job
    from whence.corpus.worker import Worker

OVERLAP = 2  # shards that an actor has in hand: one on the model, one being tokenised or written; more would wait for it alone
SERVICES = ("start_monitor", "start_api_server", "start_log_monitor")  # methods of Ray's class of a machine
Told = tuple["Finished | None", tuple[str, int | None, str] | None]  # what became of a shard: made, or failed


class Maker:
    """An actor that makes shards. Errors come back as values: they are the run's to raise, not Ray's to retry."""

    def __init__(self) -> None:
        # Ray calls from threads of its own. OpenMP gives every thread that computes a team of its own, and once there are more
        # of these than cores, teams sleep between two operations instead of waiting awake (docs/decisions on the corpus has figures).
        self.computing = ThreadPoolExecutor(1, "model")
        self.imported = self.computing.submit(import_module, "whence.corpus.worker")
        self.worker: Worker | None = None
        self.lock = threading.Lock()

    def ready(self) -> None:
        """Answers once the actor is there; what it needs may still be on its way."""

    def make(self, job: Job, shard: int) -> Told:
        self.imported.result()
        from whence.corpus.local import as_message
        from whence.corpus.manifest import finished
        from whence.corpus.worker import Worker, load_explainer
        from whence.errors import Incomplete, Truncated

        warnings.simplefilter("ignore", Truncated)
        warnings.simplefilter("ignore", Incomplete)
        try:
            with self.lock:
                if self.worker is None:
                    loading = self.computing.submit(load_explainer, job.load, job.threads)
                    self.worker = Worker.of(job, loading.result())
            return finished(job, shard) or self.worker.one(shard, self.computing), None
        except Exception as error:
            return None, as_message(error)


def hire(ray: Any, **resources: float) -> Any:
    """Ask for an actor; it comes when there is room for it."""
    return ray.remote(Maker).options(max_concurrency=OVERLAP, **resources).remote()


class Connection:
    """The cluster at `address`; None: the one that RAY_ADDRESS names, else one that is made here, whatever else stands on this
    machine. A cluster that was connected to here is left, and one that was made here taken down, at the end of the block."""

    def __init__(self, address: str | None = None) -> None:
        named = address or os.environ.get("RAY_ADDRESS") or "local"
        self.address = None if named == "local" else named
        # Its one thread lives as long as the cluster: Linux ends the processes that a thread has started together with the thread.
        self.thread = ThreadPoolExecutor(1, "ray")
        self._ray: Future[Any] | None = None
        self._ours = False  # Ray was connected to here, not by the caller before
        self.first: Any = None  # an actor that was hired before anybody said how many there are to be

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

    def begin(self, *, hiring: bool = False) -> Future[Any]:
        """Connect, and wait for nothing but the import of Ray, which would only come to stand beside the caller's own work: Python
        runs one of the two at a time. What comes is the package `ray`, connected.

        hiring: there will be at least one actor without a GPU; a cluster of our own can ask for it at once.
        """
        interrupts.begin()  # a cluster of our own has to be put away
        if self._ray is None:
            self._ray = self.thread.submit(self._connect, import_ray(), hiring)
        return self._ray

    def _connect(self, ray: Any, hiring: bool) -> Any:
        if not ray.is_initialized():
            connect(ray, self.address)
            self._ours = True
        if hiring and self.made_here:
            # how many threads it will have is not known yet, and nobody else is here
            self.first = hire(ray, num_cpus=0)
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
    """To the cluster at an address, or to one that is made for us."""
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address is None:
            make_cluster(ray, quiet)
        else:
            ray.init(address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise WhenceError(
            f"no Ray cluster answers at {address or 'this machine'!r}: {str(error).splitlines()[0]} "
            "Start one with `ray start --head`, or leave --address and RAY_ADDRESS out."
        ) from error


def make_cluster(ray: Any, quiet: dict[str, Any]) -> None:
    """One machine, with what actors need and no more; where this version of Ray will not have it so, with all that it starts."""
    # Ray's workers give way to everybody else (nice 15); here they are all there is to do
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")  # processes for tasks, of which there are none
    try:
        with without_services():
            ray.init("local", include_dashboard=False, **quiet)
    except Exception:
        ray.shutdown()
        ray.init("local", include_dashboard=False, **quiet)


@contextmanager
def without_services() -> Iterator[None]:
    """Within the block Ray starts no process that would make the cluster grow, show it in a browser or collect its logs. There is
    no public word for that: `include_dashboard=False` still starts the dashboard's process, and waits for it."""
    node = getattr(sys.modules.get("ray._private.node"), "Node", None)
    usual = {name: getattr(node, name) for name in SERVICES if hasattr(node, name)}
    try:
        for name in usual:
            setattr(node, name, lambda self, *given, **named: None)
        yield
    finally:
        for name, start in usual.items():
            setattr(node, name, start)
