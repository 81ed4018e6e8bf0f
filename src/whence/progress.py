"""A progress bar on a terminal, nothing elsewhere; one place so that all long work looks the same."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


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
