"""On CUDA, the mean over heads of max(0, G ⊙ A) in one pass over both maps, where torch takes seven.

Imported only where CUDA and Triton are there; `python -m bench kernels` holds it against torch's.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator]
def _positive_products_kernel(g, a, out, size, blocks, H: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64) // blocks
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    total = tl.zeros((BLOCK,), tl.float32)
    for head in range(H):
        pair = (row * H + head) * size + at
        product = tl.load(g + pair, mask=inside, other=0.0) * tl.load(a + pair, mask=inside, other=0.0)
        total += tl.where(product < 0, 0.0, product)  # what is no number stays none
    tl.store(out + row * size + at, total / H, mask=inside)


def positive_products_fused(g: Tensor, a: Tensor) -> Tensor:
    """g and a (b, H, n, n) in float32 → (b, n, n)."""
    g, a = g.contiguous(), a.contiguous()
    rows, heads, *pairs = g.shape
    out = torch.empty((rows, *pairs), dtype=g.dtype, device=g.device)
    size = g.shape[-2] * g.shape[-1]
    blocks = triton.cdiv(size, BLOCK)
    _positive_products_kernel[(rows * blocks,)](g, a, out, size, blocks, H=heads, BLOCK=BLOCK, num_warps=4)
    return out
