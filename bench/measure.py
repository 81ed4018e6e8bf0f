"""Timing and memory, the same way for every suite: ratios to the floor, measured in turns in one process."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from bench.settings import CLOCKS, Settings
from bench.table import Row, Table


@dataclass(frozen=True)
class Taken:
    """What a run took, where it ran elsewhere and was measured there."""

    seconds: float
    megabytes: float


class Away(Protocol):
    """A run in another process (bench.peers)."""

    note: str
    beside: str

    def take(self) -> Taken: ...


Run = Callable[[], object]
Runs = Mapping[str, Run | Away]


class PeakMemory:
    """The most memory above the start while the block runs: allocated on CUDA, else resident as Linux counts it (NaN elsewhere)."""

    megabytes = float("nan")

    def __init__(self, device: str = "cpu") -> None:
        self._cuda = device.startswith("cuda")

    def __enter__(self) -> PeakMemory:
        gc.collect()
        if self._cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self._start = torch.cuda.memory_allocated() / 2**20
            return self
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)  # give back what was freed, or it would hide what is taken
            Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
            self._start = memory_of_this_process("VmRSS")
        return self

    def __exit__(self, *exc: object) -> None:
        if self._cuda:
            torch.cuda.synchronize()
            self.megabytes = torch.cuda.max_memory_allocated() / 2**20 - self._start
            return
        with contextlib.suppress(OSError, AttributeError):
            self.megabytes = memory_of_this_process("VmHWM") - self._start


def memory_of_this_process(key: str) -> float:
    """A line of /proc/self/status, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1]) / 1024


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_of(run: Run, clock: str = "wall") -> float:
    synchronize()
    start = CLOCKS[clock]()
    run()
    synchronize()
    return CLOCKS[clock]() - start


def take(run: Run | Away, device: str, clock: str) -> Taken:
    """Time and memory of one run."""
    if not callable(run):
        return run.take()
    with PeakMemory(device) as memory:
        seconds = seconds_of(run, clock)
    return Taken(seconds, memory.megabytes)


def measure(runs: Runs, settings: Settings, usual: int, times: Mapping[str, float] | None = None) -> list[Row]:
    """Every run once per turn, in turn, so that what else the machine does hits all of them alike; minima count.

    usual: how many turns there are, unless the settings say. A first turn warms up and measures memory; it counts only if there are no other turns, for runs that take so long that they
    warm themselves. The first run, which ratios are to, is timed warm all the same. times: what a run's seconds are multiplied
    by, where it does a part of the work. A run that fails becomes a row that says so.
    """
    rows, turns, clock = {name: Row(name) for name in runs}, settings.turns_or(usual), settings.clock
    for name, run in runs.items():
        if not callable(run):
            rows[name].note, rows[name].beside = run.note, run.beside
        with failing(rows[name]):
            first = take(run, settings.device, clock)
            rows[name].megabytes = first.megabytes
            rows[name].seconds = None if turns else first.seconds * (times or {}).get(name, 1.0)
    for _ in range(max(turns, 1)):
        for name, run in list(runs.items())[: None if turns else 1]:
            if not rows[name].failed:
                with failing(rows[name]):
                    taken = (seconds_of(run, clock) if callable(run) else run.take().seconds) * (times or {}).get(
                        name, 1.0
                    )
                    rows[name].seconds = min(rows[name].seconds or taken, taken)
    return list(rows.values())


@contextlib.contextmanager
def failing(row: Row):  # type: ignore[no-untyped-def]
    """What goes wrong is said in the row; the other rows are measured all the same."""
    try:
        yield
    except Exception as error:
        row.failed, row.seconds = True, None
        row.note = f"does not run: {type(error).__name__}: {error}".splitlines()[0][:200]
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def against(rows: list[Row], title: str, floor: str, wanted: Mapping[str, Mapping[str, float]] | None = None) -> Table:
    """A table of rows with their ratios to one of them, and the bars wanted of some."""
    unit = next(row for row in rows if row.name == floor)
    for row in rows:
        if row.seconds is not None and unit.seconds:
            row.ratio = row.seconds / unit.seconds
        if row.megabytes is not None and unit.megabytes is not None:
            row.extra_megabytes = row.megabytes - unit.megabytes
        row.wanted = dict((wanted or {}).get(row.name, {}))
    return Table(title, rows, floor)
