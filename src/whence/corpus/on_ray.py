"""The Ray engine: actors that each hold a model, make shards and write them.

The job travels out once, shard numbers after it, and a line per shard travels back; an actor never has more than two shards in
hand. A run asks for its actors before anything else, so that they import what they need while it plans. The shards of an actor
that dies, or of a whole machine, go to the others, and another actor is asked for wherever there is room. Two actors that make the
same shard write the same bytes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from whence.corpus.cluster import OVERLAP, Connection, Told, hire
from whence.corpus.job import Finished, Job
from whence.corpus.local import LIVES, as_error
from whence.corpus.rows import Advance
from whence.errors import WhenceError

NONE = -1  # in the place of a shard: the actor had none yet


@dataclass(frozen=True)
class Wish:
    """What every actor is to be."""

    threads: int
    workers: int | None  # None: as many as there is room for
    gpus: float | None  # of each, whole or a fraction


class Crew:
    """The actors of a run, on a cluster that may still be on its way."""

    def __init__(self, connection: Connection, wish: Wish) -> None:
        self.connection, self.wish = connection, wish
        self._team: Future[Team] | None = None

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._team is not None and self._team.exception() is None:
            self._team.result().stop()

    def start(self) -> Future[Team]:
        """Ask for the actors as soon as the cluster is there, and wait for nothing."""
        if self._team is None:
            self._team = self.connection.thread.submit(self._start, self.connection.begin())
        return self._team

    def _start(self, connected: Future[Any]) -> Team:
        ray = connected.result()
        team, workers = Team(ray, self.wish), self.wish.workers
        if self.connection.first is not None:
            team.welcome(self.connection.first)
        if workers is None or self.connection.made_here:  # it does not grow: an actor without room would never come
            room = fitting(ray, self.wish.threads, self.wish.gpus)
        for _ in range((workers or room) - len(team.actors)):
            team.add()
        return team

    def run(self, job: Job, shards: Sequence[int], advance: Advance) -> Generator[Finished, None, None]:
        """Shards as they are finished, in no order."""
        for made, failed in self.start().result().results(job, shards):
            if failed is not None:
                raise as_error(*failed)
            assert made is not None
            if not job.file(made.shard).exists():
                raise WhenceError(
                    f"a worker wrote shard {made.shard}, and it is not in {str(job.directory)!r} here: give an --output "
                    "directory that every machine of the cluster shares."
                )
            advance(made.rows, made.tokens)
            yield made


@dataclass
class Team:
    """The actors of a run, and which of them has which shard."""

    ray: Any
    wish: Wish
    actors: list[Any] = field(default_factory=list)
    # awaited → actor, and which shard; None: that the actor is there
    has: dict[Any, tuple[Any, int | None]] = field(default_factory=dict)
    free: list[Any] = field(default_factory=list)  # actors that could take a shard, once for each
    deaths: Counter[int] = field(default_factory=Counter)

    def add(self) -> None:
        """Ask for an actor."""
        own = {"num_gpus": self.wish.gpus} if self.wish.gpus else {"num_cpus": self.wish.threads}
        self.welcome(hire(self.ray, **own))

    def welcome(self, actor: Any) -> None:
        """It gets shards when it is there."""
        self.actors.append(actor)
        self.has[actor.ready.remote()] = actor, None

    def results(self, job: Job, shards: Sequence[int]) -> Generator[Told, None, None]:
        left, told = deque(shards), self.ray.put(job)
        while left or any(shard is not None for _, shard in self.has.values()):
            while left and self.free:
                owner, given = self.free.pop(), left.popleft()
                self.has[owner.make.remote(told, given)] = owner, given
            done, _ = self.ray.wait(list(self.has))
            actor, shard = self.has.pop(done[0])
            try:
                found = self.ray.get(done[0])
            except self.ray.exceptions.RayError as error:
                left.extendleft(self.bury(actor, shard, error))
                continue
            self.free += [actor] * (OVERLAP if shard is None else 1)
            if shard is None:
                self.deaths.pop(NONE, None)  # one has come up
            else:
                yield found

    def bury(self, actor: Any, shard: int | None, error: Exception) -> list[int]:
        """An actor has died: its shards, to be given to others; another is asked for in its place."""
        waits = [waiting for waiting, (owner, _) in self.has.items() if owner is actor]
        lost = [n for n in (shard, *(self.has.pop(waiting)[1] for waiting in waits)) if n is not None]
        self.deaths.update(lost or [NONE])
        worst, times = self.deaths.most_common(1)[0]
        if times >= LIVES:
            about = "came up" if worst == NONE else f"survived shard {worst}"
            raise WhenceError(
                f"of {times} Ray actors none {about} (the last: {str(error).splitlines()[0]}). Finished shards are kept: run "
                "again with a smaller --batch-tokens or more memory for each worker."
            )
        self.actors.remove(actor)
        self.free = [one for one in self.free if one is not actor]
        self.ray.kill(actor)
        self.add()
        return lost

    def stop(self) -> None:
        for actor in self.actors:
            self.ray.kill(actor)


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
