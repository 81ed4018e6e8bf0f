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

from whence.fast.fused import multiplies_halves

QUERIES, KEYS, FEATURES = 64, 16, 128
MORE_KEYS, BUSY = 64, 512  # in float32, where so many programs are left all the same
GRAM_FEATURES = 128
OWN_TOKENS, OWN_FEATURES = 16, 128
PAIR_QUERIES, PAIR_KEYS = 32, 64


@triton.jit  # type: ignore[untyped-decorator]
def _l1_kernel(  # type: ignore[no-untyped-def]
    weights,  # (row, query, key, head), heads contiguous
    vectors,  # (row, key, head, feature), features contiguous; weights are rounded to what these are in
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
            some = tl.load(
                weights + row * w_row + at_queries[:, None] * w_query + key * w_key + heads[None, :],
                mask=(queries < n)[:, None] & (heads < H)[None, :] & (key < n),
                other=0.0,
            )
            vector = tl.load(
                vectors + row * v_row + key * v_key + heads[:, None] * v_head + features[None, :],
                mask=(heads < H)[:, None] & (features < d)[None, :] & (key < n),
                other=0.0,
            )
            if SPLIT:
                some_high, vector_high = some.to(tl.bfloat16), vector.to(tl.bfloat16)
                some_low = (some - some_high.to(tl.float32)).to(tl.bfloat16)
                vector_low = (vector - vector_high.to(tl.float32)).to(tl.bfloat16)
                part = tl.dot(some_low, vector_high, acc=away)
                part = tl.dot(some_high, vector_low, acc=part)
                part = tl.dot(some_high, vector_high, acc=part)
            else:
                part = tl.dot(some.to(vector.dtype), vector, acc=away, input_precision="ieee")
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
    weights = attention.permute(0, 2, 3, 1).contiguous()  # (b, query, key, H): one short run of memory per pair
    vectors = vectors if vectors.stride(-1) == 1 else vectors.contiguous()
    goal = goal.contiguous()
    out = torch.empty((b, n, n), dtype=torch.float32, device=attention.device)
    split = vectors.dtype == torch.float32 and multiplies_halves(vectors)
    blocks = triton.cdiv(n, QUERIES)
    keys = MORE_KEYS if split and b * blocks * triton.cdiv(n, MORE_KEYS) >= BUSY else KEYS
    grid = (blocks, triton.cdiv(n, keys), b)
    _l1_kernel[grid](
        weights,
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
        BK=keys,
        BD=FEATURES,
        SPLIT=split,
        num_warps=4,
    )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _own_kernel(  # type: ignore[no-untyped-def]
    attention,  # (row, head, query, key)
    vectors,  # (row, key, head, feature), features contiguous
    goal,  # (row, query, feature), contiguous
    out,  # (row, query), contiguous
    n,
    blocks,  # of tokens, in a row
    a_row,
    a_head,
    a_diagonal,  # from one pair of a token with itself to the next
    v_row,
    v_key,
    v_head,
    d: tl.constexpr,
    H: tl.constexpr,
    BT: tl.constexpr,
    BD: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) // blocks
    tokens = (tl.program_id(0) % blocks * BT + tl.arange(0, BT)).to(tl.int64)
    total = tl.zeros((BT,), dtype=tl.float32)
    for start in range(0, d, BD):
        features = start + tl.arange(0, BD)
        inside = (tokens < n)[:, None] & (features < d)[None, :]
        away = tl.load(goal + (row * n + tokens)[:, None] * d + features[None, :], mask=inside, other=0.0)
        for h in range(H):
            weight = tl.load(attention + row * a_row + h * a_head + tokens * a_diagonal, mask=tokens < n, other=0.0)
            at = vectors + row * v_row + h * v_head + tokens[:, None] * v_key + features[None, :]
            away -= weight[:, None] * tl.load(at, mask=inside, other=0.0).to(tl.float32)
        total += tl.sum(tl.abs(away), axis=1)
    tl.store(out + row * n + tokens, total, mask=tokens < n)


def own_l1_fused(attention: Tensor, vectors: Tensor, goal: Tensor) -> Tensor:
    """‖goal_i − Σ_h A_h[i, i] U_h[i]‖₁ for shapes as in `l1_fused`: (b, n)."""
    b, heads, n, _ = attention.shape
    vectors, goal = vectors if vectors.stride(-1) == 1 else vectors.contiguous(), goal.contiguous()
    out = torch.empty((b, n), dtype=torch.float32, device=attention.device)
    a_row, a_head, a_query, a_key = attention.stride()
    blocks = triton.cdiv(n, OWN_TOKENS)
    places = (n, blocks, a_row, a_head, a_query + a_key, *vectors.stride()[:3])
    known = {"d": goal.shape[-1], "H": heads, "BT": OWN_TOKENS, "BD": OWN_FEATURES, "num_warps": 4}
    _own_kernel[(b * blocks,)](attention, vectors, goal, out, *places, **known)
    return out


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
