"""The floor every method must beat."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from whence.registry import method
from whence.trace import Trace


@method("random", family="baseline", paper="—")
def random(trace: Trace, *, seed: int = 0) -> Tensor:
    """Uniform(0, 1) scores, drawn from the seed and the row's own tokens: a row's draw does not depend on its batch."""
    scores = torch.zeros(trace.valid.shape, dtype=torch.float64)
    for row, (ids, n) in enumerate(zip(trace.input_ids.tolist(), trace.lengths.tolist(), strict=True)):
        draw = np.random.default_rng([seed, *ids[:n]]).random(n)
        scores[row, :n] = torch.from_numpy(draw)
    return scores
