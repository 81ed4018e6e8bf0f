"""The floor every method must beat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whence.inputs.numbers import seed_of
from whence.registry import method
from whence.trace import Trace


@method("random", signed=False, knows_target=False, family="baseline", paper="—")
def random(trace: Trace, *, seed: int = 0) -> Tensor:
    """Uniform(0, 1) scores, drawn from the seed and the row's own tokens: a row's draw does not depend on its batch.

    Args:
        seed: another seed, other scores.
    """
    seed_of(seed)
    scores = torch.zeros(trace.valid.shape, dtype=torch.float64)
    for row, (ids, real) in enumerate(zip(trace.batch.texts(), trace.batch.own_valid, strict=True)):
        scores[row, torch.from_numpy(real.copy())] = torch.from_numpy(draw(seed, ids))
    return scores


def draw(seed: int, ids: Sequence[int]) -> NDArray[np.float64]:
    """The random scores of one row. (n,)"""
    return np.random.default_rng([seed, *ids]).random(len(ids))
