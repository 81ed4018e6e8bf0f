"""What a method sees: one batch, traced. Padding is already neutral in every tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from whence.errors import WhenceError
from whence.inputs import Batch
from whence.models.lm_head import LMHead
from whence.tasks import Scalar
from whence.trace.blocks import Block

Tensors = Sequence[Tensor]


@dataclass(frozen=True)
class Trace:
    """Tensors of one traced batch. Shapes: b rows, n tokens (padded), H heads, L layers, d features.

    Attention entries of padded queries and keys are 0, gradients of padded tokens too, so that sums need no mask;
    means over tokens go through `mean_tokens`, which divides by each row's own length.
    """

    batch: Batch
    scalar: Scalar  # what is explained of each row
    y: Tensor  # (b,) its value
    chance: Callable[[], Tensor | None]  # gives `probability`
    recorded: dict[str, Tensors]
    layer_blocks: tuple[Block, ...] | None = None
    lm_heads: Mapping[Any, LMHead] | None = None  # by what the option lm_head= said

    @cached_property
    def probability(self) -> Tensor | None:
        """(b,) of the target; None where the model gives no probabilities."""
        return self.chance()

    @property
    def valid(self) -> Tensor:
        """(b, n) bool: tokens of the row, not padding."""
        return self.batch.valid

    @property
    def lengths(self) -> Tensor:
        """(b,)"""
        return self.batch.lengths

    @property
    def input_ids(self) -> Tensor:
        """(b, n)"""
        return self.batch.input_ids

    def _get(self, need: str) -> Tensors:
        if need not in self.recorded:
            raise WhenceError(f"this method reads {need!r} but does not declare it; add it to needs={{…}}.")
        return self.recorded[need]

    @property
    def attention(self) -> Tensors:
        """A^1 … A^L, each (b, H, n query, n key), made when they are looked at: go through them once, layer by layer."""
        return self._get("attention")

    @property
    def attention_grad(self) -> Tensors:
        """G^1 … G^L; with the need `attention.grad:last` alone, just (G^L,)."""
        return self._get("attention.grad")

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The attention blocks of layers 1 … L, taken apart by the architecture's spec."""
        if self.layer_blocks is None:
            raise WhenceError("this method reads 'blocks' but does not declare it; add it to needs={…}.")
        return self.layer_blocks

    @property
    def attention_relevance(self) -> Tensors:
        """cam^1 … cam^L, each (b, H, n, n); with the need `attention.relevance:last` alone, just (cam^L,)."""
        return self._get("attention.relevance")

    @property
    def hidden_relevance(self) -> Tensors:
        """Relevance of X^0 … X^L, each (b, n, d)."""
        return self._get("hidden.relevance")

    @property
    def hidden(self) -> Tensors:
        """X^0 … X^L, each (b, n, d)."""
        return self._get("hidden")

    @property
    def hidden_grad(self) -> Tensors:
        """∂y/∂X^0 … ∂y/∂X^L."""
        return self._get("hidden.grad")

    @property
    def hidden_loss_grad(self) -> Tensors:
        """∂(−log p)/∂X^0 … ∂(−log p)/∂X^L."""
        return [-g for g in self._get("hidden.grad:log-probability")]

    def lm_head(self, given: Any = None) -> LMHead:
        """The language-model head that the option lm_head=`given` names."""
        if self.lm_heads is None or given not in self.lm_heads:
            raise WhenceError("this method reads 'lm-head' but does not declare it; add it to needs={…}.")
        return self.lm_heads[given]

    @property
    def embeddings(self) -> Tensor:
        """x (b, n, d)."""
        return self._get("embeddings")[0]

    def embeddings_grad(self, of: str = "logit") -> Tensor:
        """∂y/∂x for of="logit"; ∂p/∂x for "probability"; ∂(−log p)/∂x for "loss". (b, n, d)

        The last two come from one backward: ∂p = p·∂log p and ∂loss = −∂log p.
        """
        if of == "logit":
            return self._get("embeddings.grad")[0]
        log_probability = self._get("embeddings.grad:log-probability")[0]
        if of == "loss":
            return -log_probability
        assert self.probability is not None
        return log_probability * self.probability[:, None, None]

    @cached_property
    def mean_attention(self) -> Tensors:
        """mean_h A^l, each (b, n, n)."""
        return [a.mean(1) for a in self.attention]

    @cached_property
    def eye(self) -> Tensor:
        """I (n, n)."""
        dtype = torch.promote_types(self.y.dtype, torch.float32)
        return torch.eye(self.valid.shape[1], dtype=dtype, device=self.valid.device)

    @property
    def readout(self) -> Tensor:
        """(b, k) the position r at which the answer is read; several, or padded with share 0, for scalars that are sums, and for
        answers that are read at the mean of all tokens."""
        self.scalar.check_read()
        return self.scalar.readout

    def at_readout(self, matrix: Tensor) -> Tensor:
        """Row r of each matrix, summed over the positions where the answer is read in several, or their mean where it is read
        at that: (b, n, k) → (b, k)."""
        rows = matrix[torch.arange(len(matrix), device=matrix.device)[:, None], self.readout]  # (b, m, k)
        return (rows * self.scalar.share.to(rows.dtype)[:, :, None]).sum(1)

    def mean_tokens(self, values: Tensor, dim: int) -> Tensor:
        """Mean over a token axis, counting the tokens of each row only."""
        total = values.sum(dim)
        return total / self.lengths.reshape(-1, *[1] * (total.dim() - 1)).to(total.dtype)
