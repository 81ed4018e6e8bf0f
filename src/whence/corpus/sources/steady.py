"""Input files that must hold, while a run reads them, what they held when it began.

A file is hashed once, at the beginning. From then on the system says whether it was touched: its size, its times and its number. One
that was touched is hashed again: what was only copied, moved or `touch`ed goes on, other content is an error. Every stretch of rows is
read between two such looks, in each worker.
"""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from whence.errors import InputError

TICK = 20_000_000  # ns: two changes that are further apart have two times, where times are not whole seconds
COARSE_TICK = 2_000_000_000
TRIES = 5
T = TypeVar("T")


class Part(Protocol):
    """A file of the data, as it was at the beginning."""

    @property
    def path(self) -> Path: ...
    @property
    def digest(self) -> str: ...
    @property
    def state(self) -> State | None: ...


@dataclass(frozen=True)
class State:
    """What the system says of a file without reading it."""

    size: int
    changed: int  # ns; its content
    touched: int  # ns; anything about it
    number: int  # another file under the same name has another
    host: str

    def same(self, other: State) -> bool:
        """Whether nothing has touched the file; as far as another machine, which may count times and numbers otherwise, can tell."""
        if self.host != other.host:
            return (self.size, self.changed) == (other.size, other.changed)
        return self == other


def state_of(path: Path) -> State:
    try:
        status = os.stat(path)
    except OSError as error:
        raise InputError(
            f"the input file {str(path)!r} cannot be read: {error.strerror or error}. Put it back, and the same command goes on."
        ) from error
    return State(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, platform.node())


def settled(path: Path) -> State:
    """A file's state, once any later change would be seen in it: a file that has just been written could be changed again within one
    tick of the system's clock."""
    state = state_of(path)
    last = max(state.changed, state.touched)
    tick = COARSE_TICK if last % 1_000_000_000 == 0 else TICK
    age = time.time_ns() - last
    if age < tick:
        time.sleep(min(tick - age, tick) / 1e9)
    return state_of(path)


def read_steadily(part: Part, states: dict[Path, State], read: Callable[[], T], forget: Callable[[], Any]) -> T:
    """What `read` gives, of a file that held before and after what it held at the beginning. states: of files when that was last so;
    forget: lets go of what is open of it, before it is read anew."""
    for _ in range(TRIES):
        before = states.get(part.path) or part.state
        here = state_of(part.path)
        if before is None or not here.same(before):
            forget()
            check_content(part)
        states[part.path] = here
        try:
            rows = read()
        except Exception:
            if state_of(part.path) == here:
                raise
            continue  # what went wrong may be another file's fault
        if state_of(part.path) == here:
            return rows
    raise changed(part)


def check_content(part: Part) -> None:
    """Raise InputError unless every byte is as at the beginning."""
    try:
        with part.path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"the input file {str(part.path)!r} cannot be read: {error.strerror or error}.") from error
    if digest != part.digest:
        raise changed(part)


def changed(part: Part) -> InputError:
    return InputError(
        f"the input file {str(part.path)!r} was changed or replaced while the run read it; what is finished is of what it held before: put "
        "that back and give the same command, or give another --output."
    )
