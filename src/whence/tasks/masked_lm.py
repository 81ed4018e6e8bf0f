"""Masked language models: y is the logit of a word at [MASK], or the difference of two words' logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Any, ClassVar

from torch import Tensor

from whence.errors import InputError
from whence.inputs import Batch, Encoded, Encoder, where
from whence.tasks.base import Prediction, Question, Task, refuse, with_contrast
from whence.tasks.scalar import PREDICTED, Target, Term
from whence.tasks.vocabulary import Vocabulary, at_places, log_softmax

MASK = "[MASK]"  # what people write; models with another mask token get their own


@dataclass(frozen=True)
class MaskedLM(Task):
    """Which words made the model fill [MASK] so. Several masks are explained together, or apart with place=."""

    encoder: Encoder
    vocabulary: Vocabulary
    name: str = "masked-lm"
    labels: tuple[str, ...] = ()
    reads_places_only: ClassVar[bool] = True

    def ask(self, target: Any, contrast: Any, continuation: Any, place: Any) -> Question:
        refuse(self.name, continuation=continuation)
        if not isinstance(target, tuple):  # a tuple has a word for each mask, and so has its contrast
            target, contrast = with_contrast(target, contrast)
        if place is not None and place != "all" and (isinstance(place, bool) or not isinstance(place, int)):
            raise InputError(
                f"place={place!r}: say which {MASK} by its number, 0 is the first, or 'all' for each apart."
            )
        return Question(self._ids(target, "target"), self._ids(contrast, "contrast"), place=place, many=place == "all")

    def _ids(self, given: Any, what: str) -> tuple[int, ...] | None:
        """One id, or with a tuple one per mask."""
        if given is None:
            return None
        words = given if isinstance(given, tuple) else (given,)
        return tuple(self.vocabulary.id_of(word, what) for word in words)

    def encode(self, items: Sequence[Any], questions: Sequence[Question], on_long: str) -> list[tuple[Encoded, ...]]:
        rows = self.encoder.encode([self._own_mask(item) for item in items], on_long)
        return [
            (self._masked(row, question, where(i, len(rows))),)
            for i, (row, question) in enumerate(zip(rows, questions, strict=True))
        ]

    def _own_mask(self, item: Any) -> Any:
        token = getattr(self.encoder.tokenizer, "mask_token", None)
        if token is None or token == MASK:
            return item
        if isinstance(item, str):
            return item.replace(MASK, token)
        return tuple(self._own_mask(part) for part in item) if isinstance(item, tuple) else item

    def _masked(self, row: Encoded, question: Question, at: str) -> Encoded:
        """The row with its masks marked: they are the question, so they count as special."""
        mask = getattr(self.encoder.tokenizer, "mask_token_id", None)
        if mask is None:
            raise InputError(
                f"{at}masks cannot be found without a tokenizer that has a mask token: whence.load(model, tokenizer)."
            )
        found = [i for i, token in enumerate(row.input_ids) if token == mask and row.real[i]]
        if not found:
            cut = " in what is left after cutting it to what the model reads" if row.truncated else ""
            raise InputError(
                f"{at}there is no {MASK} in the text{cut}: write {MASK} where the model should fill in a word."
            )
        if isinstance(question.place, int):
            if not 0 <= question.place < len(found):
                raise InputError(
                    f"{at}place={question.place}, but the text has {len(found)} {MASK}: give 0 to {len(found) - 1}."
                )
            found = [found[question.place]]
        special = tuple(s or i in found for i, s in enumerate(row.special))
        if all(special):
            raise InputError(f"{at}there is nothing but {MASK} in the text: nothing can be explained.")
        words = tuple(None if i in found else w for i, w in enumerate(row.word_ids))
        return replace(row, special=special, word_ids=words, places=tuple(found))

    def logits(self, output: Any, batch: Batch) -> Tensor:
        return at_places(output, batch)

    def log_probabilities(self, logits: Tensor) -> Tensor | None:
        return log_softmax(logits)

    def targets(self, rows: Sequence[Encoded], questions: Sequence[Question], logits: Tensor) -> list[list[Target]]:
        predicted = logits.argmax(-1).tolist()  # (b, places)
        found = []
        for row, question, best in zip(rows, questions, predicted, strict=True):
            said = self._spelled(best[: len(row.places)])
            found.append([self._target(terms, said) for terms in self._terms(row, question, best)])
        return found

    def early_terms(
        self, rows: Sequence[Encoded], questions: Sequence[Question]
    ) -> list[list[tuple[Term, ...]]] | None:
        """The terms of `targets`, without waiting for the model to say which words it predicts."""
        return [
            self._terms(row, question, [PREDICTED] * len(row.places))
            for row, question in zip(rows, questions, strict=True)
        ]

    def _terms(self, row: Encoded, question: Question, best: Sequence[int]) -> list[tuple[Term, ...]]:
        """One for each mask: together of one target, or each of a target of its own. best: what the model predicts at each."""
        count = len(row.places)
        chosen = best if question.target is None else self._per_mask(question.target, count, "target")
        against = None if question.contrast is None else self._per_mask(question.contrast, count, "contrast")
        if against is not None and tuple(chosen) == against:
            raise InputError(f"contrast={self._spelled(against)!r} is the target itself: name another word.")
        terms = [
            Term((k,), (chosen[k],), (row.places[k],), None if against is None else (against[k],)) for k in range(count)
        ]
        return [(term,) for term in terms] if question.many else [tuple(terms)]

    def _target(self, terms: tuple[Term, ...], said: str) -> Target:
        chosen = [i for term in terms for i in term.indices]
        against = [i for term in terms for i in term.contrasts or ()]
        return Target(self._spelled(chosen), chosen[0], terms, self._spelled(against) if against else None, said)

    def _spelled(self, ids: Sequence[int]) -> str:
        return " ".join(map(self.vocabulary.word, ids))

    def _per_mask(self, ids: tuple[int, ...], count: int, what: str) -> tuple[int, ...]:
        if len(ids) != count:
            raise InputError(
                f"{len(ids)} word{'s' * (len(ids) > 1)} as {what} for {count} {MASK}: give a tuple with one word per mask, or "
                "place= the number of the one you mean."
            )
        return ids

    def answers(self, rows: Sequence[Encoded], logits: Tensor, log_probabilities: Tensor | None) -> list[Prediction]:
        """The words at all masks; alternatives are those of the first."""
        assert log_probabilities is not None
        best = log_probabilities.max(-1)
        values, indices = best.values.tolist(), best.indices.tolist()
        alternatives = self.vocabulary.alternatives(log_probabilities[:, 0])
        found = []
        for i, row in enumerate(rows):
            count = len(row.places)
            chance = float(sum(values[i][:count]))
            found.append(
                Prediction(self._spelled(indices[i][:count]), indices[i][0], exp(chance), alternatives=alternatives[i])
            )
        return found
