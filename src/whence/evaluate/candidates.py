"""Which explanations are compared: a method, perhaps with options, written `name` or `name(option=value, …)`."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from whence.errors import InputError
from whence.explainer import Explainer
from whence.explanation import Explanation
from whence.registry import get_method


@dataclass(frozen=True)
class Candidate:
    """A method and the options that are not its defaults."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """As it is written and shown.

        >>> Candidate("attcat", {"variant": "paper"}).title
        'attcat(variant=paper)'
        """
        if not self.options:
            return self.method
        return f"{self.method}({', '.join(f'{k}={v}' for k, v in self.options.items())})"


def parse(text: str) -> Candidate:
    """A candidate from its title; unknown methods and options are errors.

    >>> parse("decoded-grad-cam(layer=3)").options
    {'layer': 3}
    """
    if not isinstance(text, str):
        raise InputError(f"a method is given by its name, perhaps with options: 'name(option=value)'; got {text!r}.")
    match = re.fullmatch(r"\s*([^()\s]+)\s*(?:\((.*)\))?\s*", text)
    if not match:
        raise InputError(f"{text!r}: write a method as 'name' or 'name(option=value, option=value)'.")
    options: dict[str, Any] = {}
    for pair in filter(str.strip, (match[2] or "").split(",")):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise InputError(f"{text!r}: options read option=value.")
        try:
            options[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[name] = value
    get_method(match[1]).check(options)
    return Candidate(match[1], options)


def groups(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Candidates that one call of `explain` can serve: methods that differ, options that do not contradict each other.

    >>> [len(g) for g in groups([parse("cat"), parse("attcat"), parse("attcat(variant=paper)")])]
    [2, 1]
    """
    calls: list[tuple[list[Candidate], dict[str, Any]]] = []
    for candidate in candidates:
        for members, options in calls:
            if all(m.method != candidate.method for m in members) and compatible(candidate, members, options):
                members.append(candidate)
                options |= candidate.options
                break
        else:
            calls.append(([candidate], dict(candidate.options)))
    return [members for members, _ in calls]


def compatible(candidate: Candidate, members: Sequence[Candidate], options: Mapping[str, Any]) -> bool:
    """Whether `one` can join: no option given for one of them may reach another that did not ask for it."""
    defaults = get_method(candidate.method).defaults
    if any(
        name in defaults and (name not in candidate.options or candidate.options[name] != v)
        for name, v in options.items()
    ):
        return False
    return not any(
        name in get_method(m.method).defaults and (name not in m.options or m.options[name] != v)
        for m in members
        for name, v in candidate.options.items()
    )


def explain(
    explainer: Explainer,
    inputs: list[Any],
    candidates: Sequence[Candidate],
    target: Any,
    *,
    batch_tokens: int,
) -> dict[str, list[Any]]:
    """{title: one Explanation per input, or one per class and input where target is "all"}, from as few passes as can be."""
    explanations: dict[str, list[Any]] = {}
    for members in groups(candidates):
        options = {k: v for m in members for k, v in m.options.items()}
        names = [m.method for m in members]
        explained = explainer.explain(inputs, names, target, batch_tokens=batch_tokens, progress=False, **options)
        explanations |= {m.title: explained[m.method] for m in members}
    return {c.title: explanations[c.title] for c in candidates}


def explanation_for(explained: Any, index: int) -> Explanation:
    """The explanation toward class `index` among those of one input."""
    chosen: Explanation = (
        next(e for e in explained if e.target_index == index) if isinstance(explained, list) else explained
    )
    return chosen
