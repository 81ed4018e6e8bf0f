"""A checkpoint by the ordinary Hugging Face machinery: from a directory, the local cache or the hub, or a sentence that says why not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whence.errors import UnknownName, WhenceError, panics_are_errors
from whence.models import zoo
from whence.models.checkpoint import ADAPTER, adapter, check_checkpoint, check_no_file
from whence.models.zoo.building import LOADING
from whence.tasks import TASKS, task_of

AUTO_CLASSES = {name: "AutoModel" + suffix for name, suffix in TASKS.items()}


def from_pretrained(
    name: str, dtype: torch.dtype, task: str | None, trust_remote_code: bool
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase | None]:
    """A checkpoint by the ordinary Hugging Face machinery, from a directory, the local cache or the hub."""
    import transformers

    check_no_file(name)
    with LOADING, quietly(), panics_are_errors():  # the first two change what all threads see
        return _from_pretrained(transformers, name, dtype, task, trust_remote_code)


@contextmanager
def quietly() -> Iterator[None]:
    """No progress bars for reading a few files, and no report of missing weights beside the error that says so."""
    import transformers.utils.logging

    logging: Any = transformers.utils.logging
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


def _from_pretrained(
    transformers: Any, name: str, dtype: torch.dtype, task: str | None, trust_remote_code: bool
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase | None]:
    try:
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        raise not_found(name, error) from error
    except (
        Exception
    ) as error:  # what is in a file may be wrong in more ways than its reader has names for: here and below
        raise unreadable("configuration", name, error) from error
    auto: Any = getattr(transformers, AUTO_CLASSES[task_of(config, None, task)])
    try:
        revision = check_checkpoint(name, config)
        model, told = auto.from_pretrained(
            name,
            config=config,
            dtype=dtype,
            revision=revision or "main",
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
        )
    except WhenceError:
        raise
    except Exception as error:
        raise unreadable("model", name, error) from error
    check_complete(name, type(model).__name__, told)
    return model, tokenizer_of(name, trust_remote_code)


def check_complete(name: str, class_name: str, told: Mapping[str, Any]) -> None:
    """transformers draws weights that a checkpoint lacks at random, and goes on. told: what it says of having loaded it."""
    missing = sorted([*told["missing_keys"], *(key for key, *_ in told["mismatched_keys"])])
    if missing:
        keys = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise WhenceError(
            f"{name!r} has no weights for {keys} of a {class_name}, and random ones explain nothing: load the checkpoint that "
            "was trained for the task, or pass the live model if they are meant to be random."
        )


def tokenizer_of(name: str, trust_remote_code: bool) -> PreTrainedTokenizerBase | None:
    """The checkpoint's tokenizer; None where it has none (rows must then be given as ids)."""
    from transformers import AutoTokenizer

    directory = Path(name)
    if directory.is_dir() and not any((directory / f).exists() for f in TOKENIZER_FILES):
        return None
    try:
        with panics_are_errors():
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                name, trust_remote_code=trust_remote_code
            )
    except Exception as error:
        raise unreadable("tokenizer", name, error) from error
    return tokenizer


def unreadable(what: str, name: str, error: Exception) -> WhenceError:
    kind = "" if isinstance(error, (OSError, ValueError)) else f"{type(error).__name__}: "
    return WhenceError(f"the {what} in {name!r} could not be loaded: {kind}{first_line(error)}")


TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "tokenizer.model",
)


def not_found(name: str, error: Exception) -> WhenceError:
    if (Path(name) / ADAPTER).is_file():
        return adapter(name)
    if Path(name).is_dir():
        return WhenceError(f"the directory {name!r} holds no Hugging Face model: {first_line(error)}")
    known = UnknownName("model", name, zoo.names())
    return WhenceError(
        f"{known} It is no directory here either, and no hub model of that name could be reached "
        "(offline, misspelt, or private)."
    )


def first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
