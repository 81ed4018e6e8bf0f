"""Whether gradients arrive: a forward is followed once per model, operation by operation, for what autograd does not see.

Weights are frozen while a model is lent, so a tensor requires grad exactly if it depends on the word embeddings and autograd knows.
A number that depends on them and does not require grad was cut off: by `detach`, within `no_grad` or `inference_mode`, by an operation
without a derivative (int8 products). If it goes on into the answer, gradients are those of another function. Whole numbers and truth
values (a router's choice, a mask) have no derivative and are no cut.

A cut may still be harmless (the largest score, which a softmax may take off): then gradients agree with differences of answers.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from whence.errors import NotSupported
from whence.models import Lent
from whence.models.lending import HOOKS

NO_DERIVATIVE = "NotImplemented"  # in the name of the node that torch puts where an operation has none
# what is asked of a tensor is its shape, dtype and device
SHAPE_ONLY = ("new_zeros", "new_ones", "new_full", "new_empty", "new_empty_strided")
FIRST_ONLY = ("to",)  # and all that end with _as: the other operand is a pattern
OUT_OF_TORCH = ("numpy", "tolist", "item", "__array__", "__float__", "__int__")
INTO_TORCH = ("tensor", "as_tensor", "asarray", "from_numpy", "new_tensor", "scalar_tensor")
INFERENCE = "nference tensor"  # in torch's messages
AGREES = 1e-3  # how far gradients may be from differences of answers, of their size: in float32 honest ones are by 2e-4


@dataclass(frozen=True)
class Cut:
    """Where a number left the graph."""

    module: nn.Module | None  # the innermost that was running
    operation: str


def tensors_in(values: Any) -> Iterator[Tensor]:
    """The tensors in nested sequences and mappings."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from tensors_in(value)
    elif isinstance(values, dict):
        for value in values.values():
            yield from tensors_in(value)


