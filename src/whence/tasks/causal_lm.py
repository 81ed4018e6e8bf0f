"""Causal language models: y is the logit of the next token, or the log-probability of a continuation."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from whence.errors import InputError, Truncated, reading
from whence.inputs import Batch, Encoded, Encoder, check_unicode, tokenize, where
from whence.tasks.base import Prediction, Question, Task
from whence.tasks.chat import chat_text
from whence.tasks.scalar import PREDICTED, Target, Term
from whence.tasks.vocabulary import Vocabulary, at_places, log_softmax

Ids = tuple[int, ...]


@dataclass(frozen=True)
class CausalLM(Task):
    """Which tokens of the prompt made the model write what follows.

    A continuation is read in the same forward as the prompt (segment 1); by causality no score reaches past the token
    that is explained.
    """

    encoder: Encoder
    vocabulary: Vocabulary
    name: str = "causal-lm"
    labels: tuple[str, ...] = ()
    reads_places_only: ClassVar[bool] = True

    def ask(self, target: Any, contrast: Any, continuation: Any, place: Any) -> Question:
        pair = isinstance(contrast, (tuple, list)) and len(contrast) == 2
        if pair and not (
            continuation is not None and all(isinstance(i, int) for i in contrast)
        ):  # but ids, of two tokens
            if target is not None or continuation is not None:
                raise InputError(
                    "contrast=(this, that) names the continuation itself: leave target= and continuation= out."
                )
            continuation, contrast = contrast
        if continuation is None:
            if place is not None:
                raise InputError("place= says which token of the continuation is meant: give continuation= too.")
            ids = None if target is None else self.vocabulary.id_of(target)
            return Question(ids, None if contrast is None else self.vocabulary.id_of(contrast, "contrast"))
        if target is not None:
            raise InputError(
                "a continuation is its own target: give target= (the next token) or continuation=, not both."
            )
        tokens = self._continuation(continuation, "continuation")
        if place is not None and place != "all" and (isinstance(place, bool) or not isinstance(place, int)):
            raise InputError(
                f"place={place!r}: say which token of the continuation by its number, 0 is the first, or 'all'."
            )
        if isinstance(place, int) and not 0 <= place < len(tokens):
            raise InputError(
                f"place={place}, but the continuation has {len(tokens)} tokens: give 0 to {len(tokens) - 1}."
            )
        against = None if contrast is None else self._continuation(contrast, "contrast")
        if against is not None:
            if place is not None:
                raise InputError(
                    "contrast= is explained at the token where the two continuations part: leave place= out."
                )
            place = parting(tokens, against)
        return Question(tokens, against, continuation, place, many=place == "all")

    def _continuation(self, given: Any, what: str) -> Ids:
        """Text, or a tuple of token ids."""
        if isinstance(given, str) and given:
            check_unicode(given, f"{what}: ")
            if self.encoder.tokenizer is None:
                raise InputError(f"this model has no tokenizer: give {what}= as a tuple of token ids.")
            with reading(f"{what}: "):
                ids = tokenize(self.encoder.tokenizer, given, add_special_tokens=False)["input_ids"]
            return tuple(int(i) for i in ids)
        if isinstance(given, tuple) and given:
            return tuple(self.vocabulary.id_of(i, what) for i in given)
        raise InputError(f"{what}= takes a text that is not empty, or a tuple of token ids, got {given!r}.")

    def encode(self, items: Sequence[Any], questions: Sequence[Question], on_long: str) -> list[tuple[Encoded, ...]]:
        rows = [
            self._row(item, question, where(i, len(items)), on_long)
            for i, (item, question) in enumerate(zip(items, questions, strict=True))
        ]
        if any(row.truncated for row in rows):
            cut = sum(row.truncated for row in rows)
            warnings.warn(
                f"{cut} of {len(rows)} prompts were longer than the {self.encoder.max_length} tokens this model reads and "
                "lost their beginning; Explanation.truncated marks them (on_long='error' refuses them instead).",
                Truncated,
                stacklevel=5,
            )
        return [(row,) for row in rows]

    def _row(self, item: Any, question: Question, at: str, on_long: str) -> Encoded:
        prompt = self._prompt(item, at)
        tokens = question.target if isinstance(question.target, tuple) else ()
        row = self._joined(prompt, tokens, question.continuation)
        if len(row) > self.encoder.max_length:
            if on_long == "error":
                raise InputError(
                    f"{at}{len(row)} tokens, but the model reads at most {self.encoder.max_length}: shorten the prompt or "
                    "allow on_long='truncate'."
                )
            frame = next((i for i, s in enumerate(row.special) if not s), 0)  # special tokens that open the prompt stay
            gone = len(row) - self.encoder.max_length
            row = replace(row.select([*range(frame), *range(frame + gone, len(row))]), truncated=True)
        last = len(row) - len(tokens) - 1
        if last < 0:
            raise InputError(f"{at}the continuation alone is longer than the model reads.")
        places = tuple(range(last, len(row) - 1)) if tokens else (last,)
        return replace(row, places=places, fixed=tuple(range(last + 1, len(row))))

    def _prompt(self, item: Any, at: str) -> Encoded:
        if isinstance(item, Mapping) and "messages" in item:
            return self._chat(item, at)
        if isinstance(item, Mapping):
            return without_padding(self.encoder.encode_one(item, at, "error"))
        if not isinstance(item, str):
            raise InputError(
                f"{at}expected a prompt: a text, {{'messages': […]}} or {{'input_ids': […]}}, got {type(item).__name__}."
            )
        row = self.encoder.encode_text(item, None, at, "keep")
        end = getattr(self.encoder.tokenizer, "eos_token_id", None)
        if end is not None and len(row) > 1 and row.input_ids[-1] == end and row.offsets[-1][0] == row.offsets[-1][1]:
            row = row.select(range(len(row) - 1))  # some tokenizers end every text; a prompt goes on
        return row

    def _chat(self, item: Mapping[str, Any], at: str) -> Encoded:
        """Messages through the tokenizer's chat template, up to where the model goes on."""
        tokenizer: Any = self.encoder.tokenizer
        text = chat_text(tokenizer, item, at)
        row = self.encoder.encode_text(text, None, at, "keep", framed=False)
        frame = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id, tokenizer.mask_token_id}
        special = tuple(s or i in frame for s, i in zip(row.special, row.input_ids, strict=True))
        return replace(row, special=special)

    def _joined(self, prompt: Encoded, tokens: Ids, text: str | None) -> Encoded:
        """Prompt and continuation in one row."""
        if not tokens:
            return prompt
        if isinstance(text, str):
            after = self.encoder.encode_text(text, None, "the continuation: ", "keep", framed=False)
        else:
            after = self._decoded(tokens)
        words = max((w for w in prompt.word_ids if w is not None), default=-1) + 1
        mask = prompt.attention_mask and (*prompt.attention_mask, *[1] * len(after))
        return replace(
            prompt,
            input_ids=prompt.input_ids + after.input_ids,
            tokens=prompt.tokens + after.tokens,
            special=prompt.special + after.special,
            offsets=prompt.offsets + after.offsets,
            word_ids=prompt.word_ids + tuple(None if w is None else w + words for w in after.word_ids),
            segments=prompt.segments + tuple(None if s is None else 1 for s in after.segments),
            token_type_ids=prompt.token_type_ids and (*prompt.token_type_ids, *[0] * len(after)),
            attention_mask=mask,
            pair=after.text,
        )

    def _decoded(self, tokens: Ids) -> Encoded:
        """A row of generated ids, with the text that they spell."""
        row = self.encoder.from_ids(np.array(tokens, np.int64))
        if self.encoder.tokenizer is None:
            return row
        tokenizer: Any = self.encoder.tokenizer
        ends = [len(tokenizer.decode(list(tokens[:k]))) for k in range(len(tokens) + 1)]
        return replace(row, text=tokenizer.decode(list(tokens)), offsets=tuple(pairwise(ends)))

    def logits(self, output: Any, batch: Batch) -> Tensor:
        return at_places(output, batch)

    def log_probabilities(self, logits: Tensor) -> Tensor | None:
        return log_softmax(logits)

    def targets(self, rows: Sequence[Encoded], questions: Sequence[Question], logits: Tensor) -> list[list[Target]]:
        predicted = logits.argmax(-1).tolist()  # (b, places)
        pairs = zip(rows, questions, predicted, strict=True)
        return [
            self._of_continuation(row, question, best)
            if isinstance(question.target, tuple)
            else [self._next_token(row, question, best[0])]
            for row, question, best in pairs
        ]

    def early_terms(
        self, rows: Sequence[Encoded], questions: Sequence[Question]
    ) -> list[list[tuple[Term, ...]]] | None:
        """The terms of `targets`, without waiting for the model to say which token it would write."""
        pairs = zip(rows, questions, strict=True)
        return [[(term,) for term in self._terms(row, question)] for row, question in pairs]

    def _terms(self, row: Encoded, question: Question, best: int = PREDICTED) -> list[Term]:
        """One for each target. best: what the model would write after the prompt."""
        tokens = question.target
        if not isinstance(tokens, tuple):
            index, against = best if tokens is None else tokens, question.contrast
            return [Term((0,), (index,), row.places[:1], None if against is None else (against,))]
        if question.place is None:
            return [Term(tuple(range(len(tokens))), tokens, row.places, of="log-probability")]
        chosen = range(len(tokens)) if question.many else [int(question.place)]
        others: Ids | None = question.contrast
        return [Term((k,), (tokens[k],), (row.places[k],), None if others is None else (others[k],)) for k in chosen]

    def _next_token(self, row: Encoded, question: Question, best: int) -> Target:
        terms, word = tuple(self._terms(row, question, best)), self.vocabulary.word
        index, against = terms[0].indices[0], question.contrast
        if index == against:
            raise InputError(f"contrast={word(index)!r} is the target itself: name another token.")
        return Target(word(index), index, terms, None if against is None else word(against), word(best))

    def _of_continuation(self, row: Encoded, question: Question, best: list[int]) -> list[Target]:
        """The whole continuation, or its tokens one by one. best: what the model would write at each place."""
        tokens: Ids = question.target
        terms, word = self._terms(row, question), self.vocabulary.word
        label = question.continuation if isinstance(question.continuation, str) else self.vocabulary.text(tokens)
        if question.place is None:
            instead = tuple(best[: len(tokens)])
            said = label if tokens == instead else self.vocabulary.text(instead)
            return [Target(label, tokens[0], tuple(terms), prediction=said)]
        if question.contrast is not None:
            k, against = int(question.place), self.vocabulary.text(question.contrast)
            said = label if best[k] == tokens[k] else word(best[k])
            return [Target(label, tokens[k], tuple(terms), against, said)]
        return [
            Target(word(tokens[k]), tokens[k], (term,), prediction=word(best[k])) for term in terms for k in term.places
        ]

    def answers(self, rows: Sequence[Encoded], logits: Tensor, log_probabilities: Tensor | None) -> list[Prediction]:
        """The next token after the prompt."""
        assert log_probabilities is not None
        alternatives = self.vocabulary.alternatives(log_probabilities[:, 0])
        best = log_probabilities[:, 0].max(-1)
        pairs = zip(best.indices.tolist(), best.values.exp().tolist(), alternatives, strict=True)
        return [Prediction(self.vocabulary.word(i), i, p, alternatives=more) for i, p, more in pairs]


def parting(this: Ids, that: Ids) -> int:
    """Where two continuations part.

    >>> parting((5, 6, 7), (5, 8))
    1
    """
    for k, (a, b) in enumerate(zip(this, that, strict=False)):
        if a != b:
            return k
    raise InputError("the contrast begins with the whole continuation (or the other way round): they never part.")


def without_padding(row: Encoded) -> Encoded:
    """A row that came padded, on either side, without what its mask hides there: text goes on after its last real token."""
    mask = row.attention_mask
    if mask is None:
        return row
    seen = [i for i, bit in enumerate(mask) if bit]
    row = row.select(range(seen[0], seen[-1] + 1))
    return replace(row, attention_mask=None if all(row.attention_mask or ()) else row.attention_mask, padding=None)
