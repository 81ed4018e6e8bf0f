"""The table of methods: declared with `@method`, found by name, extended by entry points of the group `whence.methods`.

A method says on registration all that other rooms need to know of it, so that no other room names a method: what it reads of a
model, what its scores mean, how it is tried. A plug-in's method is treated as ours are. (Metrics: `whence.evaluate.metrics.registry`.)
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module, metadata
from itertools import zip_longest
from numbers import Integral
from typing import Any, TypeVar

import numpy as np

from whence.errors import InputError, UnknownName, WhenceError
from whence.inputs.numbers import check_size, seed_of, short
from whence.inputs.options import fits, option_types
from whence.relevance.operations import RelevancePass
from whence.render.meaning import Meaning
from whence.render.table import Table
from whence.trace import LACKING, Trace, check_needs
from whence.trace.attribution import Attribution, fits_rows

OWN = "whence.methods"  # importing it registers the methods of our own
GROUPS = ("whence.methods", "whence.metrics")  # groups of entry points of others
KINDS = ("trace", "path", "perturbation")
# what every method of a kind needs, beyond what it declares; "trace": one pass whose states are seen
KIND_NEEDS = {
    "trace": frozenset({"trace"}),
    "path": frozenset({"trace", "embeddings.grad"}),
    "perturbation": frozenset[str](),
}
MOST_ADVISED = 8  # methods that an error names

MethodFunction = TypeVar("MethodFunction", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False)
class Method:
    """A registered method, and what it declares. What depends on options is a function of them.

    Args:
        name: what it is asked for by.
        function: of a Trace; of a Ground for paths, of a Text for perturbations. Its keyword-only arguments are its options.
        needs: what it reads of a trace: words of `whence.trace.NEEDS`.
        relevance: which backward of relevance it reads, if it does.
        signed: whether scores below 0 speak against the target; False: there are none. Undeclared, each explanation's scores tell.
        sums_to: what the scores of a text add up to: one of `whence.render.meaning.SUMS`; None: they make no such promise.
        layers_start: the layer of the first row of `Attribution.layers`: 0 (embeddings) or 1. Undeclared, it is worked out:
            L + 1 rows of a model of L layers begin at 0, L rows at 1.
        knows_target: False: the scores are the same whatever target is explained. Undeclared, who reads gradients knows it.
        combine: how a word's score comes from its tokens': "sum", "mean" or the "largest" in size.
        family: methods of one idea; tables and comparisons go by it.
        paper: where it is defined.
        kind: "trace": one traced pass; "path": gradients along a path; "perturbation": many changed rows.
        first_choice: it stands for its family: `whence check` compares others with it, and hints name it first.
        on_request: too costly to be tried unless somebody names it.
        variants: options worth trying besides the defaults (`whence tune`); every value of an option `layer` is tried anyway.
        output_options: options with which `layers` belong to the outputs of the layers, where the defaults do otherwise.
    """

    name: str
    function: Callable[..., Any]
    _needs: frozenset[str] | Callable[..., Iterable[str]]
    _meaning: Mapping[str, Any]  # fields of Meaning; any may be a function of the options
    _relevance: Callable[..., RelevancePass | None] | None = None
    family: str = "plug-in"
    paper: str = ""
    kind: str = "trace"
    first_choice: bool = False
    on_request: bool = False
    variants: tuple[Mapping[str, Any], ...] = ()
    output_options: Mapping[str, Any] | None = None

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The method's options and their default values."""
        parameters = list(inspect.signature(self.function).parameters.values())[1:]
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def _chosen(self, options: Mapping[str, Any] | None) -> dict[str, Any]:
        """All options: those given, of which others are left out, and the defaults of the rest."""
        return {name: (options or {}).get(name, value) for name, value in self.defaults.items()}

    def needs(self, options: Mapping[str, Any] | None = None) -> frozenset[str]:
        """What the method reads of a trace, which may depend on its options."""
        return check_needs(self._needs(**self._chosen(options))) if callable(self._needs) else self._needs

    def relevance(self, options: Mapping[str, Any] | None = None) -> RelevancePass | None:
        """The backward of relevance that the method reads, or None."""
        return self._relevance(**self._chosen(options)) if self._relevance else None

    def meaning(self, options: Mapping[str, Any] | None = None) -> Meaning:
        """What the scores mean, which may depend on the options."""
        chosen = self._chosen(options)
        meaning = {name: value(**chosen) if callable(value) else value for name, value in self._meaning.items()}
        if meaning.get("knows_target") is None and (
            self.kind != "trace" or any(".grad" in need or ".relevance" in need for need in self.needs(options))
        ):
            meaning["knows_target"] = True
        return Meaning(**meaning)

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
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

    def lacks(self, words: Iterable[str]) -> bool:
        """Whether the method, by default, cannot do without one of these: words of LACKING, or "trace"."""
        needs = self.needs() | KIND_NEEDS[self.kind]
        if "relevance" in words and self.relevance() is not None:
            return True
        return any(word in needs if word == "trace" else any(map(LACKING[word], needs)) for word in words)

    def gives(self, what: str) -> bool:
        """Whether its explanations hold "layers", or "matrices" when they are asked for; False where it does not say."""
        return "matrices" in self.defaults if what == "matrices" else self._meaning.get("layers_start") is not None

    @cached_property
    def types(self) -> dict[str, tuple[type, ...]]:
        """What types each option takes, where its annotation says so in plain classes."""
        return option_types(self.function, list(self.defaults))

    def check(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """All options with defaults filled in, or an error naming the one that is unknown or of a wrong type."""
        for name, value in options.items():
            if name not in self.defaults:
                raise UnknownName(f"option of {self.name!r}", name, self.defaults)
            types = self.types.get(name)
            if types is not None and not fits(value, types):
                allowed = " or ".join("None" if t is type(None) else t.__name__ for t in types)
                raise InputError(f"{name}={short(value)}: {self.name} takes {allowed}, got {type(value).__name__}.")
            check_size(name, value)
            if name == "seed" and isinstance(value, Integral):  # of a method that does not look itself
                seed_of(value)
        return {**self.defaults, **{k: v.item() if isinstance(v, np.generic) else v for k, v in options.items()}}

    def __call__(self, trace: Trace, **options: Any) -> Attribution:
        """Scores of every row of a traced batch, as the method returned them: checked to be one per token."""
        result = self.function(trace, **options)
        attribution = result if isinstance(result, Attribution) else Attribution(result)
        misfit = fits_rows(attribution, *trace.batch.own_ids.shape)
        if misfit:
            raise InputError(f"the method {self.name!r} returned what is no score per token: {misfit}.")
        return attribution


METHODS: dict[str, Method] = {}


def check_name(what: str, name: Any) -> None:
    """Refuse a decorator without a name, for `@whence.method` and `@whence.metric`."""
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"@whence.{what} is given a name first, as in @whence.{what}('mine'); got {short(name)}.")


