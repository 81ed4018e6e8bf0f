"""Lend a model to whence and give it back exactly as it was."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

_LOCKS: weakref.WeakKeyDictionary[nn.Module, threading.RLock] = weakref.WeakKeyDictionary()
_GUARD = threading.Lock()


def lock_of(model: nn.Module) -> threading.RLock:
    """One lock per model: explaining from several threads is correct, and runs one call at a time."""
    with _GUARD:
        return _LOCKS.setdefault(model, threading.RLock())


def configs_of(model: nn.Module) -> list[Any]:
    """Every distinct config object that a module of the model looks at."""
    found = {id(m.config): m.config for m in model.modules() if getattr(m, "config", None) is not None}
    return list(found.values())


@contextmanager
def untouched(model: PreTrainedModel, *, attention: str | None = None, pad_id: int | None = None) -> Iterator[None]:
    """The model in evaluation mode with frozen parameters, and on request another attention function or padding id.

    On leaving, also by an exception, training flags, requires_grad, the attention implementation, the config's padding
    id and all forward hooks are what they were. Parameters' `.grad` are never written (gradients are asked for by
    `torch.autograd.grad`), and the caller's grad or inference mode does not matter.
    """
    with lock_of(model):
        training = [m for m in model.modules() if m.training]
        trainable = [p for p in model.parameters() if p.requires_grad]
        hooks = [(m, set(m._forward_hooks)) for m in model.modules()]
        capturing = (
            model.__dict__.get("_output_capturing_hooks_installed"),
            model.base_model.__dict__.get("_output_capturing_hooks_installed"),
        )
        configs = [(c, c._attn_implementation_internal) for c in configs_of(model)]
        text_config = model.config.get_text_config()
        padding = text_config.pad_token_id
        try:
            for module in training:
                module.training = False
            for parameter in trainable:
                parameter.requires_grad_(False)
            if attention is not None:
                for config, _ in configs:
                    config._attn_implementation_internal = attention
            if pad_id is not None:
                text_config.pad_token_id = pad_id
            with torch.inference_mode(False), torch.enable_grad():
                yield
        finally:
            text_config.pad_token_id = padding
            for config, implementation in configs:
                config._attn_implementation_internal = implementation
            for parameter in trainable:
                parameter.requires_grad_(True)
            for module in training:
                module.training = True
            for module, before in hooks:
                for key in set(module._forward_hooks) - before:
                    del module._forward_hooks[key]
            for owner, flag in zip((model, model.base_model), capturing, strict=True):
                if flag is None:
                    owner.__dict__.pop("_output_capturing_hooks_installed", None)
