"""Lend a model to whence and give it back exactly as it was."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

_LOCKS: weakref.WeakKeyDictionary[nn.Module, threading.RLock] = weakref.WeakKeyDictionary()
_GUARD = threading.Lock()

# torch keeps hooks, and what it knows about each, in dicts under these names
HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)
CAPTURING = "_output_capturing_hooks_installed"  # transformers' mark that it hooked a model to collect outputs


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
        put_back = remember(model)
        try:
            for module in model.modules():
                module.training = False
            for parameter in model.parameters():
                parameter.requires_grad_(False)
            if attention is not None:
                for config in configs_of(model):
                    config._attn_implementation_internal = attention
            if pad_id is not None:
                model.config.get_text_config().pad_token_id = pad_id
            with torch.inference_mode(False), torch.enable_grad():
                yield
        finally:
            to_the_end(put_back)


def remember(model: PreTrainedModel) -> Callable[[], None]:
    """What puts everything back that whence may change of a model."""
    training = [(m, m.training) for m in model.modules()]
    trainable = [p for p in model.parameters() if p.requires_grad]
    hooks = [(getattr(m, name), set(getattr(m, name))) for m in model.modules() for name in HOOKS]
    owners = [owner.__dict__ for owner in (model, model.base_model)]
    capturing = [CAPTURING in own for own in owners]
    configs = [(c, c._attn_implementation_internal) for c in configs_of(model)]
    text_config = model.config.get_text_config()
    padding = text_config.pad_token_id

    def put_back() -> None:
        text_config.pad_token_id = padding
        for config, implementation in configs:
            config._attn_implementation_internal = implementation
        for parameter in trainable:
            parameter.requires_grad_(True)
        for module, was_training in training:
            module.training = was_training
        for there, before in hooks:
            for key in set(there) - before:
                del there[key]
        for own, there_before in zip(owners, capturing, strict=True):
            if not there_before:
                own.pop(CAPTURING, None)

    return put_back


def to_the_end(step: Callable[[], None]) -> None:
    """Run a step that may be run twice; if it is interrupted (Ctrl-C), it is run again before the interrupt goes on."""
    try:
        step()
    except BaseException:
        step()
        raise
