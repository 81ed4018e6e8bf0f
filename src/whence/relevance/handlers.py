"""Which operation follows which rule: torch functions, and how their arguments are read.

A handler gets the run, the torch function and its arguments, at least one of them traced, and returns the result; or
NotImplemented where no rule fits, which becomes an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from whence.relevance import deeplift
from whence.relevance.operations import (
    Binary,
    Constant,
    LayerNorm,
    Linear,
    RuleOf,
    Run,
    Shares,
    Unary,
    apply,
    is_traced,
    leaf,
)


def linear(run: Run, func: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if is_traced(weight) or is_traced(bias):
        return NotImplemented
    if run.rules.linear is None:
        return func(x, weight, bias)
    return apply(Linear, x, weight, bias, run)


def addmm(run: Run, func: Any, bias: Tensor, x: Tensor, weight: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    """GPT-2's Conv1D: a linear layer whose weight is stored the other way round."""
    if is_traced(weight) or is_traced(bias) or beta != 1 or alpha != 1:
        return NotImplemented
    if run.rules.linear is None:
        return func(bias, x, weight)
    return apply(Linear, x, weight.t(), bias, run)


def matmul(run: Run, func: Any, a: Tensor, b: Tensor) -> Any:
    if is_traced(a) and is_traced(b):
        return apply(Binary, a, b, "product", run)
    if is_traced(a) and b.dim() == 2:
        return linear(run, lambda x, w, _: x @ w.t(), a, b.t())
    return NotImplemented


def constant(run: Run, x: Tensor, factor: Tensor | float | None, call: Callable[[], Tensor]) -> Tensor:
    """x and a constant. A coefficient goes through as the gradient does: no operation of ours is needed, and each costs a launch
    or two of Python, there and back."""
    if run.rules.carries == "coefficient":
        return call()
    return apply(Constant, x, factor, call, run)  # type: ignore[no-any-return]


def add(run: Run, func: Any, a: Any, b: Any, *, alpha: float = 1) -> Any:
    if not (is_traced(a) and is_traced(b)):
        x = a if is_traced(a) else b
        return constant(run, x, None if x is a else alpha, lambda: func(a, b, alpha=alpha))
    if alpha != 1:
        return NotImplemented
    kind = "rotation" if scaled(a) and scaled(b) else "skip"
    if kind == "skip" and (a.shape[0] != run.rows or b.shape[0] != run.rows):
        return NotImplemented  # rows are no longer told apart: the rescaling would mix them
    if run.rules.carries == "coefficient" and getattr(run.rules, kind) is None:
        return func(a, b)
    return apply(Binary, a, b, kind, run)


def subtract(run: Run, func: Any, a: Any, b: Any, *, alpha: float = 1) -> Any:
    if is_traced(a) and is_traced(b):
        return NotImplemented
    x = a if is_traced(a) else b
    return constant(run, x, None if x is a else -alpha, lambda: func(a, b, alpha=alpha))


def multiply(run: Run, func: Any, a: Any, b: Any) -> Any:
    if is_traced(a) and is_traced(b):
        return apply(Binary, a, b, "gate", run)
    x, factor = (a, b) if is_traced(a) else (b, a)
    result: Any = constant(run, x, factor, lambda: func(a, b))
    if isinstance(factor, Tensor) and factor.dim():
        result.scaled_by_constant = True
    return result


def scaled(x: Tensor) -> bool:
    """Whether x is a state times a table of constants: two of these added are a rotary embedding, not a skip connection."""
    return getattr(x, "scaled_by_constant", False)


