"""Head masks on the way of relevance: which heads it may pass, and how its sum is kept (Mask-LRP)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from whence.errors import InputError, NotSupported
from whence.relevance.cuts import carry

Grid = tuple[tuple[float, ...], ...]  # (L, H)


@dataclass(frozen=True)
class HeadParts:
    """ℳ = Σ parts, each (L, H); Mask-LRP's parts are the syntactic and the positional counts.

    keep_sum=True: the paper's §4.3, the masked relevance of a block is rescaled so that its sum stays what it was.
    keep_sum=False: the released code, masked and not rescaled, and what is read at the attention is not masked at all.
    """

    parts: tuple[Grid, ...]
    keep_sum: bool = True

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.parts[0]), len(self.parts[0][0])

    def check(self, attention: Sequence[Tensor], gated: int) -> None:
        """The mask must fit the model, and the model must let its heads be masked."""
        if not attention or gated != len(attention):
            raise NotSupported(
                "this model's attention does not go through transformers' interface: no head can be masked."
            )
        found = (len(attention), attention[0].shape[1])
        if self.shape != found:
            raise InputError(
                f"the head mask is {self.shape[0]} layers × {self.shape[1]} heads, but the model has {found[0]} × {found[1]}."
            )


def masked_keeping_sum(r: Tensor, parts: Tensor) -> Tensor:
    """Mask-LRP §4.3: each part R_k = ℳ_k R, rescaled to |ΣR_k| / Σ_k|ΣR_k| of ΣR. r (b, H, …), parts (k, H).

    With sums of one sign these are the paper's two equations; with mixed signs |ΣR| in their denominator would not keep
    the sum, so the sum of absolute values stands there. A block, or a row, where nothing passes goes on unmasked.
    """
    shape = (1, -1, *[1] * (r.dim() - 2))
    axes = tuple(range(1, r.dim()))
    masked = [r * part.reshape(shape) for part in parts]
    sums = [m.sum(axes, keepdim=True) for m in masked]  # (b, 1, …)
    weight = torch.stack([s.abs() for s in sums]).sum(0)
    total = r.sum(axes, keepdim=True)
    result = torch.zeros_like(r)
    for m, s in zip(masked, sums, strict=True):
        # |s|/weight · total/s = sign(s)·total/weight
        result = result + m * (s.sign() * total / weight.masked_fill(weight == 0, 1.0))
    return torch.where(weight == 0, r, result)


class Gate(Function):
    """x itself; relevance is masked by head on its way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gates: Gates, layer: int, at_context: bool) -> Tensor:
        ctx.gates, ctx.layer, ctx.at_context = gates, layer, at_context
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.gates.masked(grads[0], ctx.layer, ctx.at_context), None, None, None


class Gates:
    """Placed by the attention function around A·V in every layer; idle unless a backward sets `heads`.

    The paper's mask acts on the relevance of the context, so that the attention map's share is masked too; the released
    code masks what A and V pass on, and reads the map's share before that. By head, masking and sharing commute.
    """

    def __init__(self) -> None:
        self.heads: HeadParts | None = None
        self.layers = 0  # met so far

    def on_operands(self, *operands: Tensor) -> list[Tensor]:
        return [gated(x, self, self.layers, False) for x in operands]

    def on_context(self, context: Tensor) -> Tensor:
        self.layers += 1
        return gated(context, self, self.layers - 1, True)

    def parts(self, layer: int, r: Tensor) -> Tensor:
        """The mask's parts at a layer: (k, H)."""
        assert self.heads is not None
        return torch.tensor([part[layer] for part in self.heads.parts], dtype=r.dtype, device=r.device)

    def operands(self, layer: int, r: Tensor) -> Tensor | None:
        """What multiplies the relevance that A and V pass on, (1, H, 1, 1); None where nothing does."""
        if self.heads is None or self.heads.keep_sum:
            return None
        return self.parts(layer, r).sum(0)[None, :, None, None]

    def masked(self, r: Tensor, layer: int, at_context: bool) -> Tensor:
        if self.heads is None or self.heads.keep_sum != at_context:
            return r
        mask = self.operands(layer, r)
        return masked_keeping_sum(r, self.parts(layer, r)) if mask is None else r * mask


def gated(x: Tensor, gates: Gates, layer: int, at_context: bool) -> Tensor:
    result: Tensor = Gate.apply(x, gates, layer, at_context)  # type: ignore[no-untyped-call]
    carry([x], result)
    return result
