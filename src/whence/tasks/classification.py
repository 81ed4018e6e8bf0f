"""Sequence classification, single texts and pairs: y is the target's logit, read at [CLS], at the last real token or at all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from whence.errors import InputError
from whence.inputs import Batch, Encoded, Encoder
from whence.tasks.base import Prediction, Question, Task, refuse, with_contrast
from whence.tasks.named import label_index
from whence.tasks.scalar import PREDICTED, Target, Term


@dataclass(frozen=True)
class SequenceClassification(Task):
    """One label per text (softmax), several (sigmoid) or a number (regression), by the config's `problem_type`."""

    encoder: Encoder
    labels: tuple[str, ...]
    causal: bool  # a decoder, as its head's name says: believed where nobody could try where the model answers
    pad_id: int | None = None
    problem_type: str | None = None
    name: str = "sequence-classification"
    # where the model answers: "first", "last", "every" or "elsewhere" (`models.reads`), and whether padding is told by its id alone
    where: Callable[[], tuple[str | None, bool]] | None = field(default=None, compare=False, repr=False)

    def ask(self, target: Any, contrast: Any, continuation: Any, place: Any) -> Question:
        if continuation is not None or place is not None:
            refuse(self.name, continuation=continuation, place=place)
        if isinstance(contrast, (tuple, list)):
            target, contrast = with_contrast(target, contrast)
        many = isinstance(target, str) and target == "all" and "all" not in self.labels
        index = None if target is None or many else label_index(target, self.labels)
        against = None if contrast is None else label_index(contrast, self.labels, "contrast")
        if against is not None and index == against:
            raise InputError(f"contrast={contrast!r} is the target itself: name another label.")
        return Question(index, against, many=many)

    def encode(self, items: Sequence[Any], questions: Sequence[Question], on_long: str) -> list[tuple[Encoded, ...]]:
        rows = self.encoder.encode(items, on_long)
        return [(row if row.padding is None else self._read_where_hidden(row),) for row in rows]

    def _read_where_hidden(self, row: Encoded) -> Encoded:
        """A token at which the model answers is none of the row's padding (`inputs.padding`)."""
        assert row.padding is not None
        readouts = self._readouts(row)
        if not any(row.padding[i] for i in readouts):
            return row
        padding = tuple(mark and i not in readouts for i, mark in enumerate(row.padding))
        hidden = {i for i in readouts if row.padding[i] and row.input_ids[i] not in self.encoder.special_ids}
        special = tuple(mark and i not in hidden for i, mark in enumerate(row.special))
        return replace(row, padding=padding if any(padding) else None, special=special)

    def logits(self, output: Any, batch: Batch) -> Tensor:
        logits: Tensor = output.logits
        return logits[:, None]

    def log_probabilities(self, logits: Tensor) -> Tensor | None:
        if self.problem_type == "multi_label_classification":
            return F.logsigmoid(logits)
        if self.problem_type == "regression" or logits.shape[-1] == 1:
            return None
        return F.log_softmax(logits, dim=-1)

    def targets(self, rows: Sequence[Encoded], questions: Sequence[Question], logits: Tensor) -> list[list[Target]]:
        predicted = logits[:, 0].argmax(-1).tolist()
        targets = []
        for row, question, best in zip(rows, questions, predicted, strict=True):
            first = best if question.target is None else question.target
            indices = range(len(self.labels)) if question.many else [first]
            targets.append(
                [self._target(row, index, question.contrast) for index in indices if index != question.contrast]
            )
            if not targets[-1]:
                raise InputError(
                    f"the model predicts {self.labels[best]!r}, which is the contrast itself: name the target= too."
                )
        return targets

    def early_terms(
        self, rows: Sequence[Encoded], questions: Sequence[Question]
    ) -> list[list[tuple[Term, ...]]] | None:
        """The terms of `targets`, without waiting for the model to say which class it predicts."""
        terms: list[list[tuple[Term, ...]]] = []
        for row, question in zip(rows, questions, strict=True):
            first = PREDICTED if question.target is None else question.target
            indices = range(len(self.labels)) if question.many else [first]
            at = self._readouts(row)
            terms.append(
                [(label_term(index, question.contrast, at),) for index in indices if index != question.contrast]
            )
        return terms

    def _target(self, row: Encoded, index: int, contrast: int | None) -> Target:
        against = None if contrast is None else (contrast, self.labels[contrast])
        return label_target(index, self.labels[index], against, self._readouts(row))

    def _readouts(self, row: Encoded) -> tuple[int, ...]:
        """The token at which the model answers; several where it reads their mean, and none where it is neither."""
        at, by_id = (None, True) if self.where is None else self.where()
        at = ("last" if self.causal else "first") if at is None else at
        if at == "every":
            mask = row.attention_mask
            return tuple(i for i in range(len(row)) if mask is None or mask[i])
        if at != "last":
            return (0,) if at == "first" else ()
        if not by_id:
            return (len(row) - 1,)
        # Hugging Face's decoders read the rightmost token that is not padding, and tell padding by its id alone
        if self.pad_id is None and row.padding is not None:  # which is lent, and given to the row's padding
            return (int(row.real.nonzero()[0][-1]),)
        return (next((i for i in reversed(range(len(row))) if row.input_ids[i] != self.pad_id), 0),)

    def answers(self, rows: Sequence[Encoded], logits: Tensor, log_probabilities: Tensor | None) -> list[Prediction]:
        values = logits if log_probabilities is None else log_probabilities.exp()
        predictions = []
        for row in values[:, 0].tolist():
            best = max(range(len(row)), key=row.__getitem__)
            probability = None if log_probabilities is None else row[best]
            predictions.append(Prediction(self.labels[best], best, probability, tuple(row)))
        return predictions


@lru_cache(4096)  # rows of a batch have few different targets
def label_target(index: int, label: str, against: tuple[int, str] | None, readouts: tuple[int, ...]) -> Target:
    """A label, rather than another if that is given."""
    contrast, name = against or (None, None)
    return Target(label, index, (label_term(index, contrast, readouts),), name)


@lru_cache(4096)
def label_term(index: int, contrast: int | None, readouts: tuple[int, ...]) -> Term:
    """readouts: one token, several of which the mean is read, or none."""
    against = None if contrast is None else (contrast,)
    shares = None if len(readouts) == 1 else tuple(1 / len(readouts) for _ in readouts)
    return Term((0,), (index,), readouts, against, shares=shares)
