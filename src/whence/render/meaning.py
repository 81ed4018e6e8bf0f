"""What scores mean: what a method declares of them, carried by every Explanation, so that renderers need not know the method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whence.errors import InputError, UnknownName

QUANTITIES = ("logit", "probability", "loss")
# what the scores of a text, special tokens included, may promise to add up to
SUMS = ("1", *QUANTITIES, *(f"{quantity} difference to baseline" for quantity in QUANTITIES))
COMBINATIONS = ("sum", "mean", "largest")


@dataclass(frozen=True)
class Meaning:
    """What the scores of one method, with its options, mean.

    Args:
        signed: True: scores below 0 speak against the target. False: there are none. None: the scores themselves tell.
        sums_to: what all scores, special tokens included, add up to: one of SUMS, or None for no promise.
        layers_start: the layer that the first row of `layers` belongs to: 0 the embeddings, 1 the first block; None: not said.
        knows_target: False: whatever target is explained, the scores are the same; None: not said.
        combine: how the tokens of a word make its score: "sum", "mean", or the "largest" in size.

    Raises:
        InputError: a value that is none of these.
    """

    signed: bool | None = None
    sums_to: str | None = None
    layers_start: int | None = None
    knows_target: bool | None = None
    combine: str = "sum"

    def __post_init__(self) -> None:
        for name in ("signed", "knows_target"):
            value = getattr(self, name)
            if not (value is None or isinstance(value, bool)):
                raise InputError(f"{name}={value!r}: it is True, False, or None where it is not known.")
        if self.layers_start is not None and (isinstance(self.layers_start, bool) or self.layers_start not in (0, 1)):
            raise InputError(
                f"layers_start={self.layers_start!r}: the first row of layers is of layer 0 (the embeddings) or 1."
            )
        if self.sums_to is not None and self.sums_to not in SUMS:
            raise UnknownName("sums_to=", str(self.sums_to), SUMS)
        if self.combine not in COMBINATIONS:
            raise UnknownName("combine=", str(self.combine), COMBINATIONS)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Meaning:
        """The inverse of `to_dict`; what a later version has added is left out."""
        if not isinstance(data, Mapping):
            raise InputError(f"what scores mean is stored as a mapping, got {type(data).__name__}")
        return cls(**{field.name: data[field.name] for field in fields(cls) if field.name in data})


NOT_SAID = Meaning()  # of an Explanation that was made without one


def combined(
    values: NDArray[np.floating[Any]], groups: Sequence[Sequence[int]], combine: str = "sum"
) -> NDArray[np.float64]:
    """Scores of tokens (…, n) put together into scores of words (…, words).

    >>> combined(np.array([1.0, -3.0, 2.0]), [(0, 1), (2,)], "largest").tolist()
    [-3.0, 2.0]
    """
    return np.stack([combined_tokens(values[..., list(tokens)], combine) for tokens in groups], axis=-1)


def combined_tokens(values: NDArray[np.floating[Any]], combine: str) -> NDArray[np.float64]:
    """The scores of one word's tokens (…, k) as its own (…)."""
    if combine == "sum":
        return np.asarray(values.sum(-1))
    if combine == "mean":
        return np.asarray(values.mean(-1))
    largest = np.abs(values).argmax(-1)
    return np.asarray(np.take_along_axis(values, largest[..., None], -1)[..., 0])
