"""Numbers that people give: counts and seeds, as Python's or numpy's."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from whence.errors import InputError

LARGEST = 2**63  # numbers of options stay below it; a seed may be as long as it likes
MOST = 10**7  # samples, steps or orders: more of them than anybody waits for


def short(value: object, limit: int = 60) -> str:
    """A value as errors quote it.

    >>> short("x" * 100, 10), short(10**5000)
    ("'xxxxxxxx…", 'a number of more than 1,000 digits')
    """
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of more than 1,000 digits" if isinstance(value, Integral) else type(value).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"


def whole(name: str, value: Any, least: int = 1, *, below: int | None = None, unit: str = "", other: str = "") -> int:
    """The number, or an error that says which would do. below: how much is too much; other: what else could have been given.

    >>> whole("steps", 0)
    Traceback (most recent call last):
    ...
    whence.errors.InputError: steps=0: give a whole number, 1 or more.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, Integral)
        or value < least
        or not (below is None or value < below)
    ):
        most = "" if below is None else f" and less than {below}"
        raise InputError(f"{name}={short(value)}: give a whole number{unit}, {least} or more{most}{other}.")
    return int(value)


def work(name: str, value: Any, least: int = 1, *, other: str = "") -> int:
    """A number of samples, steps or orders: what each costs adds up, and memory and patience end somewhere.

    >>> work("samples", 10**30)
    Traceback (most recent call last):
    ...
    whence.errors.InputError: samples=1000000000000000000000000000000: give a whole number, 1 or more and less than 10000000.
    """
    count = whole(name, value, least, other=other)
    return count if count < MOST else whole(name, value, least, below=MOST, other=other)


def check_size(name: str, value: Any) -> None:
    """No method can use a number of more than 64 bits."""
    if isinstance(value, Integral) and abs(value) >= LARGEST and name != "seed":  # type: ignore[operator]
        raise InputError(f"{name}={short(value)}: give a number between -2^63 and 2^63.")


def seed_of(value: Any) -> int:
    return whole("seed", value, 0)
