"""Seam 2 where backwards carry coefficients: rules put onto the graph that a plain forward has left behind.

A set that carries coefficients lets most operations keep their own gradient. So the forward runs as the model's own, nothing
stands between its operations, and afterwards autograd's graph is walked once, half a millisecond for twelve layers: the few operations
with another rule get a hook, and an operation that no rule covers is found as surely as by looking on. Then the forward is run again
under the function mode (`relevance`), which has rules for more and names the module where it has none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from whence.relevance.operations import Run
from whence.relevance.rules import RuleSet, layer_norm_coefficient

Rule = Callable[[Any, Run], None]  # puts itself onto a node

# named as autograd does, without "Backward" and a number; what one operation of torch leaves behind may be several of these
# fmt: off
KEPT = frozenset([  # linear in all that is traced, or routes, or by AttnLRP's own choice (softmax): the gradient is the rule
    "Add", "Alias", "Cat", "Clone", "Expand", "Gather", "Index", "IndexSelect", "MaskedFill", "Neg", "Permute", "Relu", "Repeat", "ReshapeAlias", "Roll",
    "Select", "Slice", "Softmax", "Split", "SplitWithSizes", "Squeeze", "Stack", "T", "ToCopy", "Transpose", "Unbind",
    "UnsafeSplit", "UnsafeView", "Unsqueeze", "View",
    "AccumulateGrad", "Gate", "Unary",  # a leaf; operations of ours, which ask for their rule themselves
])
# fmt: on
LINEAR = frozenset(["Addmm", "Rsub", "Sub"])  # in one operand, while nothing else is traced
PRODUCTS = frozenset(["Bmm", "Mm", "Mul"])  # linear likewise; of two traced operands each gets half
ATTENTION = "ScaledDotProduct"  # how the names of fused kernels begin
NORM = "NativeLayerNorm"


def follows_gradients(rules: RuleSet) -> bool:
    """Whether the rules of a set are those that stand here."""
    return rules.fused_attention is not None and rules.layer_norm is layer_norm_coefficient


def put_rules(outputs: Iterable[Tensor], run: Run) -> bool:
    """Let backwards from `outputs` carry what `run` says. False: some operation is not covered, and nothing was done."""
    waiting = [t.grad_fn for t in outputs if t.grad_fn is not None]
    seen, rules = set(waiting), []
    while waiting:
        node = waiting.pop()
        below = [n for n, _ in node.next_functions if n is not None]
        name = operation(node.name())
        if name not in KEPT:
            rule = rule_for(node, name, len(below), run)
            if rule is None:
                return False
            if rule is not keep:
                rules.append((rule, node))
        for n in below:
            if n not in seen:
                seen.add(n)
                waiting.append(n)
    try:
        for rule, node in rules:
            rule(node, run)
    except RuntimeError:  # hooks of the caller's keep what graphs save elsewhere, and there may be no second ones
        return False
    return True


@cache
def operation(name: str) -> str:
    """What a node's name says was done.

    >>> operation("AddmmBackward0"), operation("torch::autograd::AccumulateGrad"), operation("UnaryBackward")
    ('Addmm', 'AccumulateGrad', 'Unary')
    """
    return re.sub(r"^.*::|Backward\d*$", "", name)


def rule_for(node: Any, name: str, traced: int, run: Run) -> Rule | None:
    """The rule of an operation that is not KEPT whatever it works on; None if there is none. traced: how many of its inputs are
    in the graph."""
    if traced == 1 and (name in LINEAR or name in PRODUCTS):
        return keep
    if name == "Div" and traced == 1 and node.next_functions[0][0] is not None:  # the numerator
        return keep
    if name in PRODUCTS and traced == 2:
        return halve
    if name == NORM and len(node._saved_normalized_shape) == 1:
        return hold_spread
    if name.startswith(ATTENTION) and traced == 3:
        return share
    return None


def keep(node: Any, run: Run) -> None:
    """The gradient is the rule."""


def halve(node: Any, run: Run) -> None:
    """Half of the gradient for each of two factors (`rules.product_coefficient`, `rules.gate_coefficient`)."""
    scale(node, (0.5, 0.5), run)


def share(node: Any, run: Run) -> None:
    """Both products of attention shared out, in one kernel."""
    assert run.rules.fused_attention is not None
    scale(node, run.rules.fused_attention, run)


def scale(node: Any, shares: tuple[float, ...], run: Run) -> None:
    """So much of the gradient for each of the first inputs, which are all that is traced."""

    def hook(grads: tuple[Any, ...], above: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not run.relevance:
            return None
        return *torch._foreach_mul(grads[: len(shares)], shares), *grads[len(shares) :]

    node.register_hook(hook)


def hold_spread(node: Any, run: Run) -> None:
    """The gradient of a norm whose input is 0 (`rules.layer_norm_coefficient`): what the norm has saved is shown as zeros."""

    def shown(saved: Tensor) -> Tensor:
        return run.made.zeros(saved) if run.relevance else saved

    for saved in (node._raw_saved_input, node._raw_saved_result1):  # x and its mean
        saved.register_hooks(itself, shown)


def itself(x: Tensor) -> Tensor:
    return x
