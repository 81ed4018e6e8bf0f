"""The table of metrics: declared with `@metric`, found by name and preset, extended by entry points of the group `whence.metrics`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import Any

from whence.errors import InputError, UnknownName
from whence.registry import check_name, load_plugins
from whence.render.table import Table

OWN = "whence.evaluate.metrics"  # importing it registers the metrics of our own

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
    needs: frozenset[str]
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
        takes_all = any(p.kind is p.VAR_KEYWORD and p.name != "_" for p in read)
        names = self.options if takes_all else [p.name for p in read if p.name in self.options]
        return (self._rows, tuple((name, repr(self.options[name])) for name in names))

    def rows(self, case: Any) -> Any:
        """The perturbed rows (`whence.evaluate.metrics.Steps`) that the metric wants of a case; None leaves the case out."""
        return self._rows(case, **self.options) if self._rows else None

    def grid(self) -> tuple[float, ...] | None:
        """Where the metric's curve has its points, or None if it has no curve."""
        return tuple(self._grid(**self.options)) if self._grid else None

    def __call__(self, *measured: Any) -> Any:
        return self.function(*measured, **self.options)


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
    """Register a metric: a function from a `whence.evaluate.metrics.Case` to a `Measured`.

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
        for option, value, choices in (("better", better, ("higher", "lower")), ("over", over, ("example", "corpus"))):
            if value not in choices:
                raise UnknownName(option, value, choices)
        for need in needs:
            if need not in METRIC_NEEDS:
                raise UnknownName("need of a metric", need, METRIC_NEEDS)
        if name in _METRICS and _METRICS[name].function.__module__ != function.__module__:
            raise InputError(f"a metric named {name!r} exists already (in {_METRICS[name].function.__module__}).")
        _METRICS[name] = Metric(
            name, function, better, over, family, paper, frozenset(needs), presets or {}, rows, grid
        )
        return function

    return register


def get_metric(title: str) -> Metric:
    """The metric called `name` or `name:preset`."""
    if not isinstance(title, str):
        raise InputError(f"a metric is given by its name, got {type(title).__name__}; see whence.metrics().")
    name, colon, preset = title.partition(":")
    import_module(OWN)
    if name not in _METRICS:
        load_plugins()
    if name not in _METRICS:
        raise UnknownName("metric", name, sorted(_METRICS))
    plain = _METRICS[name]
    if not colon:
        return plain
    if preset not in plain.presets:
        raise UnknownName(f"preset of {name!r}", preset, plain.presets)
    return replace(plain, preset=preset)


def all_metrics() -> list[Metric]:
    """Every metric under its first preset, plug-ins included, in the order of registration."""
    import_module(OWN)
    load_plugins()
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
