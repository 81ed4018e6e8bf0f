"""The files that a checkpoint's weights are read from. What is not safetensors, or lies elsewhere, is refused before it is opened:
transformers' `use_safetensors=True` says which file is looked for first, not what an index, a configuration or an adapter names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from safetensors import safe_open

from whence.errors import InputError, WhenceError

WEIGHTS = "model.safetensors"
INDEX = WEIGHTS + ".index.json"
ADAPTER = "adapter_config.json"
PARALLEL = "shard-*.safetensors"  # what transformers writes of a model that was trained on several devices
Fetch = Callable[[str], Path | None]  # a file of the checkpoint by its name; None where it has no such file


def check_checkpoint(name: str, config: Any) -> str | None:
    """Look at every file of weights that transformers would read for `name`, a directory or a hub id.

    Returns the revision of the hub to read them from; None for the usual one. An adapter, another format, a file outside the
    directory and complex numbers are errors.
    """
    directory, fetch = Path(name), fetcher(name)
    if directory.is_dir():
        check_files(name, fetch, [*weight_files(name, config, fetch), *sorted(directory.glob(PARALLEL))], directory)
        return None
    files = weight_files(name, config, fetch)
    revision = None if files else converted(name)
    if revision is not None:
        fetch = fetcher(name, revision)
        files = weight_files(name, config, fetch)
    check_files(name, fetch, files, None)
    return revision


def fetcher(name: str, revision: str = "main") -> Fetch:
    """Files of a directory, or of a hub model: from the local cache, or downloaded into it."""
    if Path(name).is_dir():
        return lambda file: path if (path := Path(name) / file).is_file() else None
    from transformers.utils.hub import cached_file

    def fetch(file: str) -> Path | None:
        path = cached_file(
            name,
            file,
            revision=revision,
            _raise_exceptions_for_gated_repo=False,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
        return None if path is None else Path(path)

    return fetch


def weight_files(name: str, config: Any, fetch: Fetch) -> list[Path]:
    """The files that hold the weights; none where there are no safetensors."""
    if fetch(ADAPTER) is not None:
        raise adapter(name)
    named = getattr(config, "transformers_weights", None)
    if named is not None:
        check_name(name, "configuration", named.removesuffix(".index.json") if isinstance(named, str) else named)
        path = fetch(named)
    else:
        path = fetch(WEIGHTS) or fetch(INDEX)
    if path is None:
        return []
    return shards(name, path, fetch) if path.name.endswith(".index.json") else [path]


def shards(name: str, index: Path, fetch: Fetch) -> list[Path]:
    """The files that an index names, once each."""
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
        names = content["weight_map"].values()
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise WhenceError(
            f"the index {index.name} in {name!r} is damaged: it must be a JSON object whose weight_map says which file holds each weight."
        ) from None
    files = []
    for shard in {str(one): one for one in names}.values():
        check_name(name, "index", shard)
        path = fetch(shard)
        if path is None:
            raise WhenceError(f"the index of {name!r} names {shard!r}, which is not there: copy the model anew.")
        files.append(path)
    return files


def check_name(name: str, source: str, file: Any) -> None:
    """A file of safetensors inside the checkpoint, by its name alone. source: what names it."""
    if not isinstance(file, str) or not file.endswith(".safetensors"):
        raise WhenceError(
            f"the {source} of {name!r} names {file!r} as weights, and whence reads safetensors only, because other formats can run "
            "code: load the model with transformers yourself and save it again (model.save_pretrained(folder)), or pass the live model."
        )
    paths = (PurePosixPath(file), PureWindowsPath(file))
    if "\0" in file or any(path.anchor or ".." in path.parts for path in paths):
        raise outside(name, f"the {source} of {name!r} names {file!r}")


def check_files(name: str, fetch: Fetch, files: Iterable[Path], directory: Path | None) -> None:
    """Files of real numbers that lie in their directory; where a hub model's files are is the hub's own affair."""
    for file in files:
        if directory is not None and not is_inside(file, directory):
            raise outside(name, f"{str(file.relative_to(directory))!r} in {name!r} is a link")
        with safe_open(file, framework="pt") as tensors:
            for key in tensors.keys():  # noqa: SIM118  (it is no mapping)
                kind = tensors.get_slice(key).get_dtype()
                if kind.startswith("C"):
                    raise WhenceError(
                        f"the weight {key!r} in {name!r} is complex ({kind}), and its imaginary part would be dropped without a "
                        "word: whence explains models of real weights."
                    )


def is_inside(file: Path, directory: Path) -> bool:
    """Whether a file, links followed, lies in the directory; or in the hub's cache that the directory is a snapshot of: there,
    snapshots are links to the blobs beside them."""
    root = directory.resolve()
    blobs = [(root.parents[1] / "blobs").resolve()] if root.parent.name == "snapshots" else []
    return any(file.resolve().is_relative_to(place) for place in (root, *blobs))


def converted(name: str) -> str | None:
    """The revision to which the hub's own bot has converted weights that the model has in other formats only, as transformers
    finds it; None offline, where transformers says itself what is missing."""
    from huggingface_hub import constants
    from transformers.safetensors_conversion import auto_conversion

    if constants.HF_HUB_OFFLINE:
        return None
    revision: str | None = auto_conversion(name)[1]
    return revision


def adapter(name: str) -> WhenceError:
    return WhenceError(
        f"{name!r} holds an adapter, not a model: load it with peft, and save what merge_and_unload() returns, with the tokenizer."
    )


def outside(name: str, what: str) -> WhenceError:
    return WhenceError(
        f"{what} that leads out of the model's directory: copy the file into it, and name it as it is called there."
    )


def check_no_file(name: str) -> None:
    """A model is a directory; of a single file transformers would take the format from its name."""
    if Path(name).is_file():
        raise InputError(f"{name!r} is a file: give the directory that it is in, with config.json and the tokenizer.")
