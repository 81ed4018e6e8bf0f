"""Language-model heads: what maps a hidden state to the vocabulary, for decoding hidden layers.

A head is a small transform (d → e) followed by one linear map to the vocabulary (e → V). Kept apart, so that only the
columns of wanted tokens and one log-sum-exp per position are computed, a block of the vocabulary at a time.
In pre-norm decoders the final norm belongs to the head (the "logit lens"): hidden states are recorded before it.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from whence.errors import InputError, NotSupported
from whence.fast.fused import on_triton
from whence.models.as_written import uncompiled
from whence.models.lending import HOOKS, MORE_ON_HOOKS
from whence.models.specs import part

BLOCK_BYTES = 4 << 20  # a block of logits that stays in cache while it is reduced
CUDA_BLOCK_BYTES = 256 << 20  # on CUDA a block is reduced in one pass, and larger products run faster
OPAQUE_BYTES = 64 << 20  # logits of a head that cannot be taken apart, some positions at a time

Step = str | Callable[[Tensor], Tensor]
_ROBERTA: tuple[Step, ...] = ("lm_head.dense", F.gelu, "lm_head.layer_norm")
_LLAMA: tuple[Step, ...] = ("model.norm",)

# Hugging Face model type → what runs before the output embeddings: paths in the language model, or functions
HEADS: dict[str, tuple[Step, ...]] = {
    "bert": ("cls.predictions.transform",),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "distilbert": ("vocab_transform", "activation", "vocab_layer_norm"),
    "electra": ("generator_predictions",),
    "albert": ("predictions.dense", "predictions.activation", "predictions.LayerNorm"),
    "modernbert": ("model.final_norm", "head"),
    "gpt2": ("transformer.ln_f",),
    "llama": _LLAMA,
    "qwen2": _LLAMA,
    "mistral": _LLAMA,
}


@dataclass(frozen=True, eq=False)
class LMHead:
    """Logits = decoder(transform(hidden)). Without a `weight` the transform gives the logits itself."""

    name: str
    transform: Callable[[Tensor], Tensor]  # (…, d) → (…, e), or (…, V) where weight is None
    weight: Tensor | None  # (V, e)
    bias: Tensor | None = None  # (V,)

    @torch.no_grad()
    def log_probabilities(self, hidden: Tensor, ids: Tensor) -> Tensor:
        """log P[…, j, ids_i]: hidden (…, b, n, d), ids (b, m) → (…, b, n position j, m token i)."""
        if self.weight is None:
            return self._opaque(hidden, ids)
        features = self.transform(hidden.to(self.weight.dtype))  # (…, b, n, e)
        logits = features @ self.weight[ids].transpose(-1, -2)
        if self.bias is not None:
            logits = logits + self.bias[ids].unsqueeze(-2)
        total = log_sum_exp(features.flatten(0, -2), self.weight, self.bias).reshape(features.shape[:-1])
        return logits.to(total.dtype) - total.unsqueeze(-1)

    def _opaque(self, hidden: Tensor, ids: Tensor) -> Tensor:
        """A head known only as hidden → logits: all logits of some positions at a time."""
        positions = hidden.flatten(0, -2)  # (m, d)
        wanted = ids.unsqueeze(-2).expand(*hidden.shape[:-1], -1).flatten(0, -2)  # (m, tokens)
        width = self.transform(positions[:1]).shape[-1]  # V
        step = max(1, OPAQUE_BYTES // (width * hidden.element_size()))
        found = []
        for start in range(0, len(positions), step):
            logits = self.transform(positions[start : start + step])
            logp = torch.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))
            found.append(logp.gather(-1, wanted[start : start + step]))
        return torch.cat(found).reshape(*hidden.shape[:-1], -1)


def log_sum_exp(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """log Σ_v exp(f·w_v + b_v) for each f: features (m, e), weight (V, e) → (m,), in blocks over the vocabulary; a block is reduced
    by one kernel on CUDA where Triton is there."""
    if features.element_size() > 4 or not on_triton(features, weight):
        return log_sum_exp_blocked(features, weight, bias)
    from whence.fast.lm_head_triton import log_sum_exp_fused

    words = CUDA_BLOCK_BYTES // (len(features) * features.element_size()) // 256 * 256
    return log_sum_exp_fused(features, weight, bias, max(256, words))


def log_sum_exp_blocked(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The reference: blocks that stay in the processor's cache while torch reduces them."""
    precise = torch.promote_types(features.dtype, torch.float32)
    columns = features.T.contiguous()  # (e, m): this way round the CPU's matrix product is a third faster
    largest = torch.full((len(features),), -torch.inf, dtype=precise, device=features.device)
    total = torch.zeros_like(largest)
    step = max(256, BLOCK_BYTES // (len(features) * features.element_size()))
    for start in range(0, len(weight), step):
        logits = weight[start : start + step] @ columns  # (block, m)
        if bias is not None:
            logits += bias[start : start + step, None]
        logits = logits.to(precise)
        top = torch.maximum(largest, logits.amax(0))
        total = total * (largest - top).exp() + logits.sub_(top).exp_().sum(0)
        largest = top
    return largest + total.log()


def head_of_model(model: PreTrainedModel, name: str) -> LMHead | None:
    """The model's own language-model head, or None if it has none."""
    decoder = uncompiled(model.get_output_embeddings())  # type: ignore[no-untyped-call]
    if not isinstance(decoder, nn.Linear):
        return None
    kind = str(model.config.model_type)
    if kind not in HEADS:
        raise NotSupported(
            f"whence does not know what runs before the output embeddings of {type(model).__name__} ({kind!r}); pass the whole "
            "head as a module that maps hidden states to logits: lm_head=module."
        )
    steps = [without_hooks(part(model, step)) if isinstance(step, str) else step for step in HEADS[kind]]
    return LMHead(
        name, in_turn(steps), decoder.weight.detach(), None if decoder.bias is None else decoder.bias.detach()
    )


def without_hooks(module: Any) -> Any:
    """A module with the same parameters, which nobody listens to: the language model may be explained by another thread, whose
    hooks would take these states for its own."""
    if not isinstance(module, nn.Module):
        return module
    twin = copy.copy(module)
    tables: dict[str, Any] = {name: OrderedDict() for name in (*HOOKS, *MORE_ON_HOOKS)}
    children = {name: without_hooks(child) for name, child in module._modules.items()}
    twin.__dict__.update(tables, _modules=children, training=False)
    return twin


def head_of_module(module: nn.Module) -> LMHead:
    """A module that maps hidden states (…, d) to logits (…, V)."""
    module = uncompiled(module)
    name = type(module).__name__
    if isinstance(module, nn.Linear):
        return LMHead(name, in_turn([]), module.weight.detach(), None if module.bias is None else module.bias.detach())
    return LMHead(name, module, None)


def in_turn(steps: list[Callable[[Tensor], Tensor]]) -> Callable[[Tensor], Tensor]:
    def run(hidden: Tensor) -> Tensor:
        for step in steps:
            hidden = step(hidden)
        return hidden

    return run


def check_head(head: LMHead, hidden_size: int, vocabulary: int, device: torch.device, dtype: torch.dtype) -> None:
    """The head must read this model's hidden states and know its tokens."""
    probe = torch.zeros(1, 1, hidden_size, device=device, dtype=dtype)
    try:
        head.log_probabilities(probe, torch.tensor([[vocabulary - 1]], device=device))
    except (RuntimeError, IndexError) as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"the language-model head {head.name!r} does not fit this model, which has {hidden_size} features and "
            f"{vocabulary} tokens on {device}: {reason}"
        ) from error
