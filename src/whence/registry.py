"""The tables of methods and metrics: declared with `@method` and `@metric`, found by name, extended by entry points.

Third parties register theirs by entry points of the groups `whence.methods` and `whence.metrics`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import import_module, metadata
from numbers import Integral, Real
from types import SimpleNamespace, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from whence.attribution import Attribution, fits_rows
from whence.errors import InputError, UnknownName
from whence.numbers import check_size, seed_of, short
from whence.table import Table
from whence.trace import RelevancePass, Trace, check_needs

Needs = frozenset[str]
Floats = NDArray[np.floating[Any]]


def option_kinds(function: Callable[..., Any], names: Sequence[str]) -> dict[str, tuple[type, ...]]:
    """The classes in the annotations of a function's options; an option that may be anything, or says nothing, is left out.

    >>> def f(trace, *, layer: int | None = None, mask: Any = None): ...
    >>> option_kinds(f, ["layer", "mask"])
    {'layer': (<class 'int'>, <class 'NoneType'>)}
    """
    found: dict[str, tuple[type, ...]] = {}
    for name in names:
        own = SimpleNamespace(__annotations__={name: function.__annotations__.get(name, Any)})
        try:
            hint = get_type_hints(own, globalns=getattr(function, "__globals__", {}))[name]
        except NameError:  # known to type checkers only
            continue
        kinds = get_args(hint) if isinstance(hint, UnionType) or get_origin(hint) is Union else (hint,)
        if all(isinstance(kind, type) and get_origin(kind) is None for kind in kinds) and Any not in kinds:
            found[name] = kinds
    return found


def fits(value: Any, kinds: tuple[type, ...]) -> bool:
    """Is a value of one of the classes? A whole number will do for a float; True and False are no numbers.

    >>> fits(3, (float,)), fits(True, (int,)), fits(None, (int, type(None)))
    (True, False, True)
    """
    if isinstance(value, (bool, np.bool_)):
        return bool in kinds
    abstract = {int: Integral, float: Real}
    return isinstance(value, tuple(abstract.get(kind, kind) for kind in kinds))


def check_name(what: str, name: Any) -> None:
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"@whence.{what} is given a name first, as in @whence.{what}('mine'); got {short(name)}.")


MethodFunction = TypeVar("MethodFunction", bound=Callable[..., Any])
KINDS = ("trace", "path", "perturbation")


@dataclass(frozen=True)
class Method:
    """A registered method: a pure function from a trace to one score per token."""

    name: str
    function: Callable[..., Any]  # of a Trace; of a Ground for paths, of a Text for perturbations
    family: str
    paper: str
    _needs: Needs | Callable[..., Iterable[str]]
    _relevance: Callable[..., RelevancePass | None] | None = None
    kind: str = "trace"  # one traced pass; "path": gradients along a path; "perturbation": many changed rows

    @cached_property
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
        if self.kind != "trace":
            return "many forwards + backwards" if self.kind == "path" else "many forwards"
        needs = self.needs()
        backward = any(".grad" in need for need in needs) + any(".relevance" in need for need in needs)
        if backward:
            return f"1 forward + {backward} backward{'s' * (backward > 1)}"
        return "1 forward" if needs else "none"

    @cached_property
    def kinds(self) -> dict[str, tuple[type, ...]]:
        """What types each option takes, where its annotation says so in plain classes."""
        return option_kinds(self.function, list(self.defaults))

    def check(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """All options with defaults filled in, or an error naming the one that is unknown or of a wrong type."""
        for name, value in options.items():
            if name not in self.defaults:
                raise UnknownName(f"option of {self.name!r}", name, self.defaults)
            kinds = self.kinds.get(name)
            if kinds is not None and not fits(value, kinds):
                wanted = " or ".join("None" if k is type(None) else k.__name__ for k in kinds)
                raise InputError(f"{name}={short(value)}: {self.name} takes {wanted}, got {type(value).__name__}.")
            check_size(name, value)
            if name == "seed" and isinstance(value, Integral):  # of a method that does not look itself
                seed_of(value)
        return {**self.defaults, **{k: v.item() if isinstance(v, np.generic) else v for k, v in options.items()}}

    def __call__(self, trace: Trace, **options: Any) -> Attribution:
        result = self.function(trace, **options)
        found = result if isinstance(result, Attribution) else Attribution(result)
        wrong = fits_rows(found, *trace.batch.own_ids.shape)
        if wrong:
            raise InputError(f"the method {self.name!r} returned what is no score per token: {wrong}.")
        return found


_METHODS: dict[str, Method] = {}


def method(
    name: str,
    *,
    needs: Iterable[str] | Callable[..., Iterable[str]] = (),
    relevance: Callable[..., RelevancePass | None] | None = None,
    family: str = "plug-in",
    paper: str = "",
    kind: str = "trace",
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

    check_name("method", name)

    def register(function: MethodFunction) -> MethodFunction:
        if kind not in KINDS:
            raise UnknownName("kind of method", kind, KINDS)
        checked = needs if callable(needs) else check_needs(needs)
        if name in _METHODS and _METHODS[name].function.__module__ != function.__module__:
            raise InputError(f"a method named {name!r} exists already (in {_METHODS[name].function.__module__}).")
        _METHODS[name] = Method(name, function, family, paper, checked, relevance, kind)
        return function

    return register


GROUPS = ("whence.methods", "whence.metrics")  # modules of our own, and groups of entry points of others


@cache
def _load_own() -> None:
    """Import our methods and metrics once; importing registers them."""
    for name in GROUPS:
        import_module(name)


@cache
def _load_plugins() -> None:
    """The same for third parties', after ours."""
    _load_own()
    for group in GROUPS:
        for entry in metadata.entry_points(group=group):
            entry.load()


