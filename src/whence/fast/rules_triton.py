"""What is not a product in the relevance rules on CUDA, one pass over memory each where torch takes up to eight.

Imported only where CUDA and Triton are there; what each kernel computes is written out in `rules`, and `python -m bench kernels`
holds them against it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
STEPS = 8  # blocks that one program sums up


@triton.jit  # type: ignore[untyped-decorator]
def _quotient_kernel(  # type: ignore[no-untyped-def]
    a, b, out, size, STABILISER: tl.constexpr, FACTOR: tl.constexpr, AGAIN: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    below = tl.load(b + at, mask=inside, other=0.0)
    found = tl.div_rn(tl.load(a + at, mask=inside, other=0.0), below + STABILISER) * FACTOR
    found = tl.where(below == 0, 0.0, found)
    if AGAIN:  # times what it was divided by
        found *= below
    tl.store(out + at, found, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _sums_kernel(a, b, r, sums, size, chunks, STABILISER: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    example, chunk = tl.program_id(0).to(tl.int64) // chunks, tl.program_id(0) % chunks
    of_a, of_b, of_r = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for step in range(STEPS):
        at = (chunk * STEPS + step) * BLOCK + tl.arange(0, BLOCK)
        inside = at < size
        first = tl.load(a + example * size + at, mask=inside, other=0.0)
        second = tl.load(b + example * size + at, mask=inside, other=0.0)
        relevance = tl.load(r + example * size + at, mask=inside, other=0.0)
        z = first + second
        s = tl.where(z == 0, 0.0, tl.div_rn(relevance, z + STABILISER))
        of_a += first * s
        of_b += second * s
        of_r += relevance
    out, apart = sums + tl.program_id(0), tl.num_programs(0)
    tl.store(out, tl.sum(of_a, 0))
    tl.store(out + apart, tl.sum(of_b, 0))
    tl.store(out + 2 * apart, tl.sum(of_r, 0))


@triton.jit  # type: ignore[untyped-decorator]
def _rescaled_kernel(  # type: ignore[no-untyped-def]
    a, b, r, scale_a, scale_b, out_a, out_b, size, blocks, STABILISER: tl.constexpr, BLOCK: tl.constexpr
):
    example = tl.program_id(0).to(tl.int64) // blocks
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    at = example * size + at
    first = tl.load(a + at, mask=inside, other=0.0)
    second = tl.load(b + at, mask=inside, other=0.0)
    z = first + second
    s = tl.where(z == 0, 0.0, tl.div_rn(tl.load(r + at, mask=inside, other=0.0), z + STABILISER))
    tl.store(out_a + at, first * s * tl.load(scale_a + example), mask=inside)
    tl.store(out_b + at, second * s * tl.load(scale_b + example), mask=inside)


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


@triton.jit  # type: ignore[untyped-decorator]
def _halves_kernel(x, out, size, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    value = tl.load(x + at, mask=inside, other=0.0)
    high = value.to(tl.bfloat16)
    to = out + at + at // columns * columns  # rows of `out` are twice as long
    tl.store(to, high, mask=inside)
    tl.store(to + columns, (value - high.to(tl.float32)).to(tl.bfloat16), mask=inside)


def grid(size: int) -> tuple[int]:
    return (triton.cdiv(size, BLOCK),)


def quotient(a: Tensor, b: Tensor, stabiliser: float, factor: float = 1.0) -> Tensor:
    """factor · a / (b + stabiliser), and 0 where b is 0 (`rules.safe_divide`)."""
    return divided(a, b, STABILISER=stabiliser, FACTOR=factor, AGAIN=False)


def through_mask(r: Tensor, x: Tensor, stabiliser: float) -> Tensor:
    """r / (x + stabiliser) · x (`rules.masked_softmax`)."""
    return divided(r, x, STABILISER=stabiliser, FACTOR=1.0, AGAIN=True)


def divided(a: Tensor, b: Tensor, **known: float | bool) -> Tensor:
    """As they lie in memory, where both lie alike: heads of one token side by side (b, H, n, e) need no copy."""
    if not (a.stride() == b.stride() and a.dim() == 4 and a.transpose(1, 2).is_contiguous()):
        a, b = a.contiguous(), b.contiguous()
    out = torch.empty_like(a)
    _quotient_kernel[grid(a.numel())](a, b, out, a.numel(), **known, BLOCK=BLOCK, num_warps=8)
    return out


def rescaled(
    a: Tensor,
    b: Tensor,
    r: Tensor,
    stabiliser: float,
    scales: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
) -> tuple[Tensor, Tensor]:
    """The shares of r in z = a + b, each brought to its scale (`rules.addition_rescaled`): once over them for the sums of each
    example, and once for what comes of them, so that shares are never held unscaled."""
    a, b, r = a.contiguous(), b.contiguous(), r.contiguous()
    rows, size = len(a), a.numel() // len(a)
    chunks, blocks = triton.cdiv(size, STEPS * BLOCK), triton.cdiv(size, BLOCK)
    known = {"STABILISER": stabiliser, "BLOCK": BLOCK, "num_warps": 8}
    sums = torch.empty((3, rows, chunks), dtype=a.dtype, device=a.device)
    _sums_kernel[(rows * chunks,)](a, b, r, sums, size, chunks, STEPS=STEPS, **known)
    scale_a, scale_b = scales(*sums.sum(-1))
    ra, rb = torch.empty_like(a), torch.empty_like(b)
    _rescaled_kernel[(rows * blocks,)](a, b, r, scale_a, scale_b, ra, rb, size, blocks, **known)
    return ra, rb


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


def halves(x: Tensor) -> Tensor:
    """x (…, k) in float32 as [high | low], whose sum it is up to 2⁻¹⁷ of itself: (m, 2k) in bfloat16."""
    x = x.contiguous().flatten(0, -2)
    out = torch.empty((len(x), 2 * x.shape[1]), dtype=torch.bfloat16, device=x.device)
    _halves_kernel[grid(x.numel())](x, out, x.numel(), x.shape[1], BLOCK=BLOCK, num_warps=8)
    return out
