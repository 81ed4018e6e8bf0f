"""Where paths begin: baselines in the space of word embeddings, and chance that depends on the seed and the text alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from whence.errors import InputError, NotSupported, UnknownName
from whence.inputs import to_device
from whence.inputs.numbers import short

WIDEST = 1000  # sigma: noise so far beyond any embedding says nothing of the text
Bools = NDArray[np.bool_]

FIXED = ("mask", "pad", "zero")  # baselines that do not depend on chance


@dataclass(frozen=True)
class Ground:
    """What a path method may know of the model: how ids become embeddings, and which ids stand for nothing."""

    embed: Callable[[Tensor], Tensor]  # the model's own table: (…,) → (…, d)
    vocabulary: int
    special_ids: frozenset[int]  # of these no random text is made
    mask_id: int | None
    pad_id: int | None

    @cached_property
    def words(self) -> np.ndarray:
        """Ids of which random texts are made."""
        return np.array([i for i in range(self.vocabulary) if i not in self.special_ids])

    def resolve(self, baseline: str, extra: Sequence[str] = ()) -> str:
        """The baseline's name: "auto" is the first of "mask", "pad" and "zero" that the model has."""
        if baseline not in ("auto", *FIXED, *extra):
            raise UnknownName("baseline", str(baseline), ["auto", *FIXED, *extra])
        ids = {"mask": self.mask_id, "pad": self.pad_id}
        if baseline == "auto":
            return next((name for name, number in ids.items() if number is not None), "zero")
        if baseline in ids and ids[baseline] is None:
            working = [name for name in FIXED if ids.get(name, 0) is not None] + list(extra)
            raise NotSupported(
                f"baseline={baseline!r}: this model's tokenizer has no {baseline} token; choose baseline= one of "
                f"{', '.join(working)} (or 'auto')."
            )
        return baseline


@dataclass(frozen=True)
class PathBatch:
    """The b points of one batch, each one of the points of its row; n tokens, d features."""

    ground: Ground
    ids: Sequence[tuple[int, ...]]  # of each point's row, without padding
    points: Sequence[int]  # which point of its row each one is: 0 … count − 1
    counts: Sequence[int]  # how many points its row has
    x: Tensor  # (b, n, d) the rows' word embeddings, at least float32
    free: Tensor  # (b, n) bool: tokens that a baseline replaces; special tokens, fixed ones and padding stay
    valid: Bools | None = None  # (b, n) where the ids stand; None: at the beginning

    @cached_property
    def real(self) -> Bools:
        """(b, n) which tokens are not padding."""
        if self.valid is not None:
            return self.valid
        return np.asarray(np.arange(self.x.shape[1]) < np.array([len(ids) for ids in self.ids])[:, None])

    def per_point(self, values: Iterable[float]) -> Tensor:
        """One number per point, shaped to multiply embeddings: (b, 1, 1)."""
        return to_device(np.array(list(values), np.float64), self.x.device).to(self.x.dtype)[:, None, None]

    def chance(self, seed: int) -> list[Generator]:
        """A generator for each point, the same wherever the row and its point are computed."""
        return [np.random.default_rng([seed, k, *ids]) for k, ids in zip(self.points, self.ids, strict=True)]

    def baseline(self, name: str, chance: Sequence[Generator] = ()) -> Tensor:
        """x with every free token's embedding replaced: by that of [MASK] or padding, by 0, or by a random word's. (b, n, d)"""
        if name == "zero":
            replacement = torch.zeros_like(self.x)
        elif name == "random":
            drawn = np.zeros(self.x.shape[:2], dtype=np.int64)
            for row, (random, ids) in enumerate(zip(chance, self.ids, strict=True)):
                drawn[row, self.real[row]] = random.choice(self.ground.words, len(ids))
            replacement = self.ground.embed(torch.from_numpy(drawn).to(self.x.device)).to(self.x)
        else:
            number = self.ground.mask_id if name == "mask" else self.ground.pad_id
            replacement = self.ground.embed(torch.tensor(number, device=self.x.device)).to(self.x)
        return torch.where(self.free[:, :, None], replacement, self.x)

    def noise(self, sigma: float, chance: Sequence[Generator]) -> Tensor:
        """Normal noise with deviation sigma × (max − min of the row's own embeddings); none on padding. (b, n, d)"""
        drawn = np.zeros(tuple(self.x.shape))
        for row, (random, ids) in enumerate(zip(chance, self.ids, strict=True)):
            drawn[row, self.real[row]] = random.standard_normal((len(ids), self.x.shape[-1]))
        padding = to_device(~self.real, self.x.device)[:, :, None]
        highest = self.x.masked_fill(padding, -torch.inf).amax((1, 2), keepdim=True)
        lowest = self.x.masked_fill(padding, torch.inf).amin((1, 2), keepdim=True)
        return to_device(drawn, self.x.device).to(self.x.dtype) * (sigma * (highest - lowest))


def check_sigma(sigma: Any) -> float:
    if isinstance(sigma, bool) or not isinstance(sigma, (int, float)) or not 0 <= sigma <= WIDEST:
        raise InputError(f"sigma={short(sigma)}: give a share of the embeddings' range, 0 to {WIDEST} (0.01 is usual).")
    return float(sigma)


def adds_up(aggregate: str = "sum", **_: Any) -> bool:
    """Whether scores keep their signs, and so add up: features are summed, not measured in size."""
    return aggregate == "sum"


def change_of(of: str = "logit", **options: Any) -> str | None:
    """What the scores add up to, if they do: the change of this scalar from the baseline to the text."""
    return f"{of} difference to baseline" if adds_up(**options) else None
