"""The Ray engine: shard numbers as a Ray Dataset, mapped by a pool of actors that each hold a model and write what they make.

Only numbers travel out and only a line per shard travels back, so Ray's object store stays empty and its back-pressure holds
no more than a few shards per actor. An actor that dies, or a whole machine, is Ray's to replace: the shards it had are given
to another, which leaves alone what was finished. Two actors that make the same shard write the same bytes.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from whence.corpus.job import Finished, Job, Profile
from whence.corpus.local import as_error, as_message
from whence.corpus.manifest import finished
from whence.corpus.rows import Advance
from whence.corpus.worker import Worker
from whence.errors import Truncated, WhenceError

OVERLAP = 2  # shards that an actor has in hand: one on the model, one being tokenised or written; more would wait for it alone


class Maker:
    """An actor. Errors come back as rows: they are the run's to raise, not Ray's to retry."""

    def __init__(self, job: Job) -> None:
        warnings.simplefilter("ignore", Truncated)
        self.failed: tuple[str, int | None, str] | None = None
        self.job = job
        # Ray calls from threads of its own. OpenMP gives every thread that computes a team of its own, and once there are more
        # of these than cores, teams sleep between two operations instead of waiting awake (docs/decisions on the corpus has figures).
        self.computing = ThreadPoolExecutor(1, "model")
        try:
            self.worker = self.computing.submit(Worker.load, self.job).result()
        except Exception as error:
            self.failed = as_message(error)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        shard = int(batch["shard"][0])
        try:
            if self.failed is not None:
                raise as_error(*self.failed)
            made = finished(self.job, shard) or self.worker.one(shard, self.computing)
            told: dict[str, Any] = {"made": asdict(made), "failed": None}
        except Exception as error:
            told = {"made": None, "failed": as_message(error)}
        return {"told": [json.dumps(told)]}


def run_on_ray(
    job: Job,
    shards: Sequence[int],
    advance: Advance,
    *,
    address: str | None,
    workers: int | None,
    gpus: float | None,
) -> Generator[Finished, None, None]:
    """Shards as they are finished, in no order, on the cluster at `address` (None: one that is made here and taken down)."""
    ray = import_ray()
    started = not ray.is_initialized()
    if started:
        connect(ray, address)
    try:
        for told in results(ray, job, shards, workers, gpus):
            said = json.loads(told)
            if said["failed"] is not None:
                raise as_error(*said["failed"])
            made = said["made"]
            found = Finished(**{**made, "profile": Profile(**made["profile"])})
            if not job.file(found.shard).exists():
                raise WhenceError(
                    f"a worker wrote shard {found.shard}, and it is not in {str(job.directory)!r} here: give an --output "
                    "directory that every machine of the cluster shares."
                )
            advance(found.rows, found.tokens)
            yield found
    finally:
        if started:
            ray.shutdown()


def import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing phones home
    try:
        import ray
        import ray.data
    except ImportError:
        raise WhenceError("--engine ray needs Ray: pip install 'whence[ray]'.") from None
    return ray


def connect(ray: Any, address: str | None) -> None:
    if address is None:
        # Ray's workers give way to everybody else (nice 15), its own helpers among them; here they are all there is to do
        os.environ.setdefault("RAY_worker_niceness", "0")
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


def results(ray: Any, job: Job, shards: Sequence[int], workers: int | None, gpus: float | None) -> Iterator[str]:
    from ray.data import ActorPoolStrategy, DataContext

    context = DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    cpus = job.threads or 1
    most = workers or fitting(ray, cpus, gpus)
    numbers = ray.data.from_items([{"shard": shard} for shard in shards], override_num_blocks=len(shards))
    made = numbers.map_batches(
        Maker,
        fn_constructor_args=(job,),
        batch_size=1,
        compute=ActorPoolStrategy(
            min_size=1,
            max_size=most,
            initial_size=most,
            max_tasks_in_flight_per_actor=OVERLAP,
            max_concurrent_calls_per_actor=OVERLAP,
            enable_true_multi_threading=True,
        ),
        num_cpus=cpus if not gpus else None,
        num_gpus=gpus,
    )
    for batch in made.iter_batches(batch_size=None, prefetch_batches=0):
        yield from batch["told"]


def fitting(ray: Any, cpus: float, gpus: float | None) -> int:
    """As many actors as the cluster has room for."""
    have = ray.cluster_resources()
    room = have.get("GPU", 0) / gpus if gpus else have.get("CPU", 1) / cpus
    if room < 1:
        raise WhenceError(
            f"the cluster has {have.get('GPU', 0):g} GPUs and {have.get('CPU', 0):g} CPUs, and one worker asks for "
            f"{f'{gpus:g} GPUs' if gpus else f'{cpus:g} CPUs'}: give less by --gpus or --threads."
        )
    return int(room)
