"""The task: what is asked of a model and what it answers; and how a model's task is told from its class name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor
from transformers import PretrainedConfig

from whence.errors import InputError, NotSupported, UnknownName
from whence.inputs import Batch, Encoded, Encoder
from whence.tasks.scalar import Target, Term

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
class Question:
    """What the caller wants explained of one input, checked as far as it can be before the model has run."""

    target: Any = None  # None: what the model predicts
    contrast: Any = None  # explain the target *rather than* this
    continuation: str | None = None  # causal LM: the text whose probability is explained
    place: int | str | None = None  # which [MASK], or which token or word
    many: bool = False  # one Explanation per target
    answer: str | None = None  # question answering: the answer that a pair (this, instead of that) names


class Task(ABC):
    """What is explained of a model's answer, and where that answer is read.

    Logits are (batch, places, options) throughout: a classifier has one place, a question two (start and end), a language model one
    per token that is asked about. A task of your own subclasses this or one of whence's tasks; what it must define is abstract, what it
    may define has a default.
    """

    name: str
    labels: tuple[
        str, ...
    ]  # the names of the targets in the order of the logits; empty where they are words or positions
    encoder: Encoder
    reads_places_only: ClassVar[bool] = (
        False  # `logits` reads none but those at the batch's places, so the model's head may run there alone
    )

    def __init_subclass__(cls) -> None:
        """Shortcuts are not inherited: a subclass may explain something else than what they rest on. It states its own."""
        cls.reads_places_only = vars(cls).get("reads_places_only", False)
        if "early_terms" not in vars(cls):
            cls.early_terms = Task.early_terms  # type: ignore[method-assign]

    @abstractmethod
    def ask(self, target: Any, contrast: Any, continuation: Any, place: Any) -> Question:
        """What is asked of one input, checked as far as it can be before the model has run; errors name what can be asked."""

    @abstractmethod
    def encode(self, items: Sequence[Any], questions: Sequence[Question], on_long: str) -> list[tuple[Encoded, ...]]:
        """One row per input; several where a long input is read in windows, of which `choose` takes one."""

    def choose(self, windows: Sequence[Encoded], logits: Sequence[Tensor]) -> int:
        """The number of the window that answers best. logits: one (places, options) per window."""
        return 0

    @abstractmethod
    def logits(self, output: Any, batch: Batch) -> Tensor:
        """The raw scores the model answers with, (batch, places, options), from its output."""

    @abstractmethod
    def log_probabilities(self, logits: Tensor) -> Tensor | None:
        """(batch, places, options), or None where the model gives no probabilities (regression)."""

    @abstractmethod
    def targets(self, rows: Sequence[Encoded], questions: Sequence[Question], logits: Tensor) -> list[list[Target]]:
        """What to explain of each row, now that the model has answered: one Target, or several where `question.many`."""

    def early_terms(
        self, rows: Sequence[Encoded], questions: Sequence[Question]
    ) -> list[list[tuple[Term, ...]]] | None:
        """The terms of `targets`, with PREDICTED for an option that only the model can say, where they can be named before it has
        answered: then nobody waits between forward and backward. None where they cannot."""
        return None

    @abstractmethod
    def answers(self, rows: Sequence[Encoded], logits: Tensor, log_probabilities: Tensor | None) -> list[Prediction]:
        """What the model says of each row."""


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