def divide(run: Run, func: Any, a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    if is_traced(b) or rounding_mode is not None:
        return NotImplemented
    return constant(run, a, 1 / b, lambda: func(a, b))


def negate(run: Run, func: Any, x: Tensor) -> Any:
    return constant(run, x, -1, lambda: func(x))


def unary(run: Run, rule: RuleOf, call: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    with torch.enable_grad():
        inner = leaf(x, run)
        y = call(inner)
    return apply(Unary, x, (inner, y), rule, run)


def elementwise(run: Run, func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    return unary(run, lambda rules: rules.elementwise, lambda t: func(t, *args, **kwargs), x)


def paired_only(run: Run, func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """What norms written out are made of: squares and roots, to which only differences can be handed down."""
    return elementwise(run, func, x, *args, **kwargs) if run.rules.paired else NotImplemented


def mean(run: Run, func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Linear: for multipliers its gradient is the rule."""
    return func(x, *args, **kwargs) if run.rules.paired else NotImplemented


def softmax(run: Run, func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    if run.rules.softmax is None:
        return func(x, *args, **kwargs)
    if run.rules.paired and (args[0] if args else kwargs.get("dim")) not in (-1, x.dim() - 1):
        return NotImplemented
    return unary(run, lambda rules: rules.softmax, lambda t: func(t, *args, **kwargs), x)


def layer_norm(
    run: Run,
    func: Any,
    x: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    if len(normalized_shape) != 1:
        return NotImplemented
    return apply(LayerNorm, x, weight, bias, eps, run)


def rms_norm(
    run: Run, func: Any, x: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Any:
    """A norm that only rescales: elementwise, but for rules that hand down differences."""
    if not run.rules.paired:
        return elementwise(run, func, x, normalized_shape, weight, eps)
    if len(normalized_shape) != 1:
        return NotImplemented
    small = torch.finfo(x.dtype).eps if eps is None else eps

    def rule(inner: Tensor, y: Tensor, m: Tensor) -> Tensor:
        scale = (inner.square().mean(-1, keepdim=True) + small).rsqrt()  # (…, 1)
        return deeplift.rms_norm(inner, scale, m, weight)

    return unary(run, lambda _: rule, lambda t: func(t, normalized_shape, weight, eps), x)


def dropout(run: Run, func: Any, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    return NotImplemented if training and p > 0 else x


def fused_attention(run: Run, func: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
    """softmax(qkᵀ)v in one kernel: with the gradient as softmax rule, halving both products is a share for each input."""
    if run.rules.fused_attention is None:
        return NotImplemented
    return func(*apply(Shares, query, key, value, run.rules.fused_attention, run), *args, **kwargs)


T = torch.Tensor
# fmt: off
HANDLERS: dict[Any, Callable[..., Any]] = {
    func: handler
    for handler, functions in (
        (linear, [F.linear]),
        (addmm, [torch.addmm]),
        (matmul, [torch.matmul, T.matmul, T.__matmul__, torch.bmm, T.bmm]),
        (add, [torch.add, T.add, T.__add__, T.__radd__]),
        (subtract, [torch.sub, T.sub, T.__sub__]),
        (multiply, [torch.mul, T.mul, T.__mul__, T.__rmul__]),
        (divide, [torch.div, T.div, T.__truediv__]),
        (negate, [torch.neg, T.neg, T.__neg__]),
        (softmax, [torch.softmax, T.softmax, F.softmax]),
        (layer_norm, [F.layer_norm, torch.layer_norm]),
        (dropout, [F.dropout, torch.dropout]),
        (fused_attention, [F.scaled_dot_product_attention]),
        (elementwise, [
            F.gelu, F.relu, torch.relu, T.relu, F.silu, F.mish, F.elu, F.leaky_relu, F.relu6, F.softplus, F.hardswish,
            torch.tanh, T.tanh, F.tanh, torch.sigmoid, T.sigmoid, F.sigmoid,
        ]),
        (rms_norm, [F.rms_norm]),
        (paired_only, [T.pow, T.__pow__, torch.pow, T.square, torch.square, T.rsqrt, torch.rsqrt]),
        (mean, [T.mean, torch.mean]),
    )
    for func in functions
}
# operations that move relevance about without changing it: their own gradient is the rule
ROUTES: frozenset[Any] = frozenset([
    T.view, T.view_as, T.reshape, T.reshape_as, torch.reshape, T.flatten, torch.flatten, T.unflatten, T.contiguous,
    T.transpose, torch.transpose, T.permute, torch.permute, T.swapaxes, T.swapdims, T.t, T.mT.__get__, T.T.__get__,  # type: ignore[attr-defined]
    T.squeeze, torch.squeeze, T.unsqueeze, torch.unsqueeze, T.expand, T.expand_as, T.repeat, T.repeat_interleave,
    torch.repeat_interleave, T.split, torch.split, T.chunk, torch.chunk, T.unbind, torch.unbind, torch.cat, torch.stack,
    T.__getitem__, T.select, torch.select, T.narrow, torch.narrow, T.index_select, torch.index_select, T.gather,
    torch.gather, T.roll, torch.roll, T.masked_fill, T.clone, torch.clone, T.detach, T.requires_grad_,
    T.to, T.type, T.type_as, T.float, T.double, T.cpu, T.cuda,
])
# what a tensor is asked without being used
QUESTIONS: frozenset[Any] = frozenset([
    T.size, T.dim, T.numel, T.stride, T.is_contiguous, T.is_floating_point, T.element_size, T.__len__,
    *(getattr(T, name).__get__ for name in ("shape", "ndim", "device", "dtype", "requires_grad", "is_cuda", "layout")),
])
# fmt: on
LEFT_ALONE = ROUTES | QUESTIONS
