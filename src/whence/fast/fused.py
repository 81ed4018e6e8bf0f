"""Whether a fused kernel may take the place of a few operations of torch: on CUDA, where Triton is there."""

from __future__ import annotations

import importlib.util
from functools import cache

import torch
from torch import Tensor

BFLOAT16_CORES = (8, 0)  # the first GPUs (compute capability) whose tensor cores take bfloat16


@cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def on_triton(*tensors: Tensor) -> bool:
    """All on one GPU, whatever their dtype and shape."""
    return all(t.is_cuda for t in tensors) and has_triton()


def fusible(*tensors: Tensor) -> bool:
    """All on one GPU, in float32 and of one shape."""
    first = tensors[0]
    return all(t.dtype == torch.float32 and t.shape == first.shape for t in tensors) and on_triton(*tensors)


def multiplies_halves(tensor: Tensor) -> bool:
    """Whether products in bfloat16 run on tensor cores where a tensor lies, so that float32 may be taken in two halves of it."""
    return torch.cuda.get_device_capability(tensor.device) >= BFLOAT16_CORES
