"""A model as its code says, for as long as whence has it: not compiled, feed-forwards in one piece, nothing in the way of gradients.

Compiled code hides operations from rules and modules from hooks; a feed-forward in chunks runs its parts several times, and only on
texts whose length is a multiple of a chunk; hooks on backwards may change gradients, and are meant for training. None of these changes
what a model answers, so each is put aside by one entry of a dict, and put back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any

from torch import nn

from whence.errors import NotSupported

ABSENT: Any = object()
ORIGINAL = "_torchdynamo_orig_callable"  # what torch.compile made a function of
INNER = "_orig_mod"  # the module that a compiled one holds
COMPILED = "_compiled_call_impl"  # what `module.compile()` leaves
CHUNKS = "chunk_size_feed_forward"
BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
OWN_HOOKS = ("_forward_hooks", "_forward_pre_hooks", *BACKWARD_HOOKS)


@dataclass(frozen=True)
class Setting:
    """An entry of a module's dict: what it is, and what it is while the model is lent."""

    table: dict[str, Any]
    key: str
    owned: Any  # ABSENT where there is none
    lent: Any

    @classmethod
    def of(cls, table: dict[str, Any], key: str, lent: Any) -> Setting:
        return cls(table, key, table.get(key, ABSENT), lent)

    @property
    def unchanged(self) -> bool:
        """Whether the owner's value is still the same object."""
        return self.table.get(self.key, ABSENT) is self.owned

    def apply(self) -> None:
        self.table[self.key] = self.lent

    def put_back(self) -> None:
        if self.owned is ABSENT:
            self.table.pop(self.key, None)
        else:
            self.table[self.key] = self.owned


def is_compiled(function: Any) -> bool:
    """Whether torch.compile made a function. What `functools.wraps` has put around such a one carries its marks, and is another."""
    return hasattr(function, ORIGINAL) and getattr(function, "__globals__", {}).get("__name__", "").startswith(
        "torch._dynamo"
    )


def original(function: Any) -> Any:
    """The function, or method, that a compiled one was made of; any other is itself."""
    if isinstance(function, MethodType):
        return MethodType(original(function.__func__), function.__self__)
    while is_compiled(function):
        function = getattr(function, ORIGINAL)
    return function


def uncompiled(module: Any) -> Any:
    """The module within `torch.compile(module)`; any other is itself."""
    while isinstance(module, nn.Module) and INNER in module._modules:
        check_no_hooks(module)
        module = module._modules[INNER]
    return module


def check_no_hooks(wrapper: nn.Module) -> None:
    """Hooks of the wrapper's own would not run within it."""
    if any(wrapper.__dict__.get(name) for name in OWN_HOOKS):
        kind = type(uncompiled(wrapper._modules[INNER])).__name__
        raise NotSupported(
            f"the model holds a compiled {kind} with hooks on what torch.compile() returned; whence runs the module within, which has none "
            "of them: register them on that module before it is compiled."
        )


def settings_of(module: nn.Module) -> list[Setting]:
    """What is put aside of one module."""
    table, settings = module.__dict__, []
    if table.get(COMPILED) is not None:
        settings.append(Setting.of(table, COMPILED, None))
    if table.get(CHUNKS):
        settings.append(Setting.of(table, CHUNKS, 0))
    settings += [Setting.of(table, name, OrderedDict()) for name in BACKWARD_HOOKS if table[name]]
    forward = table["forward"] if "forward" in table else MethodType(type(module).forward, module)
    if is_compiled(getattr(forward, "__func__", forward)):
        settings.append(Setting.of(table, "forward", original(forward)))
    return settings


def without_wrappers(modules: Sequence[nn.Module]) -> tuple[list[nn.Module], list[Setting]]:
    """The modules without those that torch.compile has put around others, and what puts these aside."""
    for module in modules:
        if "training" not in module.__dict__ and INNER not in module._modules:
            raise NotSupported(
                f"the model holds a {type(module).__name__}, whose operations nobody sees: put the module that it was made of in its place."
            )
    plain = [module for module in modules if INNER not in module._modules]
    settings = [
        Setting.of(module._modules, name, uncompiled(child))
        for module in plain
        for name, child in module._modules.items()
        if uncompiled(child) is not child
    ]
    return plain, settings
