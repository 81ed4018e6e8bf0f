"""The task protocol, and how a model's task is told from its class name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor
from transformers import PretrainedConfig

from whence.errors import InputError, NotSupported, UnknownName
from whence.inputs import Batch

# task name → suffix of the Hugging Face architecture that serves it
TASKS = {
    "sequence-classification": "ForSequenceClassification",
    "question-answering": "ForQuestionAnswering",
    "masked-lm": "ForMaskedLM",
    "causal-lm": "ForCausalLM",
    "token-classification": "ForTokenClassification",
}
CAUSAL_NAMES = ("LMHeadModel", "ForCausalLM")


class Task(Protocol):
    """What the engine asks of a task."""

    @property
    def name(self) -> str: ...

    def labels(self, config: PretrainedConfig) -> tuple[str, ...]:
        """The names of the targets, in the order of the logits."""

    def readout(self, batch: Batch, config: PretrainedConfig) -> Tensor:
        """(batch,) the position at which each row's answer is read."""

    def logits(self, output: Any, batch: Batch) -> Tensor:
        """(batch, target) the raw scores the model answers with."""

    def log_probabilities(self, logits: Tensor, config: PretrainedConfig) -> Tensor | None:
        """(batch, target), or None where the model gives no probabilities (regression)."""


def task_of(config: PretrainedConfig, class_name: str | None = None, task: str | None = None) -> str:
    """The task's name: as given, else told from the model's class or the checkpoint's `architectures`."""
    if task is not None:
        if task not in TASKS:
            raise UnknownName("task", task, TASKS)
        return task
    names: Sequence[str] = [class_name] if class_name else (getattr(config, "architectures", None) or [])
    for architecture in names:
        for name, suffix in TASKS.items():
            if architecture.endswith(suffix) or (name == "causal-lm" and architecture.endswith(CAUSAL_NAMES)):
                return name
    raise InputError(
        f"cannot tell the task from {list(names) or 'the config (it names no architecture)'}; "
        f"pass task= one of: {', '.join(TASKS)}."
    )


@dataclass(frozen=True)
class Unexplained:
    """A task whose models load (as ordinary Hugging Face models) but cannot be explained yet: every question says so."""

    name: str

    def labels(self, config: PretrainedConfig) -> tuple[str, ...]:
        return ()

    def readout(self, batch: Batch, config: PretrainedConfig) -> Tensor:
        raise self._error()

    def logits(self, output: Any, batch: Batch) -> Tensor:
        raise self._error()

    def log_probabilities(self, logits: Tensor, config: PretrainedConfig) -> Tensor | None:
        raise self._error()

    def _error(self) -> NotSupported:
        return NotSupported(
            f"whence cannot explain the task {self.name!r} yet; it explains sequence-classification models, single texts and "
            "pairs. The loaded Hugging Face model is at .model."
        )
