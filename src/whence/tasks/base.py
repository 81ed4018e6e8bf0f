"""What is explained: the task protocol, targets and their scalars, and how a model's task is told from its class name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor
from transformers import PretrainedConfig

from whence.errors import InputError, NotSupported, UnknownName
from whence.inputs import Batch, Encoded, Encoder

# task name → suffix of the Hugging Face architecture that serves it
TASKS = {
    "sequence-classification": "ForSequenceClassification",
    "question-answering": "ForQuestionAnswering",
    "masked-lm": "ForMaskedLM",
    "causal-lm": "ForCausalLM",
    "token-classification": "ForTokenClassification",
}
ALIASES = {"qa": "question-answering", "ner": "token-classification", "classification": "sequence-classification"}
CAUSAL_NAMES = ("LMHeadModel", "ForCausalLM")


@dataclass(frozen=True)
class Prediction:
    """What the model answers."""

    label: str
    index: int
    probability: float | None  # None for regression
    probabilities: tuple[float, ...] = ()  # in the order of the explainer's labels; the raw value for regression
    alternatives: tuple[tuple[str, float], ...] = ()  # the best answers with their probabilities, where labels are open
    words: tuple[tuple[str, str, float], ...] = ()  # token classification: every word, its label and probability


@dataclass(frozen=True)
class Ask:
    """What the caller wants explained of one input, checked as far as it can be before the model has run."""

    target: Any = None  # None: what the model predicts
    contrast: Any = None  # explain the target *rather than* this
    continuation: str | None = None  # causal LM: the text whose probability is explained
    place: int | str | None = None  # which [MASK], or which token or word
    many: bool = False  # one Explanation per target
    answer: str | None = None  # question answering: the answer that a pair (this, instead of that) names


PREDICTED = -1  # in place of an option's number: the one that the model predicts, which only the device knows yet


@dataclass(frozen=True)
class Term:
    """One scalar of one row: y = Σ_m logits[places[m], indices[m]], less logits[places[m], contrasts[m]] if there are any."""

    places: tuple[int, ...]  # rows of the task's logits (places, options)
    indices: tuple[int, ...]  # which option at each place
    readouts: tuple[int, ...]  # the token positions at which these are read
    contrasts: tuple[int, ...] | None = None
    of: str = "logit"  # or "log-probability"
    # where an answer is read at several tokens at once (a mean): how much of it at each of `readouts`, which are then as many as
    # these, not as the places; none if it is read at no token. None: whole at each
    shares: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Target:
    """What one Explanation explains. Its scores are the sum of its terms' (question answering: start and end)."""

    label: str
    index: int
    terms: tuple[Term, ...]
    contrast: str | None = None
    prediction: str | None = None  # what the model says in its place, where that is not simply its answer
    reach: int = -1  # the last token at which the contrast is read, where that is not where the target is

    @property
    def last_readout(self) -> int:
        """−1 if it is read at no token."""
        return max(self.reach, *(r for term in self.terms for r in term.readouts), -1)

    def joint(self) -> Term:
        """All terms as one scalar."""
        first = self.terms[0]
        if len(self.terms) == 1:
            return first
        contrasts = [c for t in self.terms for c in t.contrasts or ()]
        shares = None
        if any(t.shares is not None for t in self.terms):
            each = [(1.0,) * len(t.readouts) if t.shares is None else t.shares for t in self.terms]
            shares = tuple(share for own in each for share in own)
        return Term(
            tuple(p for t in self.terms for p in t.places),
            tuple(i for t in self.terms for i in t.indices),
            tuple(r for t in self.terms for r in t.readouts),
            tuple(contrasts) if contrasts else None,
            first.of,
            shares,
        )


