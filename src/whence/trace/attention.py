"""Seam 1: one attention function for every architecture, which also records the probabilities."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from whence.trace.gates import gates_in_use

NAME = "whence"
_tape: ContextVar[AttentionTape | None] = ContextVar("whence_attention_tape", default=None)


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
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """softmax(q·kᵀ·scale + mask)·v, written out so that the probabilities can be kept in the graph.

    Covers what transformers' own functions do: grouped-query attention, soft-capped scores (Gemma 2) and attention
    sinks (gpt-oss). Probabilities are computed in at least float32. Dropout never runs: models are traced in eval mode.
    """
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    gates = gates_in_use()
    if gates is None:
        scores = torch.matmul(query * scaling, key.transpose(-1, -2))  # (batch, head, query, key)
    else:  # relevance is shared out by the product itself, as in the papers; scaled after it, which costs a little more
        scores = torch.matmul(query, key.transpose(-1, -2)) * scaling
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if attention_mask is not None:
        scores = scores + attention_mask[..., : key.shape[-2]]
    precise = torch.promote_types(scores.dtype, torch.float32)
    if s_aux is not None:
        sinks = s_aux.reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        probabilities = torch.softmax(torch.cat([scores, sinks], -1), -1, dtype=precise)[..., :-1]
    else:
        probabilities = torch.softmax(scores, -1, dtype=precise)
    probabilities = probabilities.to(value.dtype)
    if gates is not None:
        probabilities, value = gates.on_operands(probabilities, value)
    tape = _tape.get()
    if tape is not None:
        tape.maps.append(probabilities)
        tape.values += [value] * tape.keep_values
    context = torch.matmul(probabilities, value)
    if gates is not None:
        context = gates.on_context(context)
    return context.transpose(1, 2).contiguous(), probabilities


class AttentionTape:
    """Collects what every attention layer run inside the `with` block does, in order.

    maps: probabilities, each (batch, head, query, key); values: value vectors with key heads repeated, each
    (batch, head, key, feature), if asked to keep them.
    """

    def __init__(self, keep_values: bool = False) -> None:
        self.maps: list[Tensor] = []
        self.values: list[Tensor] = []
        self.keep_values = keep_values

    def __enter__(self) -> AttentionTape:
        self._token = _tape.set(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _tape.reset(self._token)


# Without a mask function of the same name transformers passes no mask at all: padding and causality would vanish.
AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, eager_mask)
