"""On CUDA, in fused passes: ℓ1 distances ‖goal_i − Σ_h A_h[i, j] U_h[j]‖₁ and squared norms ‖Σ_h A_h[i, j] U_h[j]‖².

Distances: one program takes BQ queries and BK keys of one row. For BD features at a time it keeps the queries' goals in registers, and for
each key multiplies (BQ, H) weights with (H, BD) vectors, subtracts, takes absolute values and sums: the (n, n, d) parts never
leave the chip. The products run on tensor cores: a float32 number is the sum of two in bfloat16 up to 2⁻¹⁷ of itself, so three
products of halves, high·high + high·low + low·high, stand for one in float32. Norms: one program takes a key's vectors and writes their
Gram matrix, (H, H) numbers; then one takes BQ queries and BK keys and sums over head pairs. Imported only where CUDA and Triton are
there; `distances` has the references that `python -m bench kernels` holds them against (l1_blocked, squares_by_pairs).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

QUERIES, KEYS, FEATURES = 64, 16, 128
PAIRS = 256  # of a query and a key, whose heads are laid side by side at once
HALVES = (8, 0)  # the first GPUs (compute capability) whose tensor cores take bfloat16
GRAM_FEATURES = 128
PAIR_QUERIES, PAIR_KEYS = 32, 64


@triton.jit  # type: ignore[untyped-decorator]
def _heads_last_kernel(  # type: ignore[no-untyped-def]
    attention,  # (row, head, pair), pairs contiguous
    high,  # (row, pair, head), contiguous; in float32, or in half precision
    low,  # the same, bfloat16: what rounding to `high` left over
    pairs,
    a_row,
    a_head,
    H: tl.constexpr,
    HP: tl.constexpr,  # H rounded up to a power of two
    BLOCK: tl.constexpr,
    SPLIT: tl.constexpr,
):
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    heads = tl.arange(0, HP)
    inside = (at < pairs)[:, None] & (heads < H)[None, :]
    value = tl.load(attention + row * a_row + heads[None, :] * a_head + at[:, None], mask=inside, other=0.0)
    rounded = value.to(high.dtype.element_ty)
    there = (row * pairs + at[:, None]) * H + heads[None, :]
    tl.store(high + there, rounded, mask=inside)
    if SPLIT:
        tl.store(low + there, (value - rounded.to(tl.float32)).to(tl.bfloat16), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _l1_kernel(  # type: ignore[no-untyped-def]
    weights,  # (row, query, key, head), heads contiguous; with SPLIT their higher halves
    weights_low,  # the lower halves
    vectors,  # (row, key, head, feature), features contiguous
    goal,  # (row, query, feature), features contiguous
    out,  # (row, query, key), keys contiguous
    n,
    w_row,
    w_query,
    w_key,
    v_row,
    v_key,
    v_head,
    g_row,
    g_query,
    o_row,
    o_query,
    d: tl.constexpr,
    H: tl.constexpr,
    HP: tl.constexpr,  # H rounded up to what tl.dot takes
    BQ: tl.constexpr,
    BK: tl.constexpr,
    BD: tl.constexpr,
    SPLIT: tl.constexpr,  # float32 is multiplied in halves
):
    row = tl.program_id(2).to(tl.int64)  # offsets of long texts and large batches outgrow 32 bits
    queries = tl.program_id(0) * BQ + tl.arange(0, BQ)
    first_key = tl.program_id(1) * BK
    heads = tl.arange(0, HP)
    columns = tl.arange(0, BK)
    at_queries = queries.to(tl.int64)
    total = tl.zeros((BQ, BK), dtype=tl.float32)
    for start in range(0, d, BD):
        features = start + tl.arange(0, BD)
        away = -tl.load(
            goal + row * g_row + at_queries[:, None] * g_query + features[None, :],
            mask=(queries < n)[:, None] & (features < d)[None, :],
            other=0.0,
        )
        for k in range(BK):
            key = (first_key + k).to(tl.int64)
            there = row * w_row + at_queries[:, None] * w_query + key * w_key + heads[None, :]
            inside = (queries < n)[:, None] & (heads < H)[None, :] & (key < n)
            some = tl.load(weights + there, mask=inside, other=0.0)
            vector = tl.load(
                vectors + row * v_row + key * v_key + heads[:, None] * v_head + features[None, :],
                mask=(heads < H)[:, None] & (features < d)[None, :] & (key < n),
                other=0.0,
            )
            if SPLIT:
                vector_high = vector.to(tl.bfloat16)
                vector_low = (vector - vector_high.to(tl.float32)).to(tl.bfloat16)
                part = tl.dot(tl.load(weights_low + there, mask=inside, other=0.0), vector_high, acc=away)
                part = tl.dot(some, vector_low, acc=part)
                part = tl.dot(some, vector_high, acc=part)
            else:
                part = tl.dot(some, vector, acc=away, input_precision="ieee")
            total += tl.where(columns[None, :] == k, tl.sum(tl.abs(part), axis=1)[:, None], 0.0)
    keys = first_key + columns
    tl.store(
        out + row * o_row + at_queries[:, None] * o_query + keys[None, :],
        total,
        mask=(queries < n)[:, None] & (keys < n)[None, :],
    )


def l1_fused(attention: Tensor, vectors: Tensor, goal: Tensor) -> Tensor:
    """attention (b, H, n, n) and goal (b, n, d) in float32, vectors (b, n, H, d) in float32 or, of a model that runs in it, in half
    precision → (b, n, n)."""
    b, heads, n, _ = attention.shape
    d = goal.shape[-1]
    split = vectors.dtype == torch.float32 and torch.cuda.get_device_capability(vectors.device) >= HALVES
    weights, weights_low = heads_last(attention, torch.bfloat16 if split else vectors.dtype, split)
    vectors = vectors if vectors.stride(-1) == 1 else vectors.contiguous()
    goal = goal.contiguous()
    out = torch.empty((b, n, n), dtype=torch.float32, device=attention.device)
    grid = (triton.cdiv(n, QUERIES), triton.cdiv(n, KEYS), b)
    _l1_kernel[grid](
        weights,
        weights_low,
        vectors,
        goal,
        out,
        n,
        *weights.stride()[:3],
        *vectors.stride()[:3],
        *goal.stride()[:2],
        *out.stride()[:2],
        d=d,
        H=heads,
        HP=max(16, triton.next_power_of_2(heads)),
        BQ=QUERIES,
        BK=KEYS,
        BD=FEATURES,
        SPLIT=split,
        num_warps=4,
    )
    return out


def heads_last(attention: Tensor, dtype: torch.dtype, split: bool) -> tuple[Tensor, Tensor]:
    """(b, H, n, n) → (b, n, n, H) in another dtype, one short run of memory per pair; with `split` also what rounding left over."""
    b, heads, n, _ = attention.shape
    whole = attention if attention.stride()[-2:] == (n, 1) else attention.contiguous()
    high = torch.empty((b, n, n, heads), dtype=dtype, device=attention.device)
    low = torch.empty_like(high) if split else high
    known = {"H": heads, "HP": triton.next_power_of_2(heads), "BLOCK": PAIRS, "SPLIT": split, "num_warps": 4}
    _heads_last_kernel[(triton.cdiv(n * n, PAIRS), b)](whole, high, low, n * n, *whole.stride()[:2], **known)
    return high, low


@triton.jit  # type: ignore[untyped-decorator]
def _gram_kernel(  # type: ignore[no-untyped-def]
    vectors,  # (row, key, head, feature), features contiguous
    gram,  # (row, head, head, key), contiguous
    n,
    v_row,
    v_key,
    v_head,
    d: tl.constexpr,
    H: tl.constexpr,
    HP: tl.constexpr,  # H rounded up to what tl.dot takes
    BD: tl.constexpr,
):
    key, row = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    heads = tl.arange(0, HP)
    total = tl.zeros((HP, HP), dtype=tl.float32)
    for start in range(0, d, BD):
        features = start + tl.arange(0, BD)
        own = tl.load(
            vectors + row * v_row + key * v_key + heads[:, None] * v_head + features[None, :],
            mask=(heads < H)[:, None] & (features < d)[None, :],
            other=0.0,
        )
        total += tl.dot(own, tl.trans(own), input_precision="ieee")
    pair = heads[:, None] * H + heads[None, :]
    inside = (heads < H)[:, None] & (heads < H)[None, :]
    tl.store(gram + (row * H * H + pair) * n + key, total, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _pairs_kernel(  # type: ignore[no-untyped-def]
    attention,  # (row, head, query, key), keys contiguous
    gram,  # (row, head, head, key), contiguous
    out,  # (row, query, key), contiguous
    n,
    a_row,
    a_head,
    a_query,
    H: tl.constexpr,
    BQ: tl.constexpr,
    BK: tl.constexpr,
):
    row = tl.program_id(2).to(tl.int64)
    queries = tl.program_id(0) * BQ + tl.arange(0, BQ)
    keys = tl.program_id(1) * BK + tl.arange(0, BK)
    inside = (queries < n)[:, None] & (keys < n)[None, :]
    own = attention + row * a_row + queries.to(tl.int64)[:, None] * a_query + keys[None, :]
    products = gram + row * H * H * n + keys
    total = tl.zeros((BQ, BK), dtype=tl.float32)
    for h in range(H):
        first = tl.load(own + h * a_head, mask=inside, other=0.0)
        inner = first * tl.load(products + (h * H + h) * n, mask=keys < n, other=0.0)[None, :]
        for k in range(h + 1, H):
            second = tl.load(own + k * a_head, mask=inside, other=0.0)
            inner += 2.0 * second * tl.load(products + (h * H + k) * n, mask=keys < n, other=0.0)[None, :]
        total += first * inner
    at = row * n * n + queries.to(tl.int64)[:, None] * n + keys[None, :]
    tl.store(out + at, total, mask=inside)


def squares_fused(attention: Tensor, vectors: Tensor) -> Tensor:
    """attention (b, H, n, n), vectors (b, n, H, d), all float32 → (b, n, n)."""
    b, heads, n, _ = attention.shape
    attention = attention if attention.stride(-1) == 1 else attention.contiguous()
    vectors = vectors if vectors.stride(-1) == 1 else vectors.contiguous()
    gram = torch.empty((b, heads, heads, n), dtype=torch.float32, device=attention.device)
    out = torch.empty((b, n, n), dtype=torch.float32, device=attention.device)
    padded = max(16, triton.next_power_of_2(heads))
    known = {"d": vectors.shape[-1], "H": heads, "HP": padded, "BD": GRAM_FEATURES, "num_warps": 1}
    _gram_kernel[(n, b)](vectors, gram, n, *vectors.stride()[:3], **known)
    grid = (triton.cdiv(n, PAIR_QUERIES), triton.cdiv(n, PAIR_KEYS), b)
    sizes = {"H": heads, "BQ": PAIR_QUERIES, "BK": PAIR_KEYS, "num_warps": 4}
    _pairs_kernel[grid](attention, gram, out, n, *attention.stride()[:3], **sizes)
    return out
