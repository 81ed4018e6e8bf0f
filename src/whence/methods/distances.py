"""How far, and how large, are the parts T_ij of which a block's output y_i is the sum? Never holds an (n, n, d) tensor.

All parts of one layer are linear in few vectors: T_ij = scale_i · (Σ_h A_h[i, j] U_h[j] + δ_ij residual_j), where
U_h[j] = v_j^h W_O^h has already been centred and scaled by γ (`Parts`).

* ℓ2 norms and inner products need no feature loop over pairs at all: ‖Σ_h a_h U_h‖² = aᵀ G_j a with the H × H Gram matrix
  of token j, and ⟨t_i, Σ_h a_h U_h[j]⟩ passes through the head space, (t_i W_O^hᵀ)·v_j^h.
* ℓ1 distances need every feature of every pair: n²·d·H multiply-adds in blocks of a few keys, each block a small batched
  matrix product whose result stays in the processor's cache while it is reduced. On CUDA one fused kernel does it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from whence.fast.fused import fusible

VECTOR_BYTES = 64 << 20  # U of the rows worked on at once; one row of 512 tokens of BERT-base takes 19 MB
CACHE_BYTES = 4 << 20  # an ℓ1 block, which stays in the processor's cache while it is reduced
QUERIES = 256  # queries of an ℓ1 block
CUDA_FACTOR = 32  # on CUDA blocks are this much larger: there, launches cost more than memory


@dataclass(frozen=True)
class Parts:
    """T_ij = scale_i · (Σ_h A_h[i, j] · value_j^h weight^h + δ_ij residual_j) for some rows of a batch."""

    attention: Tensor  # (b, H, n query, n key)
    value: Tensor  # (b, H, n, e) in what the model ran in; everything else is at least float32
    weight: Tensor  # (H, e, d) W_O, centred and scaled by γ
    residual: Tensor  # (b, n, d) x, likewise
    scale: Tensor  # (b, n) 1/σ_i

    def rows(self) -> Iterator[tuple[slice, Parts]]:
        """A few rows of the batch at a time, as many as VECTOR_BYTES allow."""
        b, heads, n, _ = self.attention.shape
        row_bytes = heads * n * self.residual.shape[-1] * self.residual.element_size()
        for rows in slices(b, (CUDA_FACTOR if self.residual.is_cuda else 1) * VECTOR_BYTES // row_bytes):
            yield (
                rows,
                replace(
                    self,
                    attention=self.attention[rows],
                    value=self.value[rows],
                    residual=self.residual[rows],
                    scale=self.scale[rows],
                ),
            )

    def vectors(self, dtype: torch.dtype | None = None) -> Tensor:
        """U_h[j] = v_j^h W_O^h: (b, n, H, d), in another dtype on request. One product per head for all rows: by rows, W_O would be
        copied for each."""
        b, _, n, _ = self.value.shape
        value, weight = (t.to(dtype or self.weight.dtype) for t in (self.value, self.weight))
        of_heads = value.transpose(0, 1).flatten(1, 2) @ weight  # (H, b·n, d)
        return of_heads.view(-1, b, n, of_heads.shape[-1]).permute(1, 2, 0, 3)

    def diagonal(self, vectors: Tensor) -> Tensor:
        """T_ii / scale_i, the one part that holds the residual: (b, n, d)."""
        attention = self.attention.diagonal(dim1=-2, dim2=-1)  # (b, H, n)
        if vectors.is_cuda:  # one pass over the vectors
            return self.residual + torch.einsum("bhn,bnhd->bnd", attention.to(vectors.dtype), vectors)
        total = self.residual.clone()
        for h in range(attention.shape[1]):
            total.addcmul_(vectors[:, :, h], attention[:, h, :, None])
        return total


def norms(parts: Parts) -> Tensor:
    """‖T_ij‖₂: (b, n, n)."""
    return torch.cat([norms_of_rows(part) for _, part in parts.rows()])


def norms_of_rows(parts: Parts) -> Tensor:
    """‖T_ij‖₂ of rows that fit into memory together."""
    vectors = parts.vectors()
    sizes = squared_norms(parts.attention, vectors).clamp_(min=0).sqrt_()
    sizes.diagonal(dim1=-2, dim2=-1).copy_(parts.diagonal(vectors).norm(dim=-1))
    return sizes.mul_(parts.scale[:, :, None])


def distances(parts: Parts, target: Tensor, order: int) -> Tensor:
    """‖t_i − T_ij‖ in the ℓ1 or ℓ2 norm; target t (b, n, d) → (b, n, n)."""
    return torch.cat([distances_of_rows(part, target[rows], order) for rows, part in parts.rows()])


def distances_of_rows(parts: Parts, target: Tensor, order: int) -> Tensor:
    """‖t_i − T_ij‖ of rows that fit into memory together."""
    goal = target / parts.scale[:, :, None]  # so that the parts need no division: ‖t − sP‖ = s·‖t/s − P‖
    # sums of absolute values bear vectors that are rounded as the model's own states are
    vectors = parts.vectors(parts.value.dtype if order == 1 and fusible(goal) else None)
    apart = l1_distances(parts.attention, vectors, goal) if order == 1 else l2_distances(parts, vectors, goal)
    apart.diagonal(dim1=-2, dim2=-1).copy_(diagonal_distances(parts, vectors, goal, order))
    return apart.mul_(parts.scale[:, :, None])


def diagonal_distances(parts: Parts, vectors: Tensor, goal: Tensor, order: int) -> Tensor:
    """‖goal_i − T_ii / scale_i‖: (b, n)."""
    if order == 1 and fusible(goal, parts.residual):
        from whence.fast.mixing_triton import own_l1_fused

        return own_l1_fused(parts.attention, vectors, goal - parts.residual)
    distances: Tensor = torch.linalg.vector_norm(goal - parts.diagonal(vectors), order, dim=-1)
    return distances


def squared_norms(attention: Tensor, vectors: Tensor) -> Tensor:
    """‖Σ_h A_h[i, j] U_h[j]‖² = Σ_hk A_h[i, j] A_k[i, j] G_j[h, k], G_j[h, k] = ⟨U_h[j], U_k[j]⟩: (b, n, n); fused on CUDA
    where Triton is there."""
    if fusible(vectors) and attention.dtype == vectors.dtype:
        from whence.fast.mixing_triton import squares_fused

        return squares_fused(attention, vectors)
    return squares_by_pairs(attention, vectors)


def squares_by_pairs(attention: Tensor, vectors: Tensor) -> Tensor:
    """The reference: head pair by head pair, on whole (n, n) matrices. A small matrix product per key would have to reorder the
    attention."""
    gram = (vectors @ vectors.transpose(-1, -2)).permute(0, 2, 3, 1).unsqueeze(-2)  # (b, H, H, 1, n key)
    squares, inner = torch.zeros_like(attention[:, 0]), torch.empty_like(attention[:, 0])
    heads = attention.shape[1]
    for h in range(heads):
        torch.mul(attention[:, h], gram[:, h, h], out=inner)
        for k in range(h + 1, heads):
            inner.addcmul_(attention[:, k], gram[:, h, k], value=2)
        squares.addcmul_(attention[:, h], inner)
    return squares


def inner_products(parts: Parts, goal: Tensor) -> Tensor:
    """⟨goal_i, Σ_h A_h[i, j] U_h[j]⟩, head by head: (b, n, n)."""
    products = torch.zeros_like(parts.attention[:, 0])
    for h in range(parts.attention.shape[1]):
        in_head = goal @ parts.weight[h].T  # (b, n, e)
        value = parts.value[:, h].to(in_head.dtype)
        products.addcmul_(parts.attention[:, h], in_head @ value.transpose(-1, -2))
    return products


def l2_distances(parts: Parts, vectors: Tensor, goal: Tensor) -> Tensor:
    """√(‖g‖² − 2⟨g, P⟩ + ‖P‖²). Cancellation is harmless: only the diagonal comes close to g, and it is done apart."""
    square = squared_norms(parts.attention, vectors) - 2 * inner_products(parts, goal)
    return (square + goal.square().sum(-1)[:, :, None]).clamp_(min=0).sqrt_()


def l1_distances(attention: Tensor, vectors: Tensor, goal: Tensor) -> Tensor:
    """‖goal_i − Σ_h A_h[i, j] U_h[j]‖₁: (b, n, n); fused on CUDA where Triton is there, in blocks elsewhere."""
    if fusible(goal):
        from whence.fast.mixing_triton import l1_fused

        return l1_fused(attention, vectors, goal)
    return l1_blocked(attention, vectors, goal)


def l1_blocked(attention: Tensor, vectors: Tensor, goal: Tensor) -> Tensor:
    """The reference: for a few keys and some queries at a time, (key, query, H) @ (key, H, d) − goal, |·|, Σ_d.

    attention (b, H, n, n), vectors (b, n, H, d), goal (b, n, d).
    """
    b, _, n, _ = attention.shape
    d = goal.shape[-1]
    distances = torch.empty_like(attention[:, 0])
    larger = CUDA_FACTOR if goal.is_cuda else 1
    queries = min(n, QUERIES * larger)
    keys = max(1, larger * CACHE_BYTES // (queries * d * goal.element_size()))
    buffer = goal.new_empty(min(keys, n) * queries * d)
    for row in range(b):
        weights = attention[row].permute(1, 2, 0).contiguous().transpose(0, 1)  # (key, query, H), heads side by side
        for query in slices(n, queries):
            away = goal[row, query]
            for key in slices(n, keys):
                block = weights[key, query]
                parts = buffer[: block.shape[0] * block.shape[1] * d].view(*block.shape[:2], d)
                torch.baddbmm(away.expand(len(block), -1, -1), block, vectors[row, key], beta=-1, out=parts)
                distances[row, query, key] = parts.abs_().sum(-1).T
    return distances


def slices(length: int, step: int) -> Iterator[slice]:
    """[0, length) in steps of at least one.

    >>> list(slices(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, step)
    for start in range(0, length, step):
        yield slice(start, min(length, start + step))
