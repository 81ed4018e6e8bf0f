"""Whole numbers that people give: counts and seeds, as Python's or numpy's."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from whence.errors import InputError


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
        raise InputError(f"{name}={value!r}: give a whole number{unit}, {least} or more{most}{other}.")
    return int(value)


def seed_of(value: Any) -> int:
    return whole("seed", value, 0)