def get_method(name: str) -> Method:
    """The method called `name`; plug-ins are looked for when it is not one of ours."""
    if not isinstance(name, str):
        raise InputError(f"a method is given by its name, got {type(name).__name__}; see whence.methods().")
    _load_own()
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


METRIC_NEEDS = {
    "every-class": "explanations toward every class",
    "models": "several models that differ by seed, classifiers or language models",
    "answer": "the answer's place in the context",
    "rationale": "the tokens that people marked",
}


@dataclass(frozen=True)
class Metric:
    """A registered metric under one of its presets: pure functions from scores, and answers to perturbed rows, to numbers."""

    name: str
    function: Callable[..., Any]
    better: str  # "higher" or "lower"
    over: str  # "example" or "corpus"
    family: str
    paper: str
    needs: Needs
    presets: Mapping[str, Mapping[str, Any]]
    _rows: Callable[..., Any] | None = None
    _grid: Callable[..., Sequence[float]] | None = None
    preset: str | None = None

    @cached_property
    def title(self) -> str:
        """The name as it is asked for: `aopc:attcat`, or `aopc` for the first preset."""
        return self.name if self.preset is None else f"{self.name}:{self.preset}"

    @cached_property
    def options(self) -> dict[str, Any]:
        """All options with the preset's values filled in."""
        parameters = inspect.signature(self.function).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        chosen = self.presets[self.preset] if self.preset else next(iter(self.presets.values()), {})
        return {**defaults, **chosen}

    @property
    def perturbs(self) -> bool:
        return self._rows is not None

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.function) or "").split("\n")[0]

    @cached_property
    def rows_key(self) -> tuple[Any, ...]:
        """Metrics with the same key want the same rows of every case: the function, and the options that it reads."""
        if self._rows is None:
            return ()
        read = inspect.signature(self._rows).parameters.values()
        everything = any(p.kind is p.VAR_KEYWORD and p.name != "_" for p in read)
        names = self.options if everything else [p.name for p in read if p.name in self.options]
        return (self._rows, tuple((name, repr(self.options[name])) for name in names))

    def rows(self, case: Any) -> Any:
        """The perturbed rows (`whence.metrics.Steps`) that the metric wants of a case; None leaves the case out."""
        return self._rows(case, **self.options) if self._rows else None

    def grid(self) -> tuple[float, ...] | None:
        """Where the metric's curve has its points, or None if it has no curve."""
        return tuple(self._grid(**self.options)) if self._grid else None

    def __call__(self, *given: Any) -> Any:
        return self.function(*given, **self.options)


_METRICS: dict[str, Metric] = {}


def metric(
    name: str,
    *,
    rows: Callable[..., Any] | None = None,
    grid: Callable[..., Sequence[float]] | None = None,
    needs: Iterable[str] = (),
    over: str = "example",
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    better: str = "higher",
    family: str = "plug-in",
    paper: str = "",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a metric: a function from a `whence.metrics.Case` to a `Measured`.

    With `rows`, a function from the case and the options to `Steps`, the metric takes the model's `Answers` to those rows as its
    second argument. over="corpus": it takes all cases and their weights at once. Keyword-only arguments are options; `presets`
    name values for them, asked for as `name:preset`, and the first one is the default. `needs` are words of METRIC_NEEDS.

    >>> @metric("first-token", better="lower")
    ... def first_token(case):
    ...     return float(case.order[0])
    >>> get_metric("first-token").better
    'lower'
    >>> del _METRICS["first-token"]
    """

    check_name("metric", name)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for given, known, kind in ((better, ("higher", "lower"), "better"), (over, ("example", "corpus"), "over")):
            if given not in known:
                raise UnknownName(kind, given, known)
        for need in needs:
            if need not in METRIC_NEEDS:
                raise UnknownName("need of a metric", need, METRIC_NEEDS)
        if name in _METRICS and _METRICS[name].function.__module__ != function.__module__:
            raise InputError(f"a metric named {name!r} exists already (in {_METRICS[name].function.__module__}).")
        wanted = frozenset(needs)
        _METRICS[name] = Metric(name, function, better, over, family, paper, wanted, presets or {}, rows, grid)
        return function

    return register


def get_metric(title: str) -> Metric:
    """The metric called `name` or `name:preset`."""
    if not isinstance(title, str):
        raise InputError(f"a metric is given by its name, got {type(title).__name__}; see whence.metrics().")
    name, colon, preset = title.partition(":")
    _load_own()
    if name not in _METRICS:
        _load_plugins()
    if name not in _METRICS:
        raise UnknownName("metric", name, sorted(_METRICS))
    found = _METRICS[name]
    if not colon:
        return found
    if preset not in found.presets:
        raise UnknownName(f"preset of {name!r}", preset, found.presets)
    return replace(found, preset=preset)


def all_metrics() -> list[Metric]:
    """Every metric under its first preset, plug-ins included, in the order of registration."""
    _load_plugins()
    return list(_METRICS.values())


def metrics() -> Table:
    """A table of every metric: name, which way is better, family, paper, needs, presets.

    >>> [row["name"] for row in metrics()][:2]
    ['aopc', 'lodds']
    """
    return Table(
        {
            "name": m.name,
            "better": m.better,
            "family": m.family,
            "paper": m.paper,
            "needs": ", ".join(METRIC_NEEDS[need] for need in sorted(m.needs)) or "nothing",
            "presets": ", ".join(m.presets),
            "summary": m.summary,
        }
        for m in all_metrics()
    )
