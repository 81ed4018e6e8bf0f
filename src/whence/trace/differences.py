"""Gradients against differences of answers: the word embeddings are moved a little, and the answer moves as the gradient says, or not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whence.inputs import Batch

# the embeddings (None: the text's own) and a dtype → the embeddings as a leaf of the graph, and the answer
Answer = Callable[[Tensor | None, torch.dtype], tuple[Tensor, Tensor]]

DIRECTIONS = 3
STEPS = (1e-3, 3e-3, 1e-2, 1e-4, 1e-1)  # of the embeddings' size: small ones drown in rounding, large ones bend
ENOUGH = 1e-4


def first_row(batch: Batch) -> Batch:
    """The first row of a batch, padding included."""
    values: dict[str, Any] = {f.name: getattr(batch, f.name) for f in fields(batch)}
    rows = {name: value[:1] for name, value in values.items() if isinstance(value, (Tensor, np.ndarray))}
    return replace(batch, **{**values, **rows})


def gradient_gap(answer: Answer, dtypes: Iterable[torch.dtype]) -> float:
    """How far the gradient is from differences, of their size, in the first dtype that the model runs in; NaN if in none."""
    for dtype in dtypes:
        try:
            return gap_in(answer, dtype)
        except Exception:  # code with a dtype of its own, too little memory, a hook that fails (it will again, where it is to be heard)
            continue
    return math.nan


def gap_in(answer: Answer, dtype: torch.dtype) -> float:
    """The same, at the step that serves it best."""
    generator = torch.Generator().manual_seed(0)

    def draw(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like.device)

    leaf, logits = answer(None, dtype)
    weights, x = draw(logits), leaf.detach().double()

    def value(points: Tensor) -> float:
        with torch.no_grad():
            return float((answer(points, dtype)[1].double() * weights).sum())

    gradient = torch.zeros_like(x)
    if logits.requires_grad:
        (exact,) = torch.autograd.grad((logits.double() * weights).sum(), leaf, allow_unused=True)
        gradient = gradient if exact is None else exact.double()
    directions = [draw(x) * x.square().mean().sqrt() for _ in range(DIRECTIONS)]
    slopes = np.array([float((gradient * v).sum()) for v in directions])
    best = math.inf
    for step in STEPS:
        points = [(x + step * v, x - step * v) for v in directions]
        changes = np.array([(value(a) - value(b)) / (2 * step) for a, b in points])
        size = max(float(np.linalg.norm(changes)), float(np.linalg.norm(slopes)))
        best = min(best, float(np.linalg.norm(changes - slopes)) / size if size else 0.0)
        if best <= ENOUGH:
            break
    return best
