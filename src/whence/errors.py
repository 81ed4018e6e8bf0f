"""Errors are sentences: what was given, what is allowed, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WhenceError(Exception):
    """Base of every error that whence raises on purpose."""


class InputError(WhenceError, ValueError):
    """An input, target or option that cannot be used as given."""


class UnknownName(WhenceError, LookupError):
    """A name that is not in a table.

    >>> raise UnknownName("method", "atcat", ["attcat", "gae"])
    Traceback (most recent call last):
    ...
    whence.errors.UnknownName: unknown method 'atcat'; did you mean 'attcat'? Known: attcat, gae.
    """

    def __init__(self, kind: str, given: str, known: Iterable[str]) -> None:
        names = list(known)
        self.kind, self.given, self.known = kind, given, names
        near = difflib.get_close_matches(str(given), names, n=1, cutoff=0.5)
        hint = f"; did you mean '{near[0]}'?" if near else "."
        super().__init__(f"unknown {kind} {given!r}{hint} Known: {', '.join(names) or 'none'}.")


class ModelError(WhenceError, RuntimeError):
    """The model gave something that cannot be explained (NaN logits, no attention, out of memory)."""


class NotSupported(WhenceError, NotImplementedError):
    """This model or task cannot serve this method; the message says which ones it can."""


class BadRows(UserWarning):
    """Rows of the data could not be read; they keep their places with their errors."""


class Truncated(UserWarning):
    """A text was longer than the model reads, and was cut."""


class Incomplete(UserWarning):
    """Scores do not add up to the difference that their method promises to explain."""
