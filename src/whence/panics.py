"""Panics of the Rust libraries under whence (tokenizers, safetensors) as errors.

Python sees a panic as `pyo3_runtime.PanicException`, which is no `Exception`: it passes every `except Exception`, ends threads that
serve others, and reaches the terminal as a traceback. Each Rust library brings a class of that name of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from whence.errors import InputError, ModelError, WhenceError


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