def operands(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterable[Tensor]:
    """The tensors whose numbers an operation reads."""
    if name.endswith("_like") or name in SHAPE_ONLY:
        return ()
    if name.endswith("_as") or name in FIRST_ONLY:
        return tensors_in(args[:1])
    return tensors_in((args, kwargs))


def has_gradient(tensor: Tensor) -> bool:
    """Whether autograd knows what a tensor was made of."""
    return tensor.requires_grad and (tensor.grad_fn is None or NO_DERIVATIVE not in tensor.grad_fn.name())


@dataclass(frozen=True)
class Origin:
    """How numbers depend on the embeddings: not at all, as autograd knows, or otherwise."""

    depends: bool = True
    cut: Cut | None = None
    unsettled: Cut | None = None


class Follower(TorchFunctionMode):
    """Follows what depends on the embeddings through one forward."""

    def __init__(self, model: nn.Module, lent: Lent, rules: str | None = None) -> None:
        """rules: the name of the set whose function mode replaces operations; None if autograd's graph tells them all."""
        super().__init__()
        self.rules = rules
        self.seen = WeakTensorKeyDictionary()  # what came of operations that a mode sees
        self.model, self.lent, self.modules = model, lent, set(map(id, lent.modules))
        self.cut = WeakTensorKeyDictionary()  # depends on the embeddings by a way that autograd does not know
        self.unsettled = WeakTensorKeyDictionary()  # made without gradients: a Function may still give it one
        self.read: Cut | None = None  # a number that was read, or a gradient that a hook may change

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", str(func))
        with torch._C.DisableTorchFunction():
            self.check_seen((args, kwargs))
            origin = self.origin(operands(name, args, kwargs))
        try:
            result = func(*args, **kwargs)
        except RuntimeError as error:
            if origin.cut is not None and INFERENCE in str(error):
                raise NotSupported(refusal(self.model, origin.cut), lacks=("embeddings",)) from error
            raise
        if name == "__iter__":
            result = list(result)
        with torch._C.DisableTorchFunction():
            self.add_seen(result)
            if origin.depends and (name == "register_hook" or (name in OUT_OF_TORCH and args[0].is_floating_point())):
                self.read = self.read or self.here(name)
            elif name in INTO_TORCH and self.read is not None:
                origin = Origin(cut=origin.cut or self.read)
            if origin.depends:
                self.mark(args[0] if name == "__setitem__" else result, origin, name)
        return iter(result) if name == "__iter__" else result

    def add_seen(self, values: Any) -> None:
        """Tensors that came of operations that a mode sees, or of Functions of whence's own."""
        if self.rules is not None:
            for tensor in tensors_in(values):
                if tensor.grad_fn is not None:  # what is made within a Function is that Function's
                    self.seen[tensor] = True

    def check_seen(self, values: Any) -> None:
        """Refuse what came of any other: relevance would pass it by its gradient, as if that were its rule."""
        if self.rules is None or not torch.is_grad_enabled():  # inside of a Function, say
            return
        for tensor in tensors_in(values):
            if tensor.grad_fn is not None and tensor not in self.seen:
                where = place(self.model, self.here("").module)
                raise NotSupported(
                    f"the rule set {self.rules!r} has no rule for what was run before {where} ({tensor.grad_fn.name()}): compiled code, or an "
                    "autograd Function of its own, which nobody can look into",
                    lacks=("relevance",),
                )

    def origin(self, tensors: Iterable[Tensor]) -> Origin:
        """How the operands of an operation depend on the embeddings."""
        origin = Origin(depends=False)
        for tensor in tensors:
            if tensor in self.cut:
                return Origin(cut=self.cut[tensor])
            if tensor in self.unsettled and tensor.grad_fn is not None:  # the Function that made it has been left
                del self.unsettled[tensor]
            if tensor in self.unsettled:
                if torch.is_grad_enabled():
                    return Origin(cut=self.unsettled[tensor])
                origin = Origin(unsettled=self.unsettled[tensor])
            elif tensor.requires_grad and not origin.depends:
                origin = Origin()
        return origin

    def mark(self, values: Any, origin: Origin, name: str) -> None:
        """Remember of what an operation has made how it depends on the embeddings."""
        for tensor in tensors_in(values):
            if not (tensor.is_floating_point() or tensor.is_complex()):
                continue
            if origin.cut is None and not torch.is_grad_enabled():
                self.unsettled[tensor] = origin.unsettled or self.here(name)
            elif origin.cut is not None or not has_gradient(tensor):
                self.cut[tensor] = origin.cut or self.here(name)
                if tensor._base is not None:
                    self.cut[tensor._base] = self.cut[tensor]

    def here(self, name: str) -> Cut:
        """The innermost module whose code, or hook, is running."""
        frame = sys._getframe()
        while frame is not None:
            owner = frame.f_locals.get("self")
            if isinstance(owner, nn.Module) and id(owner) in self.modules:
                return Cut(owner, name)
            frame = frame.f_back  # type: ignore[assignment]
        return Cut(None, name)

    @contextmanager
    def following(self) -> Iterator[None]:
        """Functions run within the block, which no mode sees, hand on what is known of their operands (`carry`)."""
        token = _following.set(self)
        try:
            yield
        finally:
            _following.reset(token)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within the block, numbers that a hook only reads, and returns nothing, count for nothing."""
        tables = [module.__dict__[name] for module in self.lent.hooked for name in HOOKS]
        hooks = [(table, key, hook) for table in tables for key, hook in table.items()]

        def watched(hook: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(hook)
            def call(*args: Any, **kwargs: Any) -> Any:
                before = self.read
                result = hook(*args, **kwargs)
                if result is None and self.read is not None and self.read.operation in OUT_OF_TORCH:
                    self.read = before
                return result

            return call

        try:
            for table, key, hook in hooks:
                table[key] = watched(hook)
            yield
        finally:
            for table, key, hook in hooks:
                if key in table:
                    table[key] = hook

    def reached(self, answer: Tensor) -> Cut | None:
        """Where what the answer depends on left the graph; None if it did not."""
        cut = self.origin([answer]).cut
        return cut if cut is not None or has_gradient(answer) else Cut(None, "forward")

    def judge(self, answer: Tensor, mismatch: Callable[[], float]) -> bool:
        """Refuse a model whose gradients are wrong; True if nothing was cut off, False if it was, and does no harm.

        mismatch: how far gradients are from differences of answers, of their size; NaN where that cannot be told.
        """
        cut = self.reached(answer)
        if cut is None and self.read is None:
            return True
        gap = mismatch()
        if cut is not None and not gap <= AGREES:
            raise NotSupported(refusal(self.model, cut), lacks=("embeddings",))
        if self.read is not None and gap > AGREES:  # nothing may have come of what was read
            raise NotSupported(refusal(self.model, self.read), lacks=("embeddings",))
        return False


_following: ContextVar[Follower | None] = ContextVar("whence_following", default=None)


def carry(operands: Sequence[Any], result: Any, covered: Tensor | None = None, module: nn.Module | None = None) -> None:
    """What a Function of whence's own has made of its operands is cut off where they are. covered: the output of a module that it
    stands for as a whole, which is not followed inside."""
    follower = _following.get()
    if follower is None:
        return
    with torch._C.DisableTorchFunction():
        direct = [value for value in operands if isinstance(value, Tensor)]  # nested ones lead into graphs of their own
        follower.check_seen(direct)
        follower.add_seen(result)
        cut = follower.origin(direct).cut
        if cut is None and covered is not None and not has_gradient(covered):
            cut = Cut(module, "forward")
        if cut is not None:
            for tensor in tensors_in(result):
                follower.cut[tensor] = cut


def place(model: nn.Module, module: nn.Module | None) -> str:
    """A module's class, and its name in the model."""
    names = [name for name, other in model.named_modules() if other is module]
    return f"{type(module).__name__} {names[0]!r}" if names and names[0] else type(model).__name__


def refusal(model: nn.Module, cut: Cut) -> str:
    """What is said of a model whose gradients are wrong."""
    return (
        f"gradients are cut off in {place(model, cut.module)} (at {cut.operation}): it runs under torch.no_grad or inference_mode, has quantized weights, or "
        "a hook that detaches or reads numbers. Scores by gradients or relevance would be those of another function: take that away, or do "
        "without gradients"
    )


@dataclass(frozen=True)
class Snapshot:
    """All of a model that says which operations run, as far as it can be seen cheaply."""

    parts: object  # `Lent.parts`
    modules: Sequence[weakref.ref[nn.Module]]
    of_modules: tuple[object, ...]
    of_classes: tuple[object, ...]

    @classmethod
    def of(cls, lent: Lent) -> Snapshot:
        return cls(lent.parts, list(map(weakref.ref, lent.modules)), code_of_modules(lent), code_of_classes(lent))

    def holds(self, lent: Lent) -> bool:
        if self.of_classes != code_of_classes(lent):
            return False
        if self.parts is lent.parts:
            return True
        return [ref() for ref in self.modules] == list(lent.modules) and self.of_modules == code_of_modules(lent)


def code_of_modules(lent: Lent) -> tuple[object, ...]:
    """The hooks and forwards of single modules, and the kinds of weights."""
    return lent.hooks_of_owner, tuple(map(id, lent.forwards)), frozenset(map(type, lent.parameters))


def code_of_classes(lent: Lent) -> tuple[object, ...]:
    """The forwards of classes, and the hooks of all modules of the program."""
    everywhere = (*torch_modules._global_forward_hooks, *torch_modules._global_forward_pre_hooks)
    return everywhere, frozenset(getattr(kind, "forward", None) for kind in lent.kinds)


# by how a model was run: what it was made of then, and its weights, where these have a say
_FOLLOWED: weakref.WeakKeyDictionary[nn.Module, dict[object, tuple[Snapshot, int | None]]] = weakref.WeakKeyDictionary()


def follower(
    model: nn.Module, lent: Lent, way: object, stamp: Callable[[], int], rules: str | None = None
) -> Follower | None:
    """What follows a forward; None for a model that was followed when it was made of the same. way: how it is run; rules: the set
    whose function mode runs it, if any."""
    snapshot, weights = _FOLLOWED.get(model, {}).get(way, (None, None))
    if snapshot is not None and (weights is None or weights == stamp()) and snapshot.holds(lent):
        return None
    return Follower(model, lent, rules)


def remember(model: nn.Module, lent: Lent, way: object, stamp: int | None) -> None:
    """Follow the model no more, as long as it is made of the same; and, with a stamp, has the same weights."""
    _FOLLOWED.setdefault(model, {})[way] = Snapshot.of(lent), stamp
