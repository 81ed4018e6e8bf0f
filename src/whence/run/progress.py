"""How far long work is: a bar on a terminal, log lines elsewhere; one place so that all long work looks the same."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")

LOG_SECONDS = 10.0
SHOWN_SECONDS = 1.0  # work that is done by then shows no bar
log = logging.getLogger("whence")


def track(items: Iterable[T], total: int, what: str, show: bool | None, at_least: int = 8) -> Iterator[T]:
    """Yield items, with a bar if `show` (None: on a terminal, for at least `at_least` items)."""
    if show is None:
        show = total >= at_least and sys.stderr.isatty()
    if not show:
        yield from items
        return
    from rich.console import Console
    from rich.progress import track as rich_track

    yield from rich_track(items, description=what, total=total, console=Console(stderr=True), transient=True)


class Counter:
    """Rows done, of how many, how many a second, and when it will be finished; tokens too, where they are counted.
    Elsewhere than on a terminal it logs a line every few seconds."""

    def __init__(
        self, what: str, total: int, bar: Progress | None = None, *, silent: bool = False, before: int = 0
    ) -> None:
        self.what, self.total, self.done, self.tokens = what, total, before, 0
        self._before = before  # rows that an earlier run has done
        self._bar, self._silent = bar, silent
        self._started = self._logged = time.monotonic()
        self._task = None
        if bar is not None:
            self._task = bar.add_task(what, total=total, completed=before, rate="", visible=False)

    def expect(self, total: int) -> None:
        """More, or fewer, rows than was thought."""
        self.total = total

    def advance(self, rows: int, tokens: int = 0) -> None:
        self.done += rows
        self.tokens += tokens
        now = time.monotonic()
        if self._bar is not None and self._task is not None:
            shown = now - self._started >= SHOWN_SECONDS
            self._bar.update(self._task, completed=self.done, total=self.total, rate=self.rates, visible=shown)
        elif not self._silent and now - self._logged >= LOG_SECONDS:
            self._logged = now
            log.info("%s: %s", self.what, self)

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self._started, 1e-9)

    @property
    def rate(self) -> float:
        """Rows a second, since the start."""
        return (self.done - self._before) / self.seconds

    @property
    def rates(self) -> str:
        tokens = f", {self.tokens / self.seconds:,.0f} tokens/s" if self.tokens else ""
        return f"{self.rate:,.0f} rows/s{tokens}"

    def __str__(self) -> str:
        left = f", {duration((self.total - self.done) / self.rate)} left" if self.rate > 0 else ""
        return f"{self.done:,} of {self.total:,} rows, {self.rates}{left}"


def duration(seconds: float) -> str:
    """
    >>> duration(59), duration(3_725), duration(200_000)
    ('0:59', '1:02:05', '2 d 7:33:20')
    """
    minutes, s = divmod(round(max(seconds, 0)), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    clock = f"{h}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"
    return f"{days} d {clock}" if days else clock


@contextmanager
def counting(what: str, total: int, show: bool | Counter | None, before: int = 0) -> Iterator[Counter]:
    """A counter of rows: a bar on a terminal and log lines elsewhere, neither if `show` is False. A counter that is shown
    already counts on; `before` rows were done by an earlier run."""
    if isinstance(show, Counter):
        yield show
        return
    if show is False or not sys.stderr.isatty():
        yield Counter(what, total, silent=show is False, before=before)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,} of {task.total:,} rows"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield Counter(what, total, bar, before=before)
