"""Seam 1: one attention function for every architecture. It keeps what a layer read, not the maps that it made.

The model runs with a fused kernel, which never writes A (b, H, n, n) down. A layer's queries, keys and values are small, and all
that methods ask about its maps follows from them when it is asked: A = softmax(q·kᵀ·scale + bias), and from the gradient at
the layer's output o = A·v also G = ∂y/∂A = ∂y/∂o · vᵀ. So a trace holds one layer's maps at a time where all would not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from whence.errors import NotSupported
from whence.models import says_causal, two_part, uses_attention_interface
from whence.models.layers import stated_depth
from whence.relevance.operations import Run, apply, no_operation_of_its_own, run_in_use
from whence.relevance.rules import RuleSet

NAME = "whence"
UNASKED = "whence-sdpa"  # torch's kernel, with a mask that is made without looking into it
CHUNK_BYTES = {"cpu": 16 << 20}  # of one map, while relevance passes through a layer a few heads at a time
LARGE_CHUNK = 1 << 30  # on other devices
_tape: ContextVar[list[Attended] | None] = ContextVar("whence_attention_tape", default=None)


@dataclass(frozen=True)
class Attended:
    """One attention layer as it ran: what its maps are made of."""

    query: Tensor  # (b, H, query, e)
    key: Tensor  # (b, H, key, e), heads repeated in grouped-query attention
    value: Tensor  # (b, H, key, e)
    bias: Tensor | None  # (b or 1, H or 1, query, key), added to the scores: mask, position bias
    scaling: float
    softcap: float | None = None  # soft-capped scores (Gemma 2)
    sinks: Tensor | None = None  # (H,) attention sinks (gpt-oss)
    context: Tensor | None = None  # A·v (b, H, query, e), in the graph

    @property
    def handle(self) -> Tensor:
        """The tensor in the graph whose gradient, or relevance, tells that of the map."""
        assert self.context is not None
        return self.context

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(b, H, query, key)"""
        return (*self.query.shape[:3], self.key.shape[2])

    @property
    def fused(self) -> bool:
        """Whether torch has a kernel for it."""
        return self.softcap is None and self.sinks is None

    def scores(self, products: Tensor, *, overwrite: bool = False) -> Tensor:
        """From q·kᵀ to what the softmax reads; `overwrite` takes the products' own memory for it, a map of long texts each."""
        scores = products.mul_(self.scaling) if overwrite else products * self.scaling
        if self.softcap is not None:
            scores = torch.tanh(scores / self.softcap) * self.softcap
        if self.bias is None:
            return scores
        return scores.add_(self.bias) if overwrite else scores + self.bias

    def softmax(self, scores: Tensor) -> Tensor:
        """Probabilities, in at least float32."""
        precise = torch.promote_types(scores.dtype, torch.float32)
        if self.sinks is None:
            return torch.softmax(scores, -1, dtype=precise)
        sinks = self.sinks.reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        return torch.softmax(torch.cat([scores, sinks], -1), -1, dtype=precise)[..., :-1]

    def written_out(self, run: Run | None) -> Tensor:
        """A·v, step by step."""
        a, v = self.softmax(self.scores(torch.matmul(self.query, self.key.mT))).to(self.value.dtype), self.value
        if run is not None:
            a, v = run.gates.on_operands(a, v)
        return torch.matmul(a, v)

    def kernel(self) -> Tensor:
        """A·v, in one kernel."""
        return F.scaled_dot_product_attention(self.query, self.key, self.value, attn_mask=self.bias, scale=self.scaling)

    def side_by_side(self) -> Attended:
        """Heads laid out one after the other, as products of all of them want them: made once where there will be many."""
        q, k, v = (t.contiguous() for t in (self.query, self.key, self.value))
        return replace(self, query=q, key=k, value=v)

    @torch.no_grad()
    def probabilities(self) -> Tensor:
        """A (b, H, query, key), in at least float32."""
        return self.softmax(self.scores(self.query @ self.key.mT, overwrite=True))

    @torch.no_grad()
    def gradient(self, found: Tensor) -> Tensor:
        """G = ∂y/∂A from ∂y/∂(A·v): (b, H, query, key)."""
        return found @ self.value.mT

    @torch.no_grad()
    def relevance(self, found: Tensor, rules: RuleSet) -> Tensor:
        """cam, the map's share of the relevance of A·v, from what a backward carried there by these rules: (b, H, query, key)."""
        product, shared = rules.product, []
        for some, r, z in self.by_heads(found, self.handle.detach()):
            a = some.probabilities().to(some.value.dtype)
            share = product.first(a, some.value, product.ratio(r, z))
            shared.append(share if rules.carries == "relevance" else share.mul_(a))
        return joined(shared)

    def by_heads(self, *more: Tensor) -> Iterator[tuple[Any, ...]]:
        """The layer a few heads at a time, each with its share of other tensors that have heads."""
        b, heads, n, _ = self.query.shape
        one = b * n * self.key.shape[2] * max(4, self.query.element_size())
        size = max(1, CHUNK_BYTES.get(self.query.device.type, LARGE_CHUNK) // one)
        for start in range(0, heads, size):
            some = slice(start, start + size)
            bias = self.bias if self.bias is None or self.bias.shape[1] == 1 else self.bias[:, some]
            sinks = None if self.sinks is None else self.sinks[some]
            q, k, v = self.query[:, some], self.key[:, some], self.value[:, some]
            yield (
                replace(self, query=q, key=k, value=v, bias=bias, sinks=sinks, context=None),
                *(t[:, some] for t in more),
            )


@dataclass(frozen=True)
class Shown:
    """A layer whose model hands out the map itself, in the graph (models that do not go through the interface)."""

    handle: Tensor  # A (b, H, query, key)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.handle.shape) if isinstance(self.handle, Tensor) else ()

    def probabilities(self) -> Tensor:
        return self.handle.detach()

    def gradient(self, found: Tensor) -> Tensor:
        return found

    def relevance(self, found: Tensor, rules: RuleSet) -> Tensor:
        return found if rules.carries == "relevance" else found * self.handle.detach()


class Attention(Function):
    """o = A·v whose backward carries gradients by the kernel's own, relevance by the rules, a few heads at a time."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, layer: Attended, number: int, run: Run) -> Tensor:
        with no_operation_of_its_own(), torch.enable_grad():
            inner = tuple(t.detach().requires_grad_(run.gradients) for t in (query, key, value))
            context = replace(layer, query=inner[0], key=inner[1], value=inner[2]).kernel()
        ctx.run, ctx.number, ctx.inner, ctx.context = run, number, inner, context
        # not the tensor that is returned: that one holds this node, and the two would keep each other for good
        ctx.layer = replace(layer, context=context.detach())
        return context.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (r,) = grads
        found: tuple[Tensor, ...]
        shares = ctx.run.rules.fused_attention if ctx.run.relevance else (1.0, 1.0, 1.0)
        if shares is None:
            found = through_attention(ctx.layer, r, ctx.number, ctx.run)
        else:
            found = torch.autograd.grad(ctx.context, ctx.inner, r, retain_graph=True)
            found = tuple(g if share == 1 else g * share for g, share in zip(found, shares, strict=True))
        return (*found, None, None, None)


@torch.no_grad()
def through_attention(layer: Attended, r: Tensor, number: int, run: Run) -> tuple[Tensor, ...]:
    """Relevance of o handed down to q, k and v: the product rule, the softmax rule, the product rule."""
    rules, found = run.rules, []
    assert rules.softmax is not None
    mask = run.gates.operands(number, r)
    parts = [r, layer.handle] if mask is None else [r, layer.handle, mask]
    for some, share, z, *masks in layer.by_heads(*parts):
        products = some.query @ some.key.mT
        scores = some.scores(products)
        a = some.softmax(scores).to(some.value.dtype)
        ra, rv = rules.product(a, some.value, z, share)
        if masks:
            ra, rv = ra * masks[0], rv * masks[0]
        rq, rk = rules.product(some.query, some.key.mT, products, rules.softmax(scores, a, ra))
        found.append((rq, rk.mT, rv))
    return tuple(map(joined, zip(*found, strict=True)))


def joined(of_heads: Sequence[Tensor]) -> Tensor:
    """A few heads after the other; on a GPU they mostly fit at once."""
    return of_heads[0] if len(of_heads) == 1 else torch.cat(list(of_heads), 1)


def attention(
    module: nn.Module,
    query: Tensor,  # (batch, head, query, feature)
    key: Tensor,  # (batch, key head, key, feature)
    value: Tensor,
    attention_mask: Tensor | None,  # (batch, 1, query, key), additive
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """softmax(q·kᵀ·scale + bias)·v, kept on the tape.

    Covers what transformers' own functions do: grouped-query attention, soft-capped scores (Gemma 2), attention sinks
    (gpt-oss) and position biases (T5). Dropout never runs: models are traced in eval mode.
    """
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    mask = None if attention_mask is None else attention_mask[..., : key.shape[-2]]
    bias = mask if position_bias is None else position_bias if mask is None else position_bias + mask
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer = Attended(query, key, value, bias, scaling, softcap, s_aux)
    run = run_in_use()
    if not layer.fused or (run is not None and run.rules.paired):
        context = layer.written_out(run)
    elif run is None or run.rules.fused_attention is not None:
        context = layer.kernel()
    else:
        layer = layer.side_by_side()
        context = apply(Attention, layer.query, layer.key, layer.value, detached(layer), run.gates.layers, run)
    tape = _tape.get()
    if tape is not None:
        tape.append(replace(detached(layer), context=context))
    if run is not None:
        context = run.gates.on_context(context)
    return context.transpose(1, 2).contiguous(), None


def unseen(model: PreTrainedModel) -> NotSupported:
    """The error of a model whose attention nobody sees."""
    return NotSupported(f"{type(model).__name__} lets nobody see its attention", lacks=lacks_attention(model))


def lacks_attention(model: PreTrainedModel) -> tuple[str, ...]:
    """What a model lacks whose attention is no map of all pairs of tokens: of an encoder and a decoder everything that is traced."""
    return ("trace",) if two_part(model) else ("attention",)


def check_attended(model: PreTrainedModel, layers: Sequence[Attended | Shown], ids: Tensor, *, one_each: bool) -> None:
    """Methods that read attention take it for one map of all pairs of tokens a layer (`one_each`)."""
    if not layers:
        raise unseen(model)
    if not one_each:
        return
    depth = stated_depth(model)
    if depth is not None and depth != len(layers):
        raise NotSupported(
            f"{type(model).__name__} has {depth} layers and attends {len(layers)} times, so it cannot be told which map is a layer's",
            lacks=lacks_attention(model),
        )
    (b, n), odd = ids.shape, [layer.shape for layer in layers if len(layer.shape) != 4]
    odd += [
        layer.shape for layer in layers if len(layer.shape) == 4 and (layer.shape[0], *layer.shape[2:]) != (b, n, n)
    ]
    if odd:
        raise NotSupported(
            f"{type(model).__name__} has attention of shape {odd[0]} for {b} texts of {n} tokens, not a map of all pairs of them",
            lacks=lacks_attention(model),
        )


def detached(layer: Attended) -> Attended:
    return replace(layer, query=layer.query.detach(), key=layer.key.detach(), value=layer.value.detach())


@contextmanager
def attention_tape() -> Iterator[list[Attended]]:
    """What every attention layer run inside the block read, in order."""
    layers: list[Attended] = []
    token = _tape.set(layers)
    try:
        yield layers
    finally:
        _tape.reset(token)


def hides_nothing(ids: Tensor) -> Tensor:
    """A mask that says so by its strides: one True, as large as the ids."""
    return torch.ones((), dtype=torch.bool, device=ids.device).expand(ids.shape)


def without_what_hides_nothing(given: dict[str, Any]) -> dict[str, Any]:
    mask = given.get("attention_mask")
    return given if mask is None or any(mask.stride()) else {**given, "attention_mask": None}


def mask_written_out(*, dtype: torch.dtype = torch.float32, **given: Any) -> Tensor | None:
    """transformers' mask for attention that is written out: 0 where a query sees a key, the lowest number where it does not.
    Made without a number from the host, for which a GPU would be waited."""
    mask = mask_unasked(**{**given, "allow_is_causal_skip": False})
    if mask is None:
        return None
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)


def mask_unasked(**given: Any) -> Tensor | None:
    """transformers leaves out a mask that hides nothing, and asks the device whether it does. Batches that hide nothing come
    without one, or with one that says so (`asked_for_mask`), so what is left is used, and nobody waits."""
    given = without_what_hides_nothing(given)
    if given.get("attention_mask") is not None:
        given |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return sdpa_mask(**given)


def asked_for_mask(model: PreTrainedModel, device: torch.device, modules: Sequence[nn.Module] | None = None) -> bool:
    """Whether a model that gets no mask looks at its ids or positions instead, whether there should be one: decoders do. A GPU
    would be waited for, so there a mask is given that hides nothing."""
    ours = model.config._attn_implementation_internal in (NAME, UNASKED)
    return device.type == "cuda" and ours and says_causal(model, modules)


# Without a mask function of the same name transformers passes no mask at all: padding and causality would vanish.
AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, mask_written_out)


def unasked(model: PreTrainedModel, device: torch.device) -> str | None:
    """The attention function that keeps a GPU from being waited for, where a model runs torch's kernel; None: as it is."""
    if device.type != "cuda" or not uses_attention_interface(model):
        return None
    configs = (model.config, model.config.get_text_config())
    return UNASKED if all(c._attn_implementation_internal == "sdpa" for c in configs) else None


AttentionInterface.register(UNASKED, sdpa_attention_forward)
AttentionMaskInterface.register(UNASKED, mask_unasked)
