"""Token classification: y is the logit of a label at one token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from whence.errors import InputError, UnknownName
from whence.inputs import Batch, Encoded, Encoder
from whence.tasks.base import Prediction, Question, Task, refuse, with_contrast
from whence.tasks.named import label_index
from whence.tasks.scalar import Target, Term

OUTSIDE = "O"  # the label of words that are nothing in particular


@dataclass(frozen=True)
class TokenClassification(Task):
    """Why does this word get this label? A word is labelled at its first piece. place= says which word; without it, the
    word that the model is surest to be something (not `O`)."""

    encoder: Encoder
    labels: tuple[str, ...]
    name: str = "token-classification"

    def ask(self, target: Any, contrast: Any, continuation: Any, place: Any) -> Question:
        refuse(self.name, continuation=continuation)
        target, contrast = with_contrast(target, contrast)
        many = isinstance(target, str) and target == "all" and "all" not in self.labels
        index = None if target is None or many else label_index(target, self.labels)
        against = None if contrast is None else label_index(contrast, self.labels, "contrast")
        if place is not None and (isinstance(place, bool) or not isinstance(place, (int, str))):
            raise InputError(f"place= takes a token's position or a word, got {type(place).__name__}.")
        return Question(index, against, place=place, many=many)

    def encode(self, items: Sequence[Any], questions: Sequence[Question], on_long: str) -> list[tuple[Encoded, ...]]:
        return [(row,) for row in self.encoder.encode(items, on_long)]

    def logits(self, output: Any, batch: Batch) -> Tensor:
        """(b, n, labels): every token is a place."""
        logits: Tensor = output.logits
        return logits

    def log_probabilities(self, logits: Tensor) -> Tensor | None:
        return F.log_softmax(logits, dim=-1)

    def targets(self, rows: Sequence[Encoded], questions: Sequence[Question], logits: Tensor) -> list[list[Target]]:
        chances = logits.softmax(-1).cpu()
        found = []
        for row, question, p in zip(rows, questions, chances, strict=True):
            at = self._position(row, question.place, p)
            wanted = (
                range(len(self.labels))
                if question.many
                else [int(p[at].argmax()) if question.target is None else question.target]
            )
            own = [self._target(at, index, question.contrast) for index in wanted if index != question.contrast]
            if not own:
                raise InputError("the contrast is the target itself: name another label.")
            found.append(own)
        return found

    def _target(self, at: int, index: int, contrast: int | None) -> Target:
        term = Term((at,), (index,), (at,), None if contrast is None else (contrast,))
        return Target(self.labels[index], index, (term,), None if contrast is None else self.labels[contrast])

    def _position(self, row: Encoded, place: int | str | None, p: Tensor) -> int:
        """Which token is explained. p: (n, labels)"""
        if isinstance(place, int):
            if not 0 <= place < len(row):
                raise InputError(f"place={place}, but the text has {len(row)} tokens: give 0 to {len(row) - 1}.")
            if not row.real[place]:
                raise InputError(
                    f"place={place} is padding, which has no label: give the position of a token of the text."
                )
            return place
        first = words_of(row)
        if place is not None:
            for at, word in first:
                if word == place:
                    return at
            raise UnknownName("word", place, [word for _, word in first])
        other = [i for i, label in enumerate(self.labels) if label != OUTSIDE] or list(range(len(self.labels)))
        return max((at for at, _ in first), key=lambda at: float(p[at, other].max()))

    def answers(self, rows: Sequence[Encoded], logits: Tensor, log_probabilities: Tensor | None) -> list[Prediction]:
        """Every word's label; `label` is that of the word the model is surest of."""
        chances = logits.softmax(-1).cpu()
        found = []
        for row, p in zip(rows, chances, strict=True):
            at = self._position(row, None, p)
            best = int(p[at].argmax())
            words = tuple((word, self.labels[int(p[i].argmax())], float(p[i].max())) for i, word in words_of(row))
            found.append(Prediction(self.labels[best], best, float(p[at, best]), words=words))
        return found


def words_of(row: Encoded) -> list[tuple[int, str]]:
    """The first token and the text of every word."""
    pieces: dict[int, list[int]] = {}
    for i, number in enumerate(row.word_ids):
        if number is not None and not row.special[i]:
            pieces.setdefault(number, []).append(i)
    found = []
    for tokens in pieces.values():
        source = row.pair if row.segments[tokens[0]] == 1 else row.text
        start, end = row.offsets[tokens[0]][0], row.offsets[tokens[-1]][1]
        text = (
            source[start:end].strip() if source is not None and end > start else "".join(row.tokens[i] for i in tokens)
        )
        found.append((tokens[0], text))
    return found
