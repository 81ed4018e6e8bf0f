"""What happens inside each layer, as far as the mixing methods need it: `trace.blocks`, one `Block` per layer.

A block is the attention part of a layer with its residual. Its output is a sum over source tokens j (Kobayashi 2021):

    s_i = Σ_j F_ij + b_O,    F_ij = Σ_h A_h[i, j] · v_j^h W_O^h + δ_ij x_j

followed by the norm in post-norm models (y = LN(s)), by nothing in pre-norm models (y = s).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from whence.errors import NotSupported, WhenceError
from whence.models import layers_of
from whence.models.rounding import ROUNDINGS, rounding
from whence.models.specs import Spec, epsilon, part, projection, spec_of
from whence.trace.attention import Attended

TOLERANCE = 1e-4  # how far the parts a spec names may be from the layer's real output, relative to its largest entry


@dataclass(frozen=True)
class Norm:
    """A LayerNorm or RMSNorm as it ran: γ ⊙ (s − mean s)/√(variance + eps) + β, without the mean for RMSNorm."""

    weight: Tensor  # γ (d,)
    bias: Tensor | None  # β (d,)
    eps: float
    centred: bool  # False for RMSNorm
    variance: Tensor  # (b, n) of its input; the mean square for RMSNorm
    own_output: Tensor  # (b, n, d) in the model's own dtype

    @property
    def output(self) -> Tensor:
        """(b, n, d)"""
        return precise(self.own_output)

    def __call__(self, sums: Tensor) -> Tensor:
        """The norm of other sums (…, d) than those it ran on."""
        if self.centred:
            return F.layer_norm(sums, sums.shape[-1:], self.weight, self.bias, self.eps)
        return self.weight * sums * torch.rsqrt(sums.square().mean(-1, keepdim=True) + self.eps)


@dataclass(frozen=True)
class Block:
    """The attention block of one layer. It holds what ran, in the model's own dtype; what methods read is at least float32, and made
    when it is read: a method goes through the layers once, so that of a model in half precision one layer's copies are there at a time."""

    maps: Sequence[Tensor]  # A^1 … A^L, made when they are looked at
    number: int  # of the layer: 0 … L − 1
    own_value: Tensor  # v (b, H, n, e), key heads repeated in grouped-query attention; b_V included
    own_weight: Tensor  # W_O (H, e, d)
    own_bias: Tensor | None  # b_O (d,)
    own_x: Tensor  # the layer's input (b, n, d)
    own_y: Tensor  # after attention, likewise
    own_output: Tensor  # the layer's
    norm: Norm | None  # on the residual sum; None in pre-norm models
    second_norm: Norm  # post-norm: on ff(y) + y, its output is the layer's; pre-norm: reads y for the feed-forward part
    finish: Callable[[Tensor], Tensor]  # y (…, d) → output (…, d): the feed-forward part with its residual and norm

    @property
    def value(self) -> Tensor:
        """v (b, H, n, e)"""
        return precise(self.own_value)

    @property
    def output_weight(self) -> Tensor:
        """W_O (H, e, d)"""
        return precise(self.own_weight)

    @property
    def output_bias(self) -> Tensor | None:
        """b_O (d,)"""
        return None if self.own_bias is None else precise(self.own_bias)

    @property
    def x(self) -> Tensor:
        """The residual, which is the layer's input: (b, n, d)."""
        return precise(self.own_x)

    @property
    def output(self) -> Tensor:
        """Of the whole layer: (b, n, d)."""
        return precise(self.own_output)

    @property
    def y(self) -> Tensor:
        """The block's real output: (b, n, d)."""
        return precise(self.own_y)

    @property
    def attention(self) -> Tensor:
        """A (b, H, n query, n key); made anew each time where the maps of all layers would not fit into memory."""
        return self.maps[self.number]

    def sums(self) -> Tensor:
        """s = Σ_j F_ij + b_O (b, n, d)."""
        context = (self.attention @ self.value).transpose(1, 2).flatten(2)  # (b, n, H·e)
        mixed = context @ self.output_weight.flatten(0, 1) + self.x
        return mixed if self.output_bias is None else mixed + self.output_bias

    def normed(self, sums: Tensor) -> Tensor:
        """s (…, d) → y (…, d)."""
        return sums if self.norm is None else self.norm(sums)


@dataclass
class LayerRun:
    """What hooks saw of one run of one layer module (ALBERT runs the same module for every layer)."""

    layer: nn.Module
    x: Tensor
    y: Tensor | None = None  # after attention
    norms: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)  # path → variance of the input, output
    output: Tensor | None = None


