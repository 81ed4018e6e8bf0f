"""What several peers need: the model as a function of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.shapes import MASK


def logits_of(model: Any, ids: Tensor, batch: int) -> Tensor:
    with torch.no_grad():
        parts = [model(input_ids=i, attention_mask=torch.ones_like(i)).logits.float() for i in ids.split(batch)]
        return torch.cat(parts)


def masked(model: Any, row: Tensor, batch: int) -> Callable[[np.ndarray], np.ndarray]:
    """Values of (k, units) tables of which words are kept."""

    def values(keep: np.ndarray) -> np.ndarray:
        rows = row.repeat(len(keep), 1)
        kept = torch.from_numpy(np.asarray(keep) > 0.5).to(row.device)
        rows[:, 1:-1] = torch.where(kept, rows[:, 1:-1], MASK)
        return logits_of(model, rows, batch)[:, 0].cpu().numpy()

    return values
