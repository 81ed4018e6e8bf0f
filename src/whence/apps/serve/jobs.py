"""What a worker does for requests: predictions, explanations and the hiding game, each for many requests at once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from whence.explainer import Explainer
from whence.explanation import Explanation
from whence.registry import Method, get_method

Options: TypeAlias = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Asked:
    """One input and what is asked of it; equal ones are run once."""

    item: str | tuple[str, str]
    is_question: bool = False
    target: int | str | None = None
    contrast: int | str | tuple[str, ...] | None = None
    continuation: str | None = None
    place: int | str | None = None

    @property
    def input(self) -> Any:
        if not self.is_question:
            return self.item
        return {"question": self.item[0], "context": self.item[1]}

    @property
    def about(self) -> dict[str, Any]:
        """As `Task.ask` takes it."""
        return {
            "target": self.target,
            "contrast": self.contrast,
            "continuation": self.continuation,
            "place": self.place,
        }


class Job(Protocol):
    """Work for one request."""

    @property
    def key(self) -> Hashable:
        """Jobs with the same key can be run in one call."""

    @classmethod
    def run(cls, explainer: Explainer, jobs: Sequence[Any]) -> list[Any]:
        """The results of jobs with the same key, in order."""


@dataclass(frozen=True)
class Explain:
    """Some methods on one input, from one trace: {method: Explanation}."""

    asked: Asked
    methods: tuple[str, ...]
    options: Options = ()

    @property
    def key(self) -> Hashable:
        """Requests for the same methods go together; so do those for any methods that one plain pass serves."""
        chosen = [get_method(name) for name in self.methods]
        if all(rides_along(method) for method in chosen):
            return Explain, self.options and (self.methods, self.options)
        return Explain, self.methods, self.options

    @classmethod
    def run(cls, explainer: Explainer, jobs: Sequence[Explain]) -> list[dict[str, Explanation]]:
        asked = list(dict.fromkeys(job.asked for job in jobs))
        methods = list(dict.fromkeys(name for job in jobs for name in job.methods))
        found = explain(explainer, asked, methods, jobs[0].options)
        numbers = {one: i for i, one in enumerate(asked)}
        return [{name: found[name][numbers[job.asked]] for name in job.methods} for job in jobs]


def rides_along(method: Method) -> bool:
    """Whether a method costs next to nothing once the plain pass has been made: it reads attention, gradients or hidden
    states, and neither takes layers apart nor needs a backward of its own. What it needs says so: its backward of relevance
    cannot be asked for before its options are complete (mask-lrp's head mask comes with the model)."""
    needs = method.needs()
    own_work = {"blocks", "lm-head"} & needs or any(".relevance" in need for need in needs)
    return method.kind == "trace" and not own_work and not method.on_request


def explain(
    explainer: Explainer, asked: Sequence[Asked], methods: Sequence[str], options: Options
) -> dict[str, list[Explanation]]:
    """Every input by every method, each toward its own target, from one call."""
    about: dict[str, Any] = {
        name: [one.about[name] for one in asked] for name in ("target", "contrast", "continuation", "place")
    }
    found: dict[str, list[Explanation]] = explainer.explain(
        [one.input for one in asked], list(methods), **about, progress=False, **dict(options)
    )
    return found
