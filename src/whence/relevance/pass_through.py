"""Seam 2: the unmodified forward under a function mode that makes every operation's backward able to carry relevance.

One forward serves two kinds of backward over the same graph: `Carry.GRADIENT` gives true gradients, `Carry.RELEVANCE` what
the rule set says. Autograd's own accumulation is the "clone" rule of LRP (what is used twice collects both relevances);
views, transposes and selections route relevance like gradients. An operation that no rule covers is an error, never a
silent wrong answer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode, resolve_name

from whence.errors import NotSupported
from whence.relevance.cuts import carry
from whence.relevance.handlers import HANDLERS, LEFT_ALONE
from whence.relevance.operations import Run, Unary, apply, is_traced, leaf, no_operation_of_its_own
from whence.relevance.rules import RuleSet, rule_set

ACTIVATIONS = frozenset(
    [nn.ELU, nn.GELU, nn.Hardswish, nn.LeakyReLU, nn.Mish, nn.SiLU, nn.Sigmoid, nn.Softplus, nn.Tanh]
)


class RelevanceMode(TorchFunctionMode):
    """Replaces operations on traced tensors (those that require grad) by those of `operations`."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # most calls are these: a layer of a few operations asks for many shapes
        if func in LEFT_ALONE or not torch.is_grad_enabled():
            return func(*args, **kwargs)
        handler = HANDLERS.get(func)
        if handler is not None and any(map(is_traced, (*args, *kwargs.values()))):
            result = handler(self.run, func, *positional(args, kwargs), **kwargs)
            if result is NotImplemented:
                raise uncovered(self.run, func)
            return result
        result = func(*args, **kwargs)
        if not any(map(is_traced, result if isinstance(result, (tuple, list)) else [result])):
            return result
        raise uncovered(self.run, func)


def positional(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """torch's first operands may come by name as well; taken out of `kwargs`."""
    first = (kwargs.pop("input"),) if "input" in kwargs else ()
    second = (kwargs.pop("other"),) if "other" in kwargs else ()
    return (*first, *args, *second)


def uncovered(run: Run, func: Any) -> NotSupported:
    """Name the operation and the module it happened in."""
    name = resolve_name(func) or getattr(func, "__name__", str(func))
    return NotSupported(
        f"the rule set {run.rules.name!r} has no rule for {name} in {calling_module(run.model)}",
        lacks=("relevance",),
    )


def calling_module(model: nn.Module) -> str:
    """The innermost module whose code is running: its class, and its name in the model."""
    names = {id(m): name for name, m in model.named_modules()}
    frame = sys._getframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and id(owner) in names:
            return f"{type(owner).__name__} {names[id(owner)] or '(the model itself)'!r}"
        frame = frame.f_back  # type: ignore[assignment]
    return type(model).__name__


def composites_of(modules: Sequence[nn.Module], rules: RuleSet) -> list[nn.Module]:
    """Activations, and root-mean-square norms written out in Python: one elementwise rule for the whole of them.

    Paired rules take norms apart: they are not elementwise, and their parts have rules.
    """
    kinds: dict[Any, bool] = {}  # a model has many modules of few classes
    for module in modules:
        kind = type(module)
        if kind not in kinds:
            norm = kind.__name__.endswith("RMSNorm")
            activation = kind in ACTIVATIONS or kind.__module__ == "transformers.activations"
            kinds[kind] = activation or (norm and not rules.paired)
    return [m for m in modules if kinds[type(m)]]


@contextmanager
def switched_on(mode: TorchFunctionMode) -> Iterator[None]:
    """torch takes a mode off while it runs, so a Ctrl-C may find it off already: then there is nothing to take off, and what is on
    top is somebody else's."""
    try:
        mode.__enter__()  # type: ignore[no-untyped-call]
        yield
    finally:
        if _get_current_function_mode() is mode:  # type: ignore[no-untyped-call]
            mode.__exit__(None, None, None)


@contextmanager
def relevance_ready(
    model: nn.Module,
    modules: Sequence[nn.Module],
    rules: str | RuleSet,
    rows: int,
    gradients: bool = True,
    *,
    on_graph: bool = False,
) -> Iterator[Run]:
    """Everything run inside the block can carry relevance backwards, and with `gradients` gradients too. modules: the model's.

    on_graph: all but composite modules is left as it is, for `graph.put_rules`.
    """
    run = Run(rule_set(rules), model, rows, gradients)
    entered: list[tuple[Tensor, Tensor, Any] | None] = []  # every composite module we are inside of

    def before(module: nn.Module, args: tuple[Any, ...]) -> Any:
        if any(entered) or not args or not is_traced(args[0]):
            entered.append(None)  # nothing to do here, but keeps the stack in step
            return args
        inner = leaf(args[0], run)
        aside = no_operation_of_its_own()
        entered.append((args[0], inner, aside))  # first, so that a Ctrl-C that falls in between is tidied up after
        aside.__enter__()
        return (inner, *args[1:])

    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        kept = entered[-1]
        if kept is not None:
            kept[2].__exit__(None, None, None)
        entered.pop()
        if kept is None:
            return output
        x, inner, _ = kept
        made = apply(Unary, x, (inner, output), lambda rules: rules.elementwise, run)
        carry([x], made, output, module)
        return made

    composites = composites_of(modules, run.rules)
    handles: list[Any] = [m.register_forward_pre_hook(before) for m in composites]
    handles += [m.register_forward_hook(after) for m in composites]
    try:
        with nullcontext() if on_graph else switched_on(RelevanceMode(run)), run.running():
            yield run
    finally:
        for _, _, aside in filter(None, entered):  # a module that was left by an error
            aside.__exit__(None, None, None)
        for handle in handles:
            handle.remove()
