"""A plan: the methods of a call with their options, and which forwards they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from whence.errors import InputError, UnknownName
from whence.registry import METHODS, Method, get_method
from whence.relevance.head_mask import as_mask
from whence.relevance.operations import RelevancePass
from whence.relevance.rules import rule_set
from whence.render.meaning import Meaning
from whence.tasks import Scalar
from whence.trace import Recording, Trace

PLAIN = frozenset({bool, float, int, str, type(None)})


@dataclass(frozen=True, eq=False)
class Defaults:
    """What goes where the caller names nothing."""

    method: str | None = None  # a recipe's
    options: Mapping[str, Any] = field(default_factory=dict)  # of that method
    tuned: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict
    )  # method → options by a recipe, or what "auto" means
    head_mask: Path | None = None  # the one that comes with an embedded model


NO_DEFAULTS = Defaults()


@dataclass(frozen=True, eq=False)
class MethodCall:
    """A method with all its options."""

    name: str
    method: Method
    options: Mapping[str, Any]
    needs: frozenset[str]  # what it reads of a trace
    relevance: RelevancePass | None  # the backward of relevance that it reads
    meaning: Meaning  # what it declares of its scores


@dataclass(frozen=True, eq=False)
class Plan:
    """Methods, options and head masks of one call: resolved, and not changed any more."""

    calls: tuple[MethodCall, ...]
    _forwards: dict[torch.dtype, tuple[ForwardPass, ...]] = field(
        default_factory=dict
    )  # worked out once for each dtype

    @classmethod
    def of(cls, names: Sequence[str], options: Mapping[str, Any], defaults: Defaults | None = None) -> Plan:
        """Each method with its own options.

        Args:
            names: of registered methods.
            options: each goes to the methods that take it; one that no method takes is an error.
            defaults: options in the place of those that are not given, or "auto".
        """
        if not names:
            raise InputError("no method given; whence.methods() lists them.")
        registered = set(map(type, names)) == {str} and METHODS.keys() >= set(names)
        methods = tuple(map(METHODS.__getitem__ if registered else get_method, names))
        if PLAIN.issuperset(map(type, options.values())):
            kinds = tuple(map(type, options.values()))  # 1, 1.0 and True are equal
            return _plan_of_plain(methods, tuple(options.items()), kinds, defaults or NO_DEFAULTS)
        return cls._resolved(methods, options, defaults or NO_DEFAULTS)

    @classmethod
    def _resolved(cls, methods: Sequence[Method], options: Mapping[str, Any], defaults: Defaults) -> Plan:
        takes = {option for method in methods for option in method.defaults}
        for option in options:
            if option not in takes:
                raise UnknownName(f"option of {', '.join(m.name for m in methods)}", option, sorted(takes))
        calls = []
        for method in methods:
            tuned = defaults.tuned.get(method.name, {})
            chosen = {k: v for k, v in options.items() if k in method.defaults and not (k in tuned and v == "auto")}
            resolved = method.check({**tuned, **chosen})
            if "head_mask" in resolved:
                resolved["head_mask"] = as_mask(resolved["head_mask"], defaults.head_mask)
            calls.append(
                MethodCall(
                    method.name,
                    method,
                    resolved,
                    method.needs(resolved),
                    method.relevance(resolved),
                    method.meaning(resolved),
                )
            )
        return cls(tuple(calls))

    @property
    def names(self) -> list[str]:
        return [call.name for call in self.calls]

    def options(self, name: str) -> Mapping[str, Any]:
        """All options of the method called `name`."""
        return next(call.options for call in self.calls if call.name == name)

    def forwards(self, dtype: torch.dtype) -> tuple[ForwardPass, ...]:
        """The forwards that the methods of one trace share, of a model of this dtype."""
        if dtype not in self._forwards:
            self._forwards[dtype] = _forwards_of(self.of_kind("trace"), dtype)
        return self._forwards[dtype]

    def of_kind(self, kind: str) -> list[MethodCall]:
        """The calls of methods that are run so: "trace", "path" or "perturbation"."""
        return [call for call in self.calls if call.method.kind == kind]


@lru_cache(64)
def _plan_of_plain(
    methods: tuple[Method, ...], options: tuple[tuple[str, Any], ...], kinds: tuple[type, ...], defaults: Defaults
) -> Plan:
    """Plans come again and again: those whose options are plain values, which say all that there is to say, are worked out once."""
    return Plan._resolved(methods, dict(options), defaults)


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """The methods that share one forward."""

    calls: tuple[MethodCall, ...]
    needs: frozenset[str]  # what they read of a trace, all together
    requests: Mapping[RelevancePass, list[MethodCall]]  # the backwards of relevance that they read, and which read each
    rules: (
        str | None
    )  # what the forward is made ready for (None: plain); with several rule sets, one that divides carries the others too
    dtype: torch.dtype | None  # what the model runs in; None: its own
    follows_gradients: bool  # some rules of the plan are gradients in part
    attention_readers: int  # how many methods look at attention
    lm_heads: list[Any]  # what the option lm_head= of each decoding method says

    def traces(self, recording: Recording, scalar: Scalar, *, last: bool) -> Iterator[tuple[MethodCall, Trace]]:
        """Each method with what it sees: one backward of gradients for all, and one of relevance per distinct request.

        Args:
            last: no further scalar follows, so that the graph may be freed.
        """
        plain = recording.toward(scalar, last=last and not self.requests)
        for call in self.calls:
            if call.relevance is None:
                yield call, plain
        for number, (request, calls) in enumerate(self.requests.items(), start=1):
            needs = frozenset[str]().union(*(call.needs for call in calls))
            trace = recording.with_relevance(plain, request, needs, last=last and number == len(self.requests))
            for call in calls:
                yield call, trace


def _forwards_of(traced: Sequence[MethodCall], dtype: torch.dtype) -> tuple[ForwardPass, ...]:
    """The forwards that methods of one trace share, of a model of this dtype; at least one, which the model answers with.

    Methods are grouped by the precision that they run in; one forward serves all rule sets of a group. Those that need no relevance
    ride along, but not in another precision.
    """
    groups: dict[tuple[bool, bool, bool], list[MethodCall]] = {}
    plain: list[MethodCall] = []
    for call in traced:
        if call.relevance is None:
            plain.append(call)
            continue
        rules = rule_set(call.relevance.rules)
        # in half precision what divides runs in float32, and what does not need not
        apart = rules.carries == "relevance" and torch.promote_types(dtype, torch.float32) != dtype
        groups.setdefault((call.relevance.precise, apart, rules.paired), []).append(call)
    host = next((key for key in groups if not key[0]), None)
    if host is not None:
        groups[host] = [*plain, *groups[host]]
    elif plain or not groups:
        groups = {(False, False, False): plain, **groups}
    return tuple(_forward_of(tuple(calls), dtype, precise) for (precise, _, _), calls in groups.items())


def _forward_of(calls: tuple[MethodCall, ...], dtype: torch.dtype, precise: bool) -> ForwardPass:
    """The forward of methods that share one. dtype: the model's; precise: float64 is needed."""
    requests: dict[RelevancePass, list[MethodCall]] = {}
    for call in calls:
        if call.relevance is not None:
            requests.setdefault(call.relevance, []).append(call)
    sets = [rule_set(name) for name in dict.fromkeys(request.rules for request in requests)]
    dividing = [rules.name for rules in sets if rules.carries == "relevance"]
    widened = (
        torch.promote_types(dtype, torch.float32) if dividing else None
    )  # relevance is never divided in half precision
    return ForwardPass(
        calls,
        needs=frozenset[str]().union(*(call.needs for call in calls)),
        requests=requests,
        rules=next(iter([*dividing, *(rules.name for rules in sets)]), None),
        dtype=torch.float64 if precise else widened,
        follows_gradients=bool(dividing) and len(dividing) < len(sets),
        attention_readers=sum(any(n.startswith(("attention", "blocks")) for n in call.needs) for call in calls),
        lm_heads=[call.options.get("lm_head") for call in calls if "lm-head" in call.needs],
    )
