"""Errors are sentences: what was given, what is allowed, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


def no_advice(lacks: tuple[str, ...]) -> str:
    """How a sentence ends where no method is known that could be asked instead."""
    return "."


class WhenceError(Exception):
    """Base of every error that whence raises on purpose.

    Args:
        message: a sentence; with `lacks` without its full stop.
        lacks: what is missing: words of `whence.trace.LACKING` for a model, "layers" or "matrices" for an explanation. The sentence
            then ends with the methods that do without it, or that give it.
    """

    # Which methods those are, the registry knows, but most errors are raised by rooms that must not know of methods: so the
    # registry puts its own function here, and it is called when the sentence is read.
    advice: Callable[[tuple[str, ...]], str] = staticmethod(no_advice)

    def __init__(self, message: str = "", *, lacks: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.lacks = lacks

    def __str__(self) -> str:
        return super().__str__() + (WhenceError.advice(self.lacks) if self.lacks else "")


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


UNEXPLAINED = 0.02  # of what scores should sum to: more than this missing is warned of


class Incomplete(UserWarning):
    """Scores do not add up to the difference that their method promises to explain."""


# ---- panics of the Rust libraries under whence (tokenizers, safetensors) -----------------------------------------------
#
# Python sees a panic as `pyo3_runtime.PanicException`, which is no `Exception`: it passes every `except Exception`, ends threads that
# serve others, and reaches the terminal as a traceback. Each Rust library brings a class of that name of its own.


def is_panic(error: BaseException) -> bool:
    return any(cls.__name__ == "PanicException" for cls in type(error).__mro__)


def as_error(panic: BaseException) -> ModelError:
    return ModelError(
        f"a library under whence broke down ({reason(panic)}): if that comes from one text, leave it out; if from all, load the "
        "model's tokenizer and files anew."
    )


@contextmanager
def panics_are_errors() -> Iterator[None]:
    """A panic within the block, or in the function that this decorates, is a ModelError."""
    try:
        yield
    except BaseException as error:
        if is_panic(error):
            raise as_error(error) from error
        raise


@contextmanager
def reading(at: str = "") -> Iterator[None]:
    """Whatever a tokenizer raises or panics with within the block means that it cannot read the text; `at` begins the error."""
    try:
        yield
    except (WhenceError, MemoryError):
        raise
    except BaseException as error:
        if not (isinstance(error, Exception) or is_panic(error)):
            raise
        raise InputError(
            f"{at}the tokenizer cannot read this text ({reason(error)}): change the text, or load the tokenizer that belongs to the model."
        ) from error


def reason(error: BaseException, most: int = 200) -> str:
    """Its kind, and its first line."""
    line = str(error).strip().split("\n")[0]
    line = line if len(line) <= most else line[: most - 1] + "…"
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def as_exception(error: BaseException) -> Exception:
    """What a thread may hand to whoever waits for its result: asyncio takes neither StopIteration nor what is no Exception."""
    if is_panic(error):
        return as_error(error)
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError(reason(error))
    wrapped.__cause__ = error
    return wrapped
