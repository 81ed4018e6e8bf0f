"""A block of logits taken into a running log-sum-exp on CUDA, one look at each logit where torch takes eight.

Imported only where CUDA and Triton are there; `python -m bench kernels` holds it against `lm_head.log_sum_exp_blocked`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator]
def _taken_in_kernel(  # type: ignore[no-untyped-def]
    logits,  # (position, word), words contiguous
    bias,  # (word,)
    largest,  # (position,) so far, and so is the next
    total,  # (position,) Σ exp(logit − largest)
    words,
    stride,
    BIASED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    position = tl.program_id(0).to(tl.int64)
    top = tl.load(largest + position)
    found = tl.load(total + position)
    for start in range(0, words, BLOCK):
        at = start + tl.arange(0, BLOCK)
        some = tl.load(logits + position * stride + at, mask=at < words, other=float("-inf")).to(tl.float32)
        if BIASED:
            some += tl.load(bias + at, mask=at < words, other=0.0).to(tl.float32)
        higher = tl.maximum(top, tl.max(some, 0))
        found = found * tl.exp(top - higher) + tl.sum(tl.exp(some - higher), 0)
        top = higher
    tl.store(largest + position, top)
    tl.store(total + position, found)


def take_in(logits: Tensor, bias: Tensor | None, largest: Tensor, total: Tensor) -> None:
    """logits (m, block) and their bias (block,) into `largest` and `total` (m,), both float32."""
    known = {"BIASED": bias is not None, "BLOCK": BLOCK, "num_warps": 4}
    shift = logits if bias is None else bias  # not looked into without a bias
    _taken_in_kernel[(len(logits),)](logits, shift, largest, total, logits.shape[1], logits.stride(0), **known)


def log_sum_exp_fused(features: Tensor, weight: Tensor, bias: Tensor | None, step: int) -> Tensor:
    """`lm_head.log_sum_exp` for features (m, e) in at most float32, `step` words at a time."""
    largest = torch.full((len(features),), -torch.inf, dtype=torch.float32, device=features.device)
    total = torch.zeros_like(largest)
    for start in range(0, len(weight), step):
        some = slice(start, start + step)
        take_in(features @ weight[some].T, None if bias is None else bias[some], largest, total)
    return largest + total.log()
