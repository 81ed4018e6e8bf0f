"""How closely a model can agree with itself: products of other shapes, and in another order, round differently."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# what torch may be told to round the operands of float32 products to
ROUGHER = {"tf32": 2.0**-10, "bf16": 2.0**-7}
CLOSE = {torch.float64: 1e-9, torch.float32: 1e-4}  # of the largest number
CLOSE_HALF = 5e-2
ROUNDINGS = 16  # of a product, that add up over a few layers


def rounding(dtype: torch.dtype, device: torch.device) -> float:
    """The relative error of one product, by the dtype and by what torch is told of float32 (tf32, say).

    >>> rounding(torch.bfloat16, torch.device("cpu"))
    0.0078125
    """
    own = torch.finfo(dtype).eps
    if dtype != torch.float32:
        return own
    backend: Any = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    return max(own, ROUGHER.get(backend.matmul.fp32_precision, 0.0))


def close(found: Tensor | None, wanted: Tensor) -> bool:
    """Whether these are numbers, and the same but for rounding."""
    if found is None or found.shape != wanted.shape or not bool(torch.isfinite(wanted).all()):
        return False
    allowed = CLOSE.get(wanted.dtype, CLOSE_HALF)
    if wanted.dtype == torch.float32:
        allowed = max(allowed, ROUNDINGS * rounding(wanted.dtype, wanted.device))
    return bool((found - wanted).abs().max() <= allowed * wanted.abs().max())
