"""The methods of a call with their options, and which forwards they cost: one for all that run in one precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch

from whence.errors import UnknownName
from whence.registry import Method, get_method
from whence.tasks import Scalar
from whence.trace import Recording, RelevancePass, Trace, rule_set

Plan = Mapping[str, tuple[Method, dict[str, Any]]]


def plan_methods(
    names: Sequence[str], options: Mapping[str, Any], tuned: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, tuple[Method, dict[str, Any]]]:
    """Each method with its own options, those that are not given (or "auto") as tuned; an option that no method takes is an error."""
    methods = [get_method(name) for name in names]
    known = {option for m in methods for option in m.defaults}
    for option in options:
        if option not in known:
            raise UnknownName(f"option of {', '.join(names)}", option, sorted(known))
    plan = {}
    for m in methods:
        own = (tuned or {}).get(m.name, {})
        given = {k: v for k, v in options.items() if k in m.defaults and not (k in own and v == "auto")}
        plan[m.name] = (m, m.check({**own, **given}))
    return plan


def traced(plan: Plan) -> Plan:
    """The methods that read a trace."""
    return {name: p for name, p in plan.items() if p[0].kind == "trace"}


@dataclass(frozen=True)
class ForwardPass:
    """The methods that share one forward, which is ready for relevance by `rules` (None: plain)."""

    plan: Plan
    rules: str | None  # with several, one that divides: its graph carries the others too
    precise: bool = False
    follows_gradients: bool = False  # some rules of the plan are gradients in part

    def dtype(self, own: torch.dtype) -> torch.dtype | None:
        """What to run a model of dtype `own` in: its own, but relevance is never divided in half precision."""
        if self.precise:
            return torch.float64
        if self.rules is not None and rule_set(self.rules).carries == "relevance":
            return torch.promote_types(own, torch.float32)
        return None

    @cached_property
    def needs(self) -> frozenset[str]:
        return frozenset[str]().union(*(m.needs(o) for m, o in self.plan.values()))

    @cached_property
    def looks_at_attention(self) -> int:
        """How many methods do."""
        return sum(any(n.startswith(("attention", "blocks")) for n in m.needs(o)) for m, o in self.plan.values())

    @cached_property
    def decodes(self) -> list[Any]:
        """What the option lm_head= of each decoding method says."""
        return [o.get("lm_head") for m, o in self.plan.values() if "lm-head" in m.needs(o)]

    @cached_property
    def requests(self) -> dict[RelevancePass, list[str]]:
        """The backwards of relevance that methods read, and which read each."""
        found: dict[RelevancePass, list[str]] = {}
        for name, (method, options) in self.plan.items():
            wanted = method.relevance(options)
            if wanted is not None:
                found.setdefault(wanted, []).append(name)
        return found

    def traces(self, recording: Recording, scalar: Scalar, *, last: bool) -> dict[str, Trace]:
        """What each method sees: one backward of gradients for all, and one of relevance per distinct request."""
        requests = self.requests
        plain = recording.toward(scalar, last=last and not requests)
        traces = dict.fromkeys(self.plan, plain)
        for number, (wanted, names) in enumerate(requests.items(), start=1):
            needs = frozenset[str]().union(*(self.plan[n][0].needs(self.plan[n][1]) for n in names))
            final = last and number == len(requests)
            traces |= dict.fromkeys(names, recording.with_relevance(plain, wanted, needs, last=final))
        return traces


PLAIN = frozenset({bool, float, int, str, type(None)})


def forward_passes(plan: Plan, dtype: torch.dtype = torch.float32) -> list[ForwardPass]:
    """Methods grouped by the precision that they run in, given the model's own; one forward serves all rule sets of a group.

    Methods that need no relevance ride along, but not in another precision. Plans come again and again, and those whose options are
    plain values (which say all that there is to say, and keep nothing alive) are worked out once.
    """
    if all(type(value) in PLAIN for _, options in plan.values() for value in options.values()):
        named = [(name, m, tuple((k, type(v), v) for k, v in o.items())) for name, (m, o) in plan.items()]
        return list(passes_of_plain(tuple(named), dtype))
    return passes_of(plan, dtype)


@lru_cache(64)
def passes_of_plain(
    named: tuple[tuple[str, Method, tuple[tuple[str, type, Any], ...]], ...], dtype: torch.dtype
) -> tuple[ForwardPass, ...]:
    return tuple(passes_of({name: (m, {k: v for k, _, v in o}) for name, m, o in named}, dtype))


def passes_of(plan: Plan, dtype: torch.dtype) -> list[ForwardPass]:
    groups: dict[tuple[bool, bool, bool], dict[str, tuple[Method, dict[str, Any]]]] = {}
    plain: dict[str, tuple[Method, dict[str, Any]]] = {}
    for name, (method, options) in plan.items():
        wanted = method.relevance(options)
        if wanted is None:
            plain[name] = (method, options)
            continue
        rules = rule_set(wanted.rules)
        divides = rules.carries == "relevance"
        # in half precision what divides runs in float32, and what does not need not
        apart = divides and torch.promote_types(dtype, torch.float32) != dtype
        groups.setdefault((wanted.precise, apart, rules.paired), {})[name] = (method, options)
    host = next((key for key in groups if not key[0]), None)
    if host is not None:
        groups[host] = {**plain, **groups[host]}
    elif plain:
        groups = {(False, False, False): plain, **groups}
    return [forward_pass(methods, precise) for (precise, _, _), methods in groups.items()]


def forward_pass(plan: Plan, precise: bool) -> ForwardPass:
    wanted = [w for m, o in plan.values() if (w := m.relevance(o)) is not None]
    sets = [rule_set(name) for name in dict.fromkeys(w.rules for w in wanted)]
    dividing = [rules.name for rules in sets if rules.carries == "relevance"]
    rules = next(iter([*dividing, *(rules.name for rules in sets)]), None)
    return ForwardPass(plan, rules, precise, bool(dividing) and len(dividing) < len(sets))