class Task(Protocol):
    """What the engine asks of a task. Logits are (batch, places, options) throughout: a classifier has one place, a
    question two (start and end), a language model one per token that is asked about."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the targets in the order of the logits; empty where they are words or positions."""

    @property
    def encoder(self) -> Encoder: ...

    def ask(self, target: Any, contrast: Any, continuation: Any, place: Any) -> Ask:
        """Check what is asked of one input; errors name what can be asked."""

    def encode(self, items: Sequence[Any], asks: Sequence[Ask], on_long: str) -> list[tuple[Encoded, ...]]:
        """One row per input; several where a long input is read in windows, of which `choose` takes one."""

    def choose(self, windows: Sequence[Encoded], logits: Sequence[Tensor]) -> int:
        """The window that answers best. logits: one (places, options) per window."""

    def logits(self, output: Any, batch: Batch) -> Tensor:
        """(batch, places, options) the raw scores the model answers with."""

    def log_probabilities(self, logits: Tensor) -> Tensor | None:
        """(batch, places, options), or None where the model gives no probabilities (regression)."""

    def targets(self, rows: Sequence[Encoded], asks: Sequence[Ask], logits: Tensor) -> list[list[Target]]:
        """What to explain of each row, now that the model has answered: one Target, or several where `ask.many`."""

    def answers(self, rows: Sequence[Encoded], logits: Tensor, log_probabilities: Tensor | None) -> list[Prediction]:
        """What the model says of each row."""


def keeps(task: object, own: type, *names: str) -> bool:
    """Whether a task has these methods from `own`: one built on it that explains something else must not inherit shortcuts."""
    return all(getattr(type(task), name) is getattr(own, name) for name in names)


def task_of(config: PretrainedConfig, class_name: str | None = None, task: str | None = None) -> str:
    """The task's name: as given, else told from the model's class or the checkpoint's `architectures`."""
    if task is not None:
        task = ALIASES.get(task, task)
        if task not in TASKS:
            raise UnknownName("task", task, (*TASKS, *ALIASES))
        if task == "causal-lm":
            check_one_part(config, class_name)
        return task
    names: Sequence[str] = [class_name] if class_name else (getattr(config, "architectures", None) or [])
    for architecture in names:
        for name, suffix in TASKS.items():
            if architecture.endswith(suffix) or (name == "causal-lm" and architecture.endswith(CAUSAL_NAMES)):
                return name
    check_one_part(config, class_name)
    raise InputError(
        f"cannot tell the task from {list(names) or 'the config (it names no architecture)'}; "
        f"pass task= one of: {', '.join(TASKS)}."
    )


def check_one_part(config: PretrainedConfig, class_name: str | None) -> None:
    """Refuse a model that has an encoder and a decoder; their classifiers, which say in their name what they are, never come here."""
    if getattr(config, "is_encoder_decoder", False):
        name = class_name or next(iter(getattr(config, "architectures", None) or []), config.model_type)
        raise NotSupported(
            f"{name} has an encoder and a decoder, and writes in answer to what its encoder read, so it is no causal language model: "
            "encoder–decoder models come with a later version; until then load a decoder-only model."
        )


def refuse(task: str, **given: Any) -> None:
    """Keywords that mean nothing for this task are an error, never silently dropped."""
    uses = {
        "continuation": "explains a continuation of causal language models (task='causal-lm')",
        "place": "says which [MASK] (masked-lm) or which word (token-classification) is meant",
    }
    for name, value in given.items():
        if value is not None:
            raise InputError(f"{name}= {uses[name]}; this is a {task} model.")


def with_contrast(target: Any, contrast: Any) -> tuple[Any, Any]:
    """contrast=b goes with the target; contrast=(a, b) names both: why a rather than b."""
    if isinstance(contrast, (tuple, list)):
        if len(contrast) != 2:
            raise InputError(f"contrast= takes one target or a pair (this, instead of that), got {len(contrast)}.")
        if target is not None:
            raise InputError("contrast=(this, that) names the target itself: leave target= out, or give contrast=that.")
        return contrast[0], contrast[1]
    return target, contrast
