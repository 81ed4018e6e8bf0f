"""Find a model's transformer layers without a table of architectures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn
from transformers import PreTrainedModel


def modules_of(model: nn.Module) -> list[nn.Module]:
    """`model.modules()`, in its order and several times as fast: every call walks the model, and a GPU waits meanwhile."""
    found: dict[nn.Module, None] = {}
    waiting = [model]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found[module] = None
            if module._modules:
                waiting += [m for m in reversed(module._modules.values()) if m is not None]
    return list(found)


def layers_of(model: PreTrainedModel, modules: Sequence[nn.Module] | None = None) -> list[nn.Module]:
    """The layer modules, in order; one module may serve several layers (ALBERT). Empty if they cannot be told.
    modules: the model's, where they are at hand.

    transformers 5 declares the class of a layer (`_can_record_outputs`); older model files keep them in the one
    ModuleList that is as long as the config says the model is deep.
    """
    known = modules_of(model) if modules is None else modules
    for module in known:
        declared: Any = getattr(type(module), "_can_record_outputs", None) or {}
        kind = declared.get("hidden_states")
        if isinstance(kind, type):
            found = [m for m in modules_of(module) if isinstance(m, kind)]
            if found:
                return found
    depth = getattr(model.config, "num_hidden_layers", None)
    for module in known:
        lists = [m for m in module._modules.values() if isinstance(m, nn.ModuleList) and len(m) == depth]
        if lists:  # several side by side hold parts of layers (XLM)
            return list(lists[0]) if len(lists) == 1 else []
    return []


def stated_depth(model: PreTrainedModel) -> int | None:
    """How many layers the model has by its configuration, if it says so."""
    config = model.config
    depth = getattr(config, "num_hidden_layers", getattr(config.get_text_config(), "num_hidden_layers", None))
    return depth if isinstance(depth, int) else None


def uses_attention_interface(model: PreTrainedModel) -> bool:
    """Whether every attention layer goes through transformers' `AttentionInterface` (seam 1)."""
    return bool(getattr(model, "_supports_attention_backend", False))
