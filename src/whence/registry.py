"""The table of methods: declared with `@method`, found by name, extended by entry points of the group `whence.methods`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from typing import Any

from torch import Tensor

from whence.errors import InputError, UnknownName
from whence.table import Table
from whence.trace import RelevancePass, Trace, check_needs

Needs = frozenset[str]


@dataclass(frozen=True)
class Attribution:
    """What a method returns when it has more to say than one score per token."""

    scores: Tensor  # (b, n)
    layers: Tensor | None = None  # (b, L, n)
    options: dict[str, Any] = field(default_factory=dict)  # per-batch facts to report; lists hold one entry per row
    matrices: dict[str, Tensor] | None = None  # name → (b, L, n, n), where the method has them and was asked


MethodFunction = Callable[..., Tensor | Attribution]


@dataclass(frozen=True)
class Method:
    """A registered method: a pure function from a trace to one score per token."""

    name: str
    function: MethodFunction
    family: str
    paper: str
    _needs: Needs | Callable[..., Iterable[str]]
    _relevance: Callable[..., RelevancePass] | None = None

    @property
    def defaults(self) -> dict[str, Any]:
        """The method's options and their default values."""
        parameters = list(inspect.signature(self.function).parameters.values())[1:]
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def needs(self, options: Mapping[str, Any] | None = None) -> Needs:
        """What the method reads of a trace, which may depend on its options."""
        if callable(self._needs):
            return check_needs(self._needs(**{**self.defaults, **(options or {})}))
        return self._needs

    def relevance(self, options: Mapping[str, Any] | None = None) -> RelevancePass | None:
        """The backward of relevance that the method reads, or None."""
        return self._relevance(**{**self.defaults, **(options or {})}) if self._relevance else None

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.function) or "").split("\n")[0]

    @property
    def cost(self) -> str:
        """Passes over the model for one batch."""
        needs = self.needs()
        backward = any(".grad" in need for need in needs) + (self._relevance is not None)
        if backward:
            return f"1 forward + {backward} backward{'s' * (backward > 1)}"
        return "1 forward" if needs else "none"

    def check(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """All options with defaults filled in, or an error naming the unknown one."""
        for name in options:
            if name not in self.defaults:
                raise UnknownName(f"option of {self.name!r}", name, self.defaults)
        return {**self.defaults, **options}

    def __call__(self, trace: Trace, **options: Any) -> Attribution:
        result = self.function(trace, **options)
        return result if isinstance(result, Attribution) else Attribution(result)


_METHODS: dict[str, Method] = {}


def method(
    name: str,
    *,
    needs: Iterable[str] | Callable[..., Iterable[str]] = (),
    relevance: Callable[..., RelevancePass] | None = None,
    family: str = "plug-in",
    paper: str = "",
) -> Callable[[MethodFunction], MethodFunction]:
    """Register a method: a function from a `Trace` to scores (b, n), or to an `Attribution`.

    Keyword-only arguments become the method's options. `needs` is a set of words of `whence.trace.NEEDS`, or a function
    of the options that returns one. A method that needs relevance says by `relevance`, a function of its options, which
    backward of relevance it reads.

    >>> @method("embedding-norm", needs={"embeddings"})
    ... def embedding_norm(trace: Trace, *, order: int = 2) -> Tensor:
    ...     return trace.embeddings.norm(order, dim=-1)
    >>> get_method("embedding-norm").defaults
    {'order': 2}
    >>> del _METHODS["embedding-norm"]
    """

    def register(function: MethodFunction) -> MethodFunction:
        checked = needs if callable(needs) else check_needs(needs)
        if name in _METHODS and _METHODS[name].function.__module__ != function.__module__:
            raise InputError(f"a method named {name!r} exists already (in {_METHODS[name].function.__module__}).")
        _METHODS[name] = Method(name, function, family, paper, checked, relevance)
        return function

    return register


@cache
def _load_plugins() -> None:
    """Import third-party methods once; importing registers them."""
    for entry in metadata.entry_points(group="whence.methods"):
        entry.load()


def get_method(name: str) -> Method:
    """The method called `name`; plug-ins are looked for when it is not one of ours."""
    if not isinstance(name, str):
        raise InputError(f"a method is given by its name, got {type(name).__name__}; see whence.methods().")
    if name not in _METHODS:
        _load_plugins()
    if name not in _METHODS:
        raise UnknownName("method", name, sorted(_METHODS))
    return _METHODS[name]


def all_methods() -> list[Method]:
    """Every method, plug-ins included, in the order of registration."""
    _load_plugins()
    return list(_METHODS.values())


def methods() -> Table:
    """A table of every method: name, family, paper, needs, cost, options.

    >>> [row["name"] for row in methods()][:3]
    ['random', 'raw-attention', 'rollout']
    """
    return Table(
        {
            "name": m.name,
            "family": m.family,
            "paper": m.paper,
            "needs": ", ".join(sorted(m.needs())) or "nothing",
            "cost": m.cost,
            "options": ", ".join(f"{k}={v!r}" for k, v in m.defaults.items()),
            "summary": m.summary,
        }
        for m in all_methods()
    )
