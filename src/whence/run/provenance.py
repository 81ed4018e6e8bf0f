"""What results were made with: hashes that know a model and a tokenizer again, versions, and files that are whole or absent."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence, Set
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import torch
from tokenizers import AddedToken
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whence import version
from whence.errors import InputError
from whence.render.table import Table

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "pyarrow")


def fingerprint(model: nn.Module | Sequence[torch.Tensor]) -> str:
    """Enough of a hash of the weights to know the same model, or the same tensors, again."""
    digest = hashlib.sha256()
    tensors = model.state_dict() if isinstance(model, nn.Module) else {str(i): t for i, t in enumerate(model)}
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode())
        digest.update(tensor.detach().contiguous().cpu().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase | None) -> str | None:
    """The same for what turns texts into ids: the whole pipeline where it is known, else the vocabulary; special tokens, and how long
    texts may be, on which side they are cut or padded, the chat template and whatever else it was made with or holds now."""
    if tokenizer is None:
        return None
    any_tokenizer: Any = tokenizer
    backend = getattr(any_tokenizer, "backend_tokenizer", None)
    if backend is None:
        pipeline: Any = sorted(any_tokenizer.get_vocab().items())
    else:  # it remembers how the last text was cut and padded, which says nothing of the next
        pipeline = {k: v for k, v in json.loads(backend.to_str()).items() if k not in ("truncation", "padding")}
    behaviour = {
        "class": type(tokenizer).__name__,
        "pipeline": pipeline,
        "special": {k: str(v) for k, v in any_tokenizer.special_tokens_map.items()},
        "holds": plain({k: v for k, v in vars(tokenizer).items() if k != "_tokenizer"}, PASSING),
    }
    return hashlib.sha256(json.dumps(behaviour, sort_keys=True).encode()).hexdigest()[:16]


# of a configuration: where and with what it was saved, and what is told of the model itself
ASIDE = frozenset(
    {
        "_name_or_path",
        "_commit_hash",
        "_from_model_config",
        "transformers_version",
        "architectures",
        "dtype",
        "torch_dtype",
    }
)
ADAPTER_STATE = ("active_adapters", "disable_adapters", "merged_adapters", "scaling")  # of a layer of peft


def identity_of(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> dict[str, Any]:
    """Everything about a model and its tokenizer that a score depends on, and nothing of where they lie: a checkpoint may be moved.

    A dict of JSON: the class, weights, configuration with labels, what generation follows, adapters, and the tokenizer.
    """
    attention = getattr(model.config, "_attn_implementation", None)
    return {
        "class": type(model).__name__,
        "weights": fingerprint(model),
        "config": {**as_saved(model.config), "attention": attention},
        "generation": as_saved(getattr(model, "generation_config", None)),
        "adapters": adapters_of(model),
        "tokenizer": tokenizer_fingerprint(tokenizer),
    }


def as_saved(config: Any) -> dict[str, Any]:
    """What a configuration's file would say: what is not as its class has it, so that a later transformers with more to set is not
    another model."""
    if config is None:
        return {}
    try:
        content = config.to_diff_dict()
    except Exception:  # a class of somebody's own that cannot be made without arguments
        content = config.to_dict()
    return dict(plain(content, ASIDE))


def adapters_of(model: PreTrainedModel) -> str | None:
    """A hash of which adapters are switched on, and how strongly; their weights are the model's. None where there are none."""
    states = {
        name: {key: plain(getattr(layer, key)) for key in ADAPTER_STATE if hasattr(layer, key)}
        for name, layer in model.named_modules()
        if layer is not model and isinstance(getattr(layer, "disable_adapters", None), bool)
    }
    return short_digest(json.dumps(states, sort_keys=True)) if states else None


def short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# of a tokenizer: where it lies, what it has warned of, and what it has seen
PASSING = frozenset(
    "name_or_path is_local local_files_only _commit_hash files_loaded init_inputs vocab_file merges_file tokenizer_file "
    "special_tokens_map_file added_tokens_file tokenizer_config_file chat_template_file sp_model_kwargs_file deprecation_warnings "
    "verbose cache _vocab _in_target_context_manager".split()
)
DEPTH = 8  # of what is inside what


def plain(value: Any, aside: Set[str] = frozenset(), depth: int = DEPTH) -> Any:
    """A value as JSON that is the same in every process: keys as text, sets in order, objects by their class and what they hold.

    aside: keys that are left out, wherever they stand.

    >>> plain({1: {"b", "a"}, "path": "/here"}, {"path"})
    {'1': ['a', 'b']}
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (AddedToken, torch.dtype, Enum)):
        return repr(value)
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "serialized_model_proto"):  # a SentencePiece model
        return hashlib.sha256(value.serialized_model_proto()).hexdigest()
    if depth and isinstance(value, Mapping):
        return {str(k): plain(v, aside, depth - 1) for k, v in value.items() if str(k) not in aside}
    if depth and isinstance(value, (list, tuple)):
        return [plain(v, aside, depth - 1) for v in value]
    if depth and isinstance(value, Set):
        return sorted((plain(v, aside, depth - 1) for v in value), key=repr)
    inside = getattr(value, "__dict__", None)
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    return [name, plain(inside, aside, depth - 1)] if depth and inside and not callable(value) else name


def versions(*more: str) -> dict[str, str]:
    """What was installed."""
    found = {"whence": version.__version__, "python": platform.python_version()}
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

    def shown(value: Any, other: Any) -> str:
        if isinstance(value, Mapping) and isinstance(other, Mapping):  # of a long configuration, what is not the same
            value = {k: v for k, v in value.items() if k not in other or other[k] != v}
        return json.dumps(value, ensure_ascii=False)

    different = Table(
        {"setting": key, "saved": shown(there.get(key), here.get(key)), "asked": shown(here.get(key), there.get(key))}
        for key in sorted({*there, *here})
        if there.get(key) != here.get(key)
    )
    if different:
        raise InputError(
            f"{str(folder)!r} holds results of other settings:\n{different!r}\n"
            "Ask for the saved settings, give another output folder, or delete this one."
        )
