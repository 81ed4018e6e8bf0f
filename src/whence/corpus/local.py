"""The local engine: this process, or one process per GPU; a process that dies is replaced and its shards are made again."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import warnings
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from whence.corpus.job import Finished, Job
from whence.corpus.rows import Advance
from whence.corpus.worker import Worker
from whence.errors import Incomplete, Truncated, WhenceError

LIVES = 3  # how many processes a shard may take down before it ends the run


def devices(device: str | None, workers: int | None) -> list[str | None]:
    """Where each worker runs: every GPU where there are some and none is named, else as many processes as asked for."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device is None and count:
        return [f"cuda:{i % count}" for i in range(workers or count)]
    return [device] * (workers or 1)


def run_processes(
    job: Job, on: Sequence[str | None], shards: Sequence[int], advance: Advance
) -> Generator[Finished, None, None]:
    """Shards as they are finished, in no order."""
    team = Team(job, deque(shards))
    try:
        for device in on:
            team.start(device)
        yield from team.finished(advance)
    finally:
        team.stop()


@dataclass
class Member:
    """One process, and the shards that it has been given and has not brought back."""

    process: BaseProcess
    device: str | None
    has: set[int] = field(default_factory=set)


@dataclass
class Team:
    """Hands out shard numbers and takes back what became of them."""

    job: Job
    left: deque[int]
    members: dict[Connection, Member] = field(default_factory=dict)
    deaths: Counter[int] = field(default_factory=Counter)

    def start(self, device: str | None) -> None:
        context = multiprocessing.get_context("spawn")  # CUDA and threads do not survive a fork
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs, self.job, device), daemon=True)
        process.start()
        theirs.close()
        self.members[ours] = Member(process, device)

    def finished(self, advance: Advance) -> Generator[Finished, None, None]:
        while self.members:
            for connection in multiprocessing.connection.wait(list(self.members)):
                assert isinstance(connection, Connection)
                member = self.members[connection]
                try:
                    said = connection.recv()
                except (EOFError, OSError):
                    self.bury(connection)
                    continue
                if isinstance(said, Finished):
                    member.has.discard(said.shard)
                    advance(said.rows, said.tokens)
                    yield said
                elif isinstance(said, tuple):
                    raise as_error(*said)
                else:
                    self.hand_out(connection, member)

    def hand_out(self, connection: Connection, member: Member) -> None:
        shard = self.left.popleft() if self.left else None
        if shard is not None:
            member.has.add(shard)
        try:
            connection.send(shard)
        except OSError:
            self.bury(connection)

    def bury(self, connection: Connection) -> None:
        """A process has ended: well if it has brought everything back, else another takes its place."""
        member = self.members.pop(connection)
        connection.close()
        member.process.join()
        for shard in sorted(member.has, reverse=True):
            self.deaths[shard] += 1
            self.left.appendleft(shard)
        worst = max(member.has, key=self.deaths.__getitem__, default=None)
        if worst is None and not member.process.exitcode:
            return
        if worst is None or self.deaths[worst] >= LIVES:
            about = "" if worst is None else f" on shard {worst}, {LIVES} times"
            raise WhenceError(
                f"a worker process died{about} (exit code {member.process.exitcode}; out of memory?). Finished shards are kept: "
                "run again with fewer --workers or a smaller --batch-tokens."
            )
        self.start(member.device)

    def stop(self) -> None:
        for connection, member in self.members.items():
            member.process.terminate()
            member.process.join()
            connection.close()


def as_error(kind: str, number: int | None, text: str) -> Exception:
    """An error of another process: of the disk by its number, else its sentence."""
    return OSError(number, text) if kind == "disk" else WhenceError(text)


def as_message(error: Exception) -> tuple[str, int | None, str]:
    if isinstance(error, OSError) and not isinstance(error, WhenceError):
        return "disk", error.errno, str(error.strerror or error)
    return "error", None, str(error) if isinstance(error, WhenceError) else f"{type(error).__name__}: {error}"


def work(connection: Connection, job: Job, device: str | None) -> None:
    """A worker process: asks for shards until there are none."""
    warnings.simplefilter("ignore", Truncated)
    warnings.simplefilter("ignore", Incomplete)

    def asked() -> Iterator[int]:
        while True:
            connection.send("next")
            shard: Any = connection.recv()
            if shard is None:
                return
            yield shard

    try:
        try:
            for finished in Worker.load(job, device).run(asked()):
                connection.send(finished)
        except (EOFError, BrokenPipeError, KeyboardInterrupt):
            raise
        except Exception as error:
            connection.send(as_message(error))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        pass  # whoever asked is gone
