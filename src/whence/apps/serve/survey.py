"""What a model can be asked: which methods run on it, and what their scores look like; found by trying each once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from whence.apps.serve.jobs import Asked
from whence.apps.serve.predict import encode, hidden_by
from whence.errors import WhenceError
from whence.explainer import DEFAULT_METHOD, FALLBACK_METHOD, Explainer
from whence.models import stand_in_ids, zoo
from whence.models.zoo.catalogue import find
from whence.registry import all_methods, get_method
from whence.render.scale import is_signed
from whence.run.perturb import Text

TRIED: dict[str, Asked] = {
    "question-answering": Asked(("Who wrote it?", "Anna wrote it."), True),
    "masked-lm": Asked("a [MASK] film"),
}
ANY = Asked("a good film")
LITTLE = {"steps": 2, "samples": 2, "permutations": 1}  # enough to see that a method runs
EXAMPLES = 6  # of an embedded model's sample texts
# how the sample files call what requests call otherwise
FIELDS = {"premise": "text", "hypothesis": "pair", "prompt": "text"}
INPUTS = ("text", "pair", "question", "context")


@dataclass(frozen=True)
class Trait:
    """What a method's scores are like."""

    signed: bool
    layers: bool


@dataclass(frozen=True)
class Facts:
    """What was found out about one model."""

    methods: dict[str, Trait]
    default_method: str
    hidden_by: str


@dataclass(frozen=True)
class Survey:
    """The first job of every worker; it also warms the model up."""

    @property
    def key(self) -> Hashable:
        return Survey

    @classmethod
    def run(cls, explainer: Explainer, jobs: Sequence[Survey]) -> list[Facts]:
        asked = TRIED.get(explainer.task, ANY)
        kinds: dict[str, list[str]] = {}
        for method in all_methods():
            kinds.setdefault(method.kind, []).append(method.name)
        found = {k: v for names in kinds.values() for k, v in attempt(explainer, asked, names).items()}
        traits = {method.name: found[method.name] for method in all_methods() if method.name in found}
        wanted = (explainer.defaults.method or DEFAULT_METHOD, FALLBACK_METHOD, *traits)
        default = next((name for name in wanted if name in traits), FALLBACK_METHOD)  # of none, it says why
        return [Facts(traits, default, stand_in(explainer, asked))] * len(jobs)


def stand_in(explainer: Explainer, asked: Asked) -> str:
    """What takes the place of hidden words; nothing is said where not even a short text can be read."""
    try:
        (row,), _ = encode(explainer, [asked])
    except WhenceError:
        return ""
    game = Text(row, stand_in_ids(explainer.model.config, explainer.tokenizer), explainer.task).game()
    return hidden_by(explainer, game.replacement)


def attempt(explainer: Explainer, asked: Asked, names: list[str]) -> dict[str, Trait]:
    """Methods that run: all in one call, or, where one of them cannot, half by half."""
    taken = {option for name in names for option in get_method(name).defaults}
    little: dict[str, Any] = {option: value for option, value in LITTLE.items() if option in taken}
    try:
        found = explainer.explain(asked.input, names, progress=False, **little)
    except Exception:  # also a plug-in's own
        half = len(names) // 2
        return attempt(explainer, asked, names[:half]) | attempt(explainer, asked, names[half:]) if half else {}
    return {name: Trait(is_signed(e), e.layers is not None) for name, e in found.items()}


def examples(source: str) -> list[dict[str, Any]]:
    """A few inputs to try an embedded model with, in the words of requests; none for other models."""
    if not zoo.is_embedded(source):
        return []
    seen: dict[tuple[str, ...], dict[str, Any]] = {}
    for sample in zoo.samples(source):
        renamed = {FIELDS.get(name, name): value for name, value in sample.items()}
        given = {name: renamed[name] for name in INPUTS if name in renamed}
        if "right" in sample:
            given["contrast"] = [sample["right"], sample["wrong"]]
        elif "continuation" in sample:
            given |= {"continuation": sample["continuation"], "contrast": sample["contrast"]}
        seen.setdefault(tuple(given[name] for name in INPUTS[:3:2] if name in given), given)
    return list(seen.values())[:EXAMPLES]


def description(source: str) -> str:
    return find(source).description if zoo.is_embedded(source) else ""