def method(
    name: str,
    *,
    needs: Iterable[str] | Callable[..., Iterable[str]] = (),
    relevance: Callable[..., RelevancePass | None] | None = None,
    signed: bool | Callable[..., bool] | None = None,
    sums_to: str | Callable[..., str | None] | None = None,
    layers_start: int | None = None,
    knows_target: bool | None = None,
    combine: str = "sum",
    family: str = "plug-in",
    paper: str = "",
    kind: str = "trace",
    first_choice: bool = False,
    on_request: bool = False,
    variants: Sequence[Mapping[str, Any]] = (),
    output_options: Mapping[str, Any] | None = None,
) -> Callable[[MethodFunction], MethodFunction]:
    """Register a method: a function from a `Trace` to scores (b, n), or to an `Attribution`.

    What each declaration says is in `Method`. One that is not possible, or a name that is taken, is refused.

    >>> @method("embedding-norm", needs={"embeddings"}, signed=False)
    ... def embedding_norm(trace: Trace, *, order: int = 2) -> Tensor:
    ...     return trace.embeddings.norm(order, dim=-1)
    >>> get_method("embedding-norm").defaults
    {'order': 2}
    >>> del METHODS["embedding-norm"]
    """

    check_name("method", name)
    meaning: dict[str, Any] = {
        "signed": signed,
        "sums_to": sums_to,
        "layers_start": layers_start,
        "knows_target": knows_target,
        "combine": combine,
    }

    def register(function: MethodFunction) -> MethodFunction:
        declared = Method(
            name,
            function,
            needs if callable(needs) else check_needs(needs),
            meaning,
            relevance,
            family,
            paper,
            kind,
            first_choice,
            on_request,
            tuple(variants),
            output_options,
        )
        _add(declared)
        return function

    return register


def _add(declared: Method) -> None:
    """Put a method into the table, if what it declares can be."""
    name, module = declared.name, declared.function.__module__
    if declared.kind not in KINDS:
        raise UnknownName("kind of method", declared.kind, KINDS)
    Meaning(
        **{field: value for field, value in declared._meaning.items() if not callable(value)}
    )  # refuses what it cannot mean
    for options in (*declared.variants, declared.output_options or {}):
        declared.check(options)
    if name in METHODS and METHODS[name].function.__module__ != module:
        raise InputError(f"a method named {name!r} exists already (in {METHODS[name].function.__module__}).")
    METHODS[name] = declared


