"""Lend a model to whence and give it back exactly as it was."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from whence.models.layers import modules_of

_LOCKS: weakref.WeakKeyDictionary[nn.Module, threading.RLock] = weakref.WeakKeyDictionary()
_GUARD = threading.Lock()

# a module's dicts in which torch keeps hooks, and what it knows about each
HOOKS = itemgetter(
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


def configs_of(modules: Sequence[nn.Module]) -> list[Any]:
    """Every distinct config object that a module looks at."""
    configs = (
        m.__dict__.get("config") for m in modules
    )  # a plain attribute; nn.Module's own look-up is slow where it is absent
    return list({id(c): c for c in configs if c is not None}.values())


@contextmanager
def untouched(
    model: PreTrainedModel, *, attention: str | None = None, pad_id: int | None = None
) -> Iterator[Sequence[nn.Module]]:
    """The model in evaluation mode with frozen parameters, and on request another attention function or padding id.

    On leaving, also by an exception, training flags, requires_grad, the attention implementation, the config's padding
    id and all forward hooks are what they were. Parameters' `.grad` are never written (gradients are asked for by
    `torch.autograd.grad`), and the caller's grad or inference mode does not matter. Gives all of the model's modules.
    """
    with lock_of(model):
        modules = modules_of(model)
        configs, trainable = configs_of(modules), trainable_of(modules)
        put_back = remember(model, modules, configs, trainable)
        try:
            for module in modules:
                if module.training:  # setting an attribute of a module is slow
                    module.training = False
            for parameter in trainable:
                parameter.requires_grad_(False)
            if attention is not None:
                for config in configs:
                    config._attn_implementation_internal = attention
            if pad_id is not None:
                model.config.get_text_config().pad_token_id = pad_id
            with torch.inference_mode(False), torch.enable_grad():
                yield modules
        finally:
            to_the_end(put_back)


def dicts_of(modules: Sequence[nn.Module], which: itemgetter[Any]) -> Iterator[dict[int, Any]]:
    """The dicts of every module that `which` takes. They are a thousand, nearly all of them empty, and every call looks at them:
    no loop in Python goes over them all."""
    return chain.from_iterable(map(which, map(attrgetter("__dict__"), modules)))


def trainable_of(modules: Sequence[nn.Module]) -> list[nn.Parameter]:
    """Every parameter that asks for gradients."""
    own = [p for m in modules for p in m._parameters.values() if p is not None and p.requires_grad]
    return list(dict.fromkeys(own))  # tied weights once


def remember(
    model: PreTrainedModel, modules: Sequence[nn.Module], configs: Sequence[Any], trainable: Sequence[nn.Parameter]
) -> Callable[[], None]:
    """What puts everything back that whence may change of a model."""
    training = [m for m in modules if m.training]
    hooks = list(dicts_of(modules, HOOKS))
    hooked = {id(there): set(there) for there in filter(None, hooks)}
    owners = [owner.__dict__ for owner in (model, model.base_model)]
    capturing = [CAPTURING in own for own in owners]
    implementations = [(c, c._attn_implementation_internal) for c in configs]
    text_config = model.config.get_text_config()
    padding = text_config.pad_token_id

    def put_back() -> None:
        text_config.pad_token_id = padding
        for config, implementation in implementations:
            config._attn_implementation_internal = implementation
        for parameter in trainable:
            parameter.requires_grad_(True)
        for module in training:
            module.training = True
        for there in filter(None, hooks):
            for key in set(there) - hooked.get(id(there), set()):
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