@contextmanager
def layer_runs(model: PreTrainedModel, runs: list[LayerRun]) -> Iterator[None]:
    """Keep each layer's input, y and output, and of its norms what methods read, in the order in which the layers run."""
    spec = spec_of(model)

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        runs.append(LayerRun(module, (args[0] if args else kwargs["hidden_states"]).detach()))

    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        runs[-1].output = (output[0] if isinstance(output, tuple) else output).detach()

    def norm_hook(path: str) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            run, sums = runs[-1], precise(args[0])
            variance = sums.square().mean(-1) if spec.rms else sums.var(-1, correction=0)
            run.norms[path] = (variance, output.detach())
            if path == spec.norm:
                run.y = output.detach()
            elif spec.norm is None:  # in pre-norm layers the second norm reads it
                run.y = args[0].detach()

        return hook

    handles = []
    for layer in dict.fromkeys(layers_of(model)):
        handles.append(layer.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(layer.register_forward_hook(after))
        for path in [spec.second_norm] if spec.norm is None else [spec.norm, spec.second_norm]:
            handles.append(part(layer, path).register_forward_hook(norm_hook(path)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def make_blocks(
    model: PreTrainedModel,
    runs: Sequence[LayerRun],
    attended: Sequence[Attended],
    maps: Sequence[Tensor],
    valid: Tensor,
) -> tuple[Block, ...]:
    """One Block per layer; the first time a model comes by, its spec is held against what it really computed."""
    if len(runs) != len(attended):
        raise NotSupported(
            f"{type(model).__name__} ran {len(runs)} layers but {len(attended)} attentions through the interface; "
            "the mixing methods need one each."
        )
    spec = spec_of(model)
    blocks = tuple(make_block(spec, run, maps, i, attended[i].value) for i, run in enumerate(runs))
    if _checked.get(model) != spec:
        for number, block in enumerate(blocks, 1):
            check_block(block, valid, number, model)
        _checked[model] = spec
    return blocks


_checked: weakref.WeakKeyDictionary[nn.Module, Spec] = weakref.WeakKeyDictionary()


def make_block(spec: Spec, run: LayerRun, maps: Sequence[Tensor], number: int, value: Tensor) -> Block:
    norm = None if spec.norm is None else make_norm(spec, spec.norm, run)
    second = make_norm(spec, spec.second_norm, run)
    assert run.y is not None
    assert run.output is not None
    weight, bias = projection(part(run.layer, spec.output))
    return Block(
        maps=maps,
        number=number,
        own_value=value,
        own_weight=weight.reshape(value.shape[1], value.shape[-1], -1),
        own_bias=bias,
        own_x=run.x,
        own_y=run.y,
        own_output=run.output,
        norm=norm,
        second_norm=second,
        finish=finisher(spec, run.layer),
    )


def make_norm(spec: Spec, path: str, run: LayerRun) -> Norm:
    module = part(run.layer, path)
    if path not in run.norms:
        raise WhenceError(
            f"the architecture spec names the norm {path!r}, which {type(run.layer).__name__} has but never ran: the spec "
            "does not fit this model."
        )
    variance, output = run.norms[path]
    bias = getattr(module, "bias", None)
    return Norm(
        weight=precise(module.weight.detach()),
        bias=None if bias is None else precise(bias.detach()),
        eps=epsilon(module),
        centred=not spec.rms,
        variance=variance,
        own_output=output,
    )


def precise(tensor: Tensor) -> Tensor:
    """Detached, and at least float32."""
    return tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))


def finisher(spec: Spec, layer: nn.Module) -> Callable[[Tensor], Tensor]:
    """The rest of the layer after the attention block, by the layer's own modules."""
    second = part(layer, spec.second_norm)
    steps = [part(layer, path) for path in spec.feed_forward]
    dtype = second.weight.dtype

    @torch.no_grad()
    def finish(y: Tensor) -> Tensor:
        own = y.to(dtype)
        hidden = own if spec.norm is not None else second(own)
        for step in steps:
            hidden = step(hidden)
        out: Tensor = second(hidden + own) if spec.norm is not None else hidden + own
        return out.to(y.dtype)

    return finish


def check_block(block: Block, valid: Tensor, number: int, model: nn.Module) -> None:
    """The decomposition must rebuild what the layer really computed: no silent wrong numbers."""
    own = next(model.parameters())
    # in half precision, or with tf32, a model cannot agree with itself to 1e-4
    allowed = max(TOLERANCE, ROUNDINGS * rounding(own.dtype, own.device))
    y = block.normed(block.sums())
    for what, rebuilt, real in (
        ("attention block", y, block.y),
        ("whole layer", block.finish(block.y), block.output),
    ):
        gap = float((rebuilt - real)[valid].abs().max() / real[valid].abs().max().clamp(min=1e-30))
        if not gap <= allowed:
            raise WhenceError(
                f"the architecture spec does not fit {type(model).__name__}: the {what} of layer {number} rebuilt from its "
                f"parts is off by {gap:.1e} of its largest entry ({allowed:.0e} is allowed), so the mixing methods would give "
                "wrong numbers. Other methods still work; whence.models.add_spec replaces the spec."
            )
