"""What is not a product in the relevance rules on CUDA, one pass over memory each where torch takes up to eight.

Imported only where CUDA and Triton are there; what each kernel computes is written out in `rules`, and `python -m bench kernels`
holds them against it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


@triton.jit  # type: ignore[untyped-decorator]
def _quotient_kernel(a, b, out, size, STABILISER: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    below = tl.load(b + at, mask=inside, other=0.0)
    found = tl.div_rn(tl.load(a + at, mask=inside, other=0.0), below + STABILISER)
    tl.store(out + at, tl.where(below == 0, 0.0, found), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _shares_kernel(  # type: ignore[no-untyped-def]
    r, total, z, bias, out, size, columns, BIASED: tl.constexpr, NOISE: tl.constexpr, STABILISER: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    whole = tl.load(total + at, mask=inside, other=0.0)
    positive = whole + tl.load(z + at, mask=inside, other=0.0)
    if BIASED:
        positive -= tl.load(bias + at % columns, mask=inside, other=0.0)
    found = tl.div_rn(tl.load(r + at, mask=inside, other=0.0), positive + STABILISER)
    tl.store(out + at, tl.where(positive <= whole * NOISE, 0.0, found), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _weighed_kernel(by_sign, by_size, x, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    value = tl.load(x + at, mask=inside, other=0.0)
    signed = tl.load(by_sign + at, mask=inside, other=0.0) * value
    found = signed + tl.load(by_size + at, mask=inside, other=0.0) * tl.abs(value)
    tl.store(by_sign + at, found, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _scaled_kernel(c, y, x, out, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    ratio = tl.div_rn(tl.load(y + at, mask=inside, other=0.0), tl.load(x + at, mask=inside, other=1.0))
    finite = tl.abs(ratio) < float("inf")  # no number is not, either
    tl.store(out + at, tl.where(finite, ratio, 0.0) * tl.load(c + at, mask=inside, other=0.0), mask=inside)


def grid(size: int) -> tuple[int]:
    return (triton.cdiv(size, BLOCK),)


def quotient(a: Tensor, b: Tensor, stabiliser: float) -> Tensor:
    """a / (b + stabiliser), and 0 where b is 0 (`rules.safe_divide`)."""
    a, b = a.contiguous(), b.contiguous()
    out = torch.empty_like(a)
    _quotient_kernel[grid(a.numel())](a, b, out, a.numel(), STABILISER=stabiliser, BLOCK=BLOCK, num_warps=8)
    return out


def shares(r: Tensor, total: Tensor, z: Tensor, bias: Tensor | None, noise: float, stabiliser: float) -> Tensor:
    """r / (total + z − bias + stabiliser), and 0 where that sum is no more than `noise` of the total (`rules.shares`)."""
    r, total, z = r.contiguous(), total.contiguous(), z.contiguous()
    out, columns = torch.empty_like(r), r.shape[-1]
    known = {"BIASED": bias is not None, "NOISE": noise, "STABILISER": stabiliser, "BLOCK": BLOCK, "num_warps": 8}
    _shares_kernel[grid(r.numel())](r, total, z, r if bias is None else bias, out, r.numel(), columns, **known)
    return out


def weighed(by_sign: Tensor, by_size: Tensor, x: Tensor) -> Tensor:
    """by_sign ⊙ x + by_size ⊙ |x|, in the memory of the first."""
    by_sign, by_size, x = by_sign.contiguous(), by_size.contiguous(), x.contiguous()
    _weighed_kernel[grid(x.numel())](by_sign, by_size, x, x.numel(), BLOCK=BLOCK, num_warps=8)
    return by_sign


def scaled(c: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """c ⊙ y/x, the quotient 0 where it is no number (`rules.identity_coefficient`)."""
    c, y, x = c.contiguous(), y.contiguous(), x.contiguous()
    out = torch.empty_like(c)
    _scaled_kernel[grid(c.numel())](c, y, x, out, c.numel(), BLOCK=BLOCK, num_warps=8)
    return out
