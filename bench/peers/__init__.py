"""Other libraries, each in a process and, if `make bench-env` made one, an environment of its own.

An environment is a folder `.bench-env/NAME` with what the library brings on top of this one; it goes first on the worker's path. The
worker (bench.peers.worker) answers in lines of JSON, and stays alive so that its runs take turns with ours.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from bench.measure import Taken
from bench.settings import Settings
from bench.shapes import Shape

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".bench-env"


@dataclass(frozen=True)
class Job:
    """What a peer is to do: one method on random rows of a random model, as ours does."""

    method: str  # by whence's name
    shape: Shape
    rows: int
    tokens: int
    model: str = "bert"  # "bert", "gpt2" (classifiers) or "gpt2-lm"
    points: int = 0  # steps, samples or permutations, by the method
    batch: int = 128  # how many changed rows may run at once
    device: str = "cpu"
    precision: str = "float32"
    threads: int = 2
    clock: str = "wall"

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> Job:
        return Job(**{**found, "shape": Shape(**found["shape"])})


class PeerError(RuntimeError):
    """A peer is absent, or failed."""


@dataclass
class PeerRun:
    """One job at one peer; made on first use, so that what goes wrong becomes a row."""

    peer: Peer
    job: Job
    beside: str  # the row of ours that does the same
    number: int | None = None
    note: str = ""

    def take(self) -> Taken:
        reply = self.peer.ask(run=self.made())
        return Taken(reply["seconds"], reply["megabytes"])

    def scores(self) -> list[list[float]]:
        """What the run found, where it is one score per token."""
        found: list[list[float]] = self.peer.ask(scores=self.made())["scores"]
        return found

    def made(self) -> int:
        if self.number is None:
            self.number = self.peer.ask(make=asdict(self.job))["number"]
        assert self.number is not None
        return self.number


@dataclass
class Peer:
    """A worker process for one library."""

    name: str
    process: subprocess.Popen[str] | None = None
    said: IO[str] = field(default_factory=lambda: tempfile.TemporaryFile("w+"))  # noqa: SIM115  its stderr
    version: str = ""
    error: str = ""  # why it cannot be used

    def start(self) -> None:
        folders = [str(p) for p in ENVIRONMENTS.glob(f"{self.name}/lib/python*/site-packages")]
        inherited = os.environ.get("PYTHONPATH", "")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*folders, str(ROOT), *inherited.split(os.pathsep)])}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.peers.worker", self.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        try:
            self.version = self.ask(hello=True)["version"]
        except PeerError as error:
            self.error = str(error)

    def ask(self, **message: Any) -> dict[str, Any]:
        if self.error:
            raise PeerError(self.error)
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            self.said.seek(0)
            last = (self.said.read().strip().splitlines() or ["without a word"])[-1]
            self.error = f"the process of {self.name} ended: {last}"
            raise PeerError(self.error)
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise PeerError(reply["error"])
        return reply

    def stop(self) -> None:
        if self.process is not None:
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process.stdout.close()
        self.said.close()


@dataclass
class Company:
    """The peers asked for, started when they are first needed; a `with` block ends them."""

    settings: Settings
    peers: dict[str, Peer] = field(default_factory=dict)

    def __enter__(self) -> Company:
        return self

    def __exit__(self, *exc: object) -> None:
        for peer in self.peers.values():
            peer.stop()

    def runs(self, jobs: Mapping[str, Job]) -> dict[str, PeerRun]:
        """{"row · peer": its run} for every peer that offers the job of a row."""
        found = {}
        for name in self.settings.peers:
            offered = methods_of(name)
            for row, job in jobs.items():
                if (job.model, job.method) in offered:
                    found[f"{row} · {name}"] = PeerRun(self.peer(name), job, row, note=self.peer(name).version)
        return found

    def peer(self, name: str) -> Peer:
        if name not in self.peers:
            self.peers[name] = Peer(name)
            self.peers[name].start()
        return self.peers[name]


def methods_of(peer: str) -> dict[tuple[str, str], Any]:
    """(model, method) → how the peer does it."""
    found: dict[tuple[str, str], Any] = importlib.import_module(f"bench.peers.{peer}").METHODS
    return found
