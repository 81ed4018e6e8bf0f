"""Run only what is read of the last layer: a classifier that answers at its first token needs no other token's feed-forward.

In the last layer every token still gives its key and value, but the output projection, the norms and the feed-forward part
are wanted at one position: three quarters of a layer's products are left out, 6% of a 12-layer encoder and an eighth of a
6-layer one. Two hooks on the parts that the architecture spec names cut the rows away; the model is not changed.

Nothing is believed: a model qualifies if its logits survive NaN at every other position of the last layer's output, and come
out the same when these positions are cut.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whence.errors import WhenceError
from whence.models.facts import vocab_size, with_names
from whence.models.layers import layers_of
from whence.models.lending import Lent, untouched
from whence.models.rounding import close
from whence.models.specs import SPECS, part

# of the last layer: its output projection, and the norm on the sum with its residual
Parts = tuple[nn.Module, nn.Module]

_READS: weakref.WeakKeyDictionary[nn.Module, Parts | None] = weakref.WeakKeyDictionary()


def first_token_only(model: PreTrainedModel, lent: Lent) -> AbstractContextManager[None]:
    """Within the block the last layer is run at the first token alone, where the model reads nothing else; otherwise, and for
    a model that carries hooks of its owner, who would see rows missing, nothing is different. Call it on a model that is lent
    (`untouched`), before hooks of whence's own are there."""
    parts = None if lent.listened_to else cut_at(model)
    return nullcontext() if parts is None else cut(parts)


def reads_first_token(model: PreTrainedModel) -> bool:
    """Whether the logits depend on the last layer's output at the first token alone; tried once per model."""
    return cut_at(model) is not None


def cut_at(model: PreTrainedModel) -> Parts | None:
    """Where the last layer is cut, of a model that reads its first token alone."""
    if model not in _READS:
        parts = parts_to_cut(model)
        _READS[model] = parts if parts is not None and survives(model, parts) else None
    return _READS[model]


def parts_to_cut(model: PreTrainedModel) -> Parts | None:
    """Those of a post-norm family with a spec, whose last layer is a module of its own (ALBERT's serves for all)."""
    spec, layers = SPECS.get(str(model.config.model_type)), layers_of(model)
    if spec is None or spec.norm is None or not layers or layers.count(layers[-1]) > 1:
        return None
    try:
        return part(layers[-1], spec.output), part(layers[-1], spec.norm)
    except WhenceError:  # the spec does not fit: mixing methods will say so, and the model runs whole
        return None


def survives(model: PreTrainedModel, parts: Parts) -> bool:
    """Both tries on two rows of four tokens."""
    inputs = sample_inputs(model)
    try:
        with untouched(model), torch.no_grad():
            with poisoned(model):
                whole = logits_of(model(**inputs))
            with cut(parts):
                first = logits_of(model(**inputs))
    except (
        Exception
    ):  # a layer that wants as many rows back as it gave, a model that wants more than ids: it runs whole
        return False
    return whole is not None and close(first, whole)


def sample_inputs(model: PreTrainedModel) -> dict[str, Any]:
    """Two rows of four tokens."""
    ids = torch.arange(8, device=model.device).reshape(2, 4) % vocab_size(model)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **with_names(model)}


def logits_of(output: Any) -> Tensor | None:
    found = getattr(output, "logits", None)
    return found if isinstance(found, Tensor) else None


@contextmanager
def poisoned(model: PreTrainedModel) -> Iterator[None]:
    """NaN at every position but the first of the last layer's output."""

    def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        states = (output[0] if isinstance(output, tuple) else output).clone()
        states[:, 1:] = torch.nan
        return (states, *output[1:]) if isinstance(output, tuple) else states

    handle = layers_of(model)[-1].register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def cut(parts: Parts) -> Iterator[None]:
    """The first token's row alone goes into the last layer's output projection, and on from the sum with its residual."""

    def hook(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (args[0][:, :1], *args[1:])

    handles = [module.register_forward_pre_hook(hook) for module in parts]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
