"""Products with weights that are exact in bfloat16, on tensor cores: relevance of a model in half precision.

Rules that divide run in float32, also of a model that runs in bfloat16 itself; its weights, converted, are still what they were. So of
x·W only x has more digits than tensor cores take, and x is the sum of two numbers in bfloat16 up to 2⁻¹⁷ of itself:

    x·W = [high | low] · [W; W]

one product with float32 sums, where float32 lanes would take six to eight times as long.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from whence.fast.fused import multiplies_halves, on_triton

WORTH = 1 << 31  # multiply-adds from which on a product in halves takes less time, with all that it needs
NOISE = 2.0**-15  # of a sum whose terms cancel, what tensor cores leave, as a share of the terms' sizes


def storages(tensors: Iterable[Tensor]) -> frozenset[int]:
    """Where tensors lie in memory, by which they and views of them are known again."""
    return frozenset(t.untyped_storage().data_ptr() for t in tensors)


def pays(x: Tensor, matrix: Tensor) -> bool:
    """Whether x (…, k) · matrix (k, n) is faster in halves here."""
    return (
        x.dtype == torch.float32
        and x.numel() * matrix.shape[-1] >= WORTH
        and on_triton(x, matrix)
        and multiplies_halves(x)
    )


def product_in_halves(x: Tensor, matrix: Tensor) -> Tensor:
    """x (…, k) in float32 · matrix (k, n), which bfloat16 holds exactly: (…, n) in float32."""
    from whence.fast.rules_triton import halves

    half = matrix.to(torch.bfloat16)
    twice = torch.cat([half, half]) if half.stride(-1) == 1 else torch.cat([half.mT, half.mT], 1).mT
    found: Tensor = torch.mm(halves(x), twice, out_dtype=torch.float32)
    return found.view(*x.shape[:-1], matrix.shape[-1])
