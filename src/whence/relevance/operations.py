"""Operations whose backward carries gradients or relevance, as the run they belong to says at the moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from whence.relevance.cuts import carry
from whence.relevance.gates import Gates, HeadParts
from whence.relevance.rules import Made, RuleSet, layer_norm_gradient


class Carry(Enum):
    """What backwards carry at the moment."""

    GRADIENT = "gradient"
    RELEVANCE = "relevance"


@dataclass(frozen=True)
class RelevancePass:
    """One backward of relevance: by which rules, and through which heads (None: all of them).

    precise: computed in float64 whatever the model's dtype. Relevance divides by sums that may be near 0, and read as it is
    (not weighed by a gradient) it does not stand float32; see docs/decisions on the precision of relevance.
    """

    rules: str
    heads: HeadParts | None = None
    precise: bool = False


@dataclass
class Run:
    """What the functions of one traced forward share."""

    rules: RuleSet
    model: nn.Module
    rows: int  # of the batch
    gradients: bool = True  # whether backwards of true gradients will come too
    carry: Carry = Carry.GRADIENT
    made: Made = field(default_factory=Made)
    gates: Gates = field(default_factory=Gates)

    @property
    def relevance(self) -> bool:
        return self.carry is Carry.RELEVANCE

    @contextmanager
    def running(self) -> Iterator[None]:
        """The forward inside the block belongs to this run; `run_in_use` tells."""
        token = _run.set(self)
        try:
            yield
        finally:
            _run.reset(token)

    @contextmanager
    def carrying(self, heads: HeadParts | None, rules: RuleSet | None = None) -> Iterator[None]:
        """Backwards inside the block carry relevance, through these heads; by other rules than the forward's own, if given."""
        own = self.rules
        self.carry, self.gates.heads, self.rules = Carry.RELEVANCE, heads, rules or own
        try:
            yield
        finally:
            self.carry, self.gates.heads, self.rules = Carry.GRADIENT, None, own


_run: ContextVar[Run | None] = ContextVar("whence_run", default=None)


def run_in_use() -> Run | None:
    """The run that the forward at hand belongs to; None in a plain forward."""
    return _run.get()


# ctx is untyped in torch; every backward returns one entry per argument of its forward.


class Linear(Function):
    """z = x Wᵀ + b."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, run: Run) -> Tensor:
        z = run.made.linear(x, weight, bias)
        ctx.run, ctx.weight, ctx.bias = run, weight, bias
        ctx.save_for_backward(x, z)
        return z

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        run: Run = ctx.run
        if not run.relevance or run.rules.linear is None:
            return run.made.times(grads[0], ctx.weight, ctx.weight), None, None, None
        x, z = ctx.saved_tensors
        return run.rules.linear(x, ctx.weight, z, ctx.bias, grads[0], run.made), None, None, None


class Binary(Function):
    """z = f(a, b) of two traced operands; `kind` names the rule."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, kind: str, run: Run) -> Tensor:
        z = a @ b if kind == "product" else a * b if kind == "gate" else a + b
        ctx.run, ctx.kind = run, kind
        ctx.save_for_backward(a, b, z)
        return z

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (r,) = grads
        a, b, z = ctx.saved_tensors
        rule = getattr(ctx.run.rules, ctx.kind) if ctx.run.relevance else None
        if rule is not None:
            ra, rb = rule(a, b, z, r)
        elif ctx.kind == "product":
            ra, rb = r @ b.mT, a.mT @ r
        elif ctx.kind == "gate":
            ra, rb = r * b, r * a
        else:
            ra, rb = r, r
        return ra.sum_to_size(a.shape), rb.sum_to_size(b.shape), None, None


class Constant(Function):
    """z = f(x, a constant): relevance stays whole on the traced operand, summed where x was broadcast."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor | float | None, call: Callable[[], Tensor], run: Run) -> Tensor:
        ctx.run, ctx.factor, ctx.shape = run, factor, x.shape
        return call()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (r,) = grads
        whole = ctx.run.relevance and ctx.run.rules.carries == "relevance"
        if not whole and ctx.factor is not None:
            r = r * ctx.factor
        return r.sum_to_size(ctx.shape), None, None, None


# which rule of a set an operation follows; asked at the backward, so that one forward serves several sets
RuleOf = Callable[[RuleSet], Callable[..., Tensor] | None]


class Unary(Function):
    """y = f(x), kept as a small graph of its own, from `inner` to y, so that the true gradient is at hand too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, own: tuple[Tensor, Tensor], rule: RuleOf, run: Run) -> Tensor:
        ctx.run, ctx.rule = run, rule
        ctx.inner, ctx.y = (
            own  # come as a pair, which autograd does not look into: nothing leads from the outer graph to theirs
        )
        return ctx.y.detach()  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rule = ctx.rule(ctx.run.rules) if ctx.run.relevance else None
        if rule is not None:
            return rule(ctx.inner, ctx.y, grads[0]), None, None, None
        (found,) = torch.autograd.grad(ctx.y, ctx.inner, grads[0], retain_graph=True)
        return found, None, None, None


class LayerNorm(Function):
    """y = γ (x − μ)/σ + β over the last axis."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, run: Run) -> Tensor:
        y, mean, rsigma = torch.native_layer_norm(x, x.shape[-1:], weight, bias, eps)
        ctx.run, ctx.weight = run, weight
        ctx.save_for_backward(x, mean, rsigma)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        run: Run = ctx.run
        x, mean, rsigma = ctx.saved_tensors
        if run.relevance:
            found = run.rules.layer_norm(x, rsigma, grads[0], ctx.weight, run.made)
        else:
            found = layer_norm_gradient(x, mean, rsigma, grads[0], ctx.weight)
        return found, None, None, None, None


class Shares(Function):
    """q, k and v themselves; their coefficients are scaled on the way back (the uniform rule around a fused kernel)."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, shares: tuple[float, float, float], run: Run
    ) -> tuple[Tensor, ...]:
        ctx.run, ctx.shares = run, shares
        return q.view_as(q), k.view_as(k), v.view_as(v)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return *(torch._foreach_mul(grads, ctx.shares) if ctx.run.relevance else grads), None, None


def apply(function: Any, *args: Any) -> Any:
    """`Function.apply`, which torch leaves untyped."""
    made = function.apply(*args)
    carry(args, made)
    return made


def leaf(x: Tensor, run: Run) -> Tensor:
    """The same values, at the bottom of a new graph; of none where no gradient will be asked for, which is faster."""
    return x.detach().requires_grad_(run.gradients)


def no_operation_of_its_own() -> Any:
    """A context in which a RelevanceMode sees nothing: what happens inside has one rule as a whole."""
    return torch._C.DisableTorchFunction()


def is_traced(x: object) -> bool:
    return isinstance(x, Tensor) and x.requires_grad
