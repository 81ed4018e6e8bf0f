"""Targets that have names: the labels of a classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
from transformers import PretrainedConfig

from whence.errors import InputError, UnknownName


def labels_of(config: PretrainedConfig) -> tuple[str, ...]:
    names: dict[int, str] = config.id2label  # type: ignore[assignment]
    if sorted(names) != list(range(len(names))):
        raise InputError(
            f"id2label in the model's config must number its labels 0 to {len(names) - 1}, got {', '.join(map(str, names))}."
        )
    return tuple(str(names[i]) for i in range(len(names)))


def label_index(given: Any, labels: tuple[str, ...], what: str = "target") -> int:
    """A label, in any letter case, or its index."""
    if isinstance(given, str):
        if labels.count(given) > 1:
            alike = [i for i, label in enumerate(labels) if label == given]
            raise InputError(f"{what}={given!r}: labels {' and '.join(map(str, alike))} are called so; give the index.")
        if given in labels:
            return labels.index(given)
        folded = [label.casefold() for label in labels]
        if folded.count(given.casefold()) == 1:
            return folded.index(given.casefold())
        raise UnknownName("label", given, labels)
    if isinstance(given, (bool, np.bool_)) or not isinstance(given, (int, np.integer)):
        raise InputError(
            f"{what} must be a label ({', '.join(labels)}), its index, 'all' or None, got {type(given).__name__}."
        )
    if not 0 <= given < len(labels):
        raise InputError(f"{what} {given} is out of range: this model has labels 0 to {len(labels) - 1}.")
    return int(given)