@cache
def load_plugins() -> None:
    """Import the methods and metrics that others register by entry points, after our methods; once."""
    import_module(OWN)
    for group in GROUPS:
        for entry in metadata.entry_points(group=group):
            entry.load()


def get_method(name: str) -> Method:
    """The method called `name`; plug-ins are looked for when it is not one of ours."""
    if not isinstance(name, str):
        raise InputError(f"a method is given by its name, got {type(name).__name__}; see whence.methods().")
    import_module(OWN)
    if name not in METHODS:
        load_plugins()
    if name not in METHODS:
        raise UnknownName("method", name, sorted(METHODS))
    return METHODS[name]


def all_methods() -> list[Method]:
    """Every method, plug-ins included, in the order of registration."""
    load_plugins()
    return list(METHODS.values())


def declared_meaning(name: str, options: Mapping[str, Any]) -> Meaning:
    """What the scores of a stored Explanation mean that does not say so itself; of a method that is not here nothing is known."""
    try:
        return get_method(name).meaning(options)
    except UnknownName:
        return Meaning()


def methods_without(*lacks: str) -> list[str]:
    """Names of the methods that run on a model that lacks these (words of `whence.trace.LACKING`, or "trace"), in the table's
    order. Left out: the baseline; what is only tried on request; and what asks more of a model or of its user: parts of
    blocks, rules of relevance, a language-model head, a head mask.

    >>> methods_without("attention", "hidden")[:3]
    ['simple', 'gradient', 'gradient-x-input']
    """
    import_module(OWN)
    demanding = {"blocks", "relevance", *lacks}
    return [
        m.name
        for m in METHODS.values()
        if not (
            m.family == "baseline" or m.on_request or m.lacks(demanding) or {"lm_head", "head_mask"} & set(m.defaults)
        )
    ]


def methods_giving(what: str) -> list[str]:
    """Names of the methods whose explanations hold "layers", or "matrices", in the table's order."""
    import_module(OWN)
    return [m.name for m in METHODS.values() if m.gives(what)]


def some_of(names: Sequence[str]) -> str:
    """At most MOST_ADVISED of these methods for a sentence: of every family its first choice, then the next, until they are enough.

    >>> some_of(methods_without("trace"))
    'occlusion, lime, shapley, kernel-shap'
    """
    families: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda name: not METHODS[name].first_choice):
        families.setdefault(METHODS[name].family, []).append(name)
    in_turn = [name for turn in zip_longest(*families.values()) for name in turn if name is not None]
    shown = set(in_turn[:MOST_ADVISED])
    return ", ".join([name for name in names if name in shown] + ["…"] * (len(names) > len(shown)))


def advice(lacks: tuple[str, ...]) -> str:
    """How the sentence of an error goes on that says what is missing (`WhenceError.lacks`)."""
    if lacks[0] in ("layers", "matrices"):
        return f"; methods that give them: {some_of(methods_giving(lacks[0]))}."
    return f"; methods that need none still work: {some_of(methods_without(*lacks))}."


WhenceError.advice = staticmethod(advice)


def methods() -> Table:
    """A table of every method: name, family, paper, needs, what its scores mean by default, cost, options.

    >>> [row["name"] for row in methods()][:3]
    ['random', 'raw-attention', 'rollout']
    """
    return Table(
        {
            "name": m.name,
            "family": m.family,
            "paper": m.paper,
            "needs": ", ".join(sorted(m.needs())) or "nothing",
            "signed": "yes" if m.meaning().signed else "no",
            "sums to": m.meaning().sums_to or "—",
            "knows the target": "no" if m.meaning().knows_target is False else "yes",
            "cost": m.cost,
            "options": ", ".join(f"{k}={v!r}" for k, v in m.defaults.items()),
            "summary": m.summary,
        }
        for m in all_methods()
    )


MOVED = (
    "METRIC_NEEDS",
    "Metric",
    "all_metrics",
    "get_metric",
    "metric",
    "metrics",
)  # to whence.evaluate.metrics.registry


def __getattr__(name: str) -> Any:
    if name not in MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        f"whence.registry.{name} is whence.evaluate.metrics.registry.{name} now.", DeprecationWarning, stacklevel=2
    )
    return getattr(import_module("whence.evaluate.metrics.registry"), name)
