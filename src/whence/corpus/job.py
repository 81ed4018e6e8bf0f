"""Everything that decides what a shard holds, in one value that travels to any worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whence.corpus.sources import Source
from whence.corpus.sources.runs import settings_digest, shard_name
from whence.errors import InputError, UnknownName
from whence.inputs.numbers import whole

SCORES = ("float32", "float16", "float64")
SHARD_ROWS = 2048
MAX_PADDING = 0.05  # of a batch


@dataclass(frozen=True)
class Job:
    """One corpus, one model, one set of methods and options. Shard k holds rows [k·shard_rows, (k+1)·shard_rows)."""

    source: Source
    directory: Path
    methods: tuple[str, ...]
    options: Mapping[str, Any]
    roles: Mapping[str, str]  # role → column
    asked: Mapping[str, Any]  # target, contrast, continuation, place: for every row alike
    keep: Mapping[str, Any]  # column → Arrow type
    settings: Mapping[str, Any]  # what a second run must agree with
    load: Mapping[str, Any]  # how a worker loads the model: arguments of whence.load
    rows: int
    shard_rows: int = SHARD_ROWS
    batch_tokens: int = 8192
    on_long: str = "truncate"
    scores: str = "float32"
    threads: int | None = None
    identity: Mapping[str, Any] = field(default_factory=dict)  # what a worker's model must be (`identity_of`)
    strict: bool = False  # the first row in error ends the run

    @property
    def shards(self) -> int:
        return -(-self.rows // self.shard_rows)

    def span(self, shard: int) -> tuple[int, int]:
        """The rows [start, stop) of a shard."""
        return shard * self.shard_rows, min((shard + 1) * self.shard_rows, self.rows)

    def file(self, shard: int) -> Path:
        return self.directory / shard_name(shard)

    @property
    def digest(self) -> str:
        """Every shard names the settings it was made with by this."""
        return settings_digest(self.settings)


@dataclass
class Profile:
    """Where the time went, and what was padded; adds up over batches, shards and workers."""

    seconds: dict[str, float] = field(default_factory=dict)  # stage → seconds of the thread that does it
    tokens: int = 0
    padded: int = 0  # tokens with padding

    def add(self, other: Profile) -> None:
        for stage, seconds in other.seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        self.tokens += other.tokens
        self.padded += other.padded

    @property
    def padding(self) -> float:
        """The share of what was run that was padding."""
        return 1 - self.tokens / self.padded if self.padded else 0.0


@dataclass(frozen=True)
class Finished:
    """What a shard holds, without its rows."""

    shard: int
    rows: int
    errors: int
    truncated: int
    tokens: int
    profile: Profile = field(default_factory=Profile)
    unkept: int = 0  # kept values that do not fit their column
    incomplete: int = 0  # rows with scores that leave too much unexplained
    version: str = ""  # of whence, which made it


def check(shard_rows: int, batch_tokens: int, scores: str, on_long: str) -> None:
    for name, value in (("shard_rows", shard_rows), ("batch_tokens", batch_tokens)):
        whole(name, value)
    if scores not in SCORES:
        raise UnknownName("type of scores", scores, SCORES)
    if on_long not in ("truncate", "error"):
        raise InputError(
            f"on_long={on_long!r}: choose 'truncate' (rows are marked) or 'error' (the row's error says so)."
        )
