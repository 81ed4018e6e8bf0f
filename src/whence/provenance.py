"""What results were made with: hashes that know a model and a tokenizer again, versions, and files that are whole or absent."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whence.errors import InputError
from whence.table import Table

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "pyarrow")


def fingerprint(model: PreTrainedModel) -> str:
    """Enough of a hash of the weights to know the same model again."""
    found = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        found.update(name.encode())
        found.update(tensor.detach().contiguous().cpu().view(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()[:16]


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase | None) -> str | None:
    """The same for what turns texts into ids: the whole pipeline where it is known, else the vocabulary."""
    if tokenizer is None:
        return None
    any_tokenizer: Any = tokenizer
    backend = getattr(any_tokenizer, "backend_tokenizer", None)
    plain = backend.to_str() if backend is not None else json.dumps(sorted(any_tokenizer.get_vocab().items()))
    special = json.dumps({k: str(v) for k, v in any_tokenizer.special_tokens_map.items()}, sort_keys=True)
    return hashlib.sha256(
        f"{type(tokenizer).__name__}\n{plain}\n{special}".encode("utf-8", "surrogatepass")
    ).hexdigest()[:16]


def versions(*more: str) -> dict[str, str]:
    """What was installed."""
    found = {"python": platform.python_version()}
    for name in (*PACKAGES, *more):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def write_whole(path: Path, content: bytes | Callable[[IO[bytes]], object]) -> None:
    """All or nothing, also if the power fails: a hidden file is written and forced to the disk, then renamed.

    content: bytes, or a function that writes them to an open file.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.partial")
    try:
        with partial.open("wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Force names to the disk too, where the system lets directories be opened."""
    with contextlib.suppress(OSError, AttributeError):
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def refuse_others(there: Mapping[str, Any], here: Mapping[str, Any], folder: Path) -> None:
    """Results of other settings are never mixed with these: an error that shows every difference."""

    def shown(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    different = Table(
        {"setting": key, "saved": shown(there.get(key)), "asked": shown(here.get(key))}
        for key in sorted({*there, *here})
        if there.get(key) != here.get(key)
    )
    if different:
        raise InputError(
            f"{str(folder)!r} holds results of other settings:\n{different!r}\n"
            "Ask for the saved settings, give another output folder, or delete this one."
        )
