"""Extractive question answering: y is the logit of the answer's first token as start, of its last as end, or both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from whence.errors import InputError, UnknownName
from whence.inputs import Batch, Encoded, Encoder, where
from whence.tasks.base import Prediction, Question, Task, refuse, with_contrast
from whence.tasks.scalar import Target, Term

START, END = 0, 1  # the two places of the logits
TARGETS = ("span", "start", "end", "no-answer")
NO_ANSWER = "no-answer"
MAX_ANSWER = 30  # tokens of a predicted answer
KEYS = ("question", "context", "answer", "answer_start")


@dataclass(frozen=True)
class QuestionAnswering(Task):
    """Which words made the model answer so.

    The target "span" (default) is explained as the papers do: the scores for the start plus the scores for the end, each
    read at its own token. Long contexts are read in overlapping windows, and the window that answers best is explained.
    Rows given as ids have no known context, so their predicted start and end are the two highest logits, whatever their
    order.
    """

    encoder: Encoder
    name: str = "question-answering"
    labels: tuple[str, ...] = TARGETS

    def ask(self, target: Any, contrast: Any, continuation: Any, place: Any) -> Question:
        refuse(self.name, continuation=continuation, place=place)
        answer = None
        if isinstance(contrast, tuple):
            answer, contrast = with_contrast(None, contrast)
        if answer in (NO_ANSWER, "unanswerable"):
            target, answer = with_contrast(target, (NO_ANSWER, None))
        target = "span" if target is None else NO_ANSWER if target == "unanswerable" else target
        many = target == "all"
        if not many and target not in TARGETS:
            if isinstance(target, str):
                raise UnknownName("target", target, (*TARGETS, "all"))
            raise InputError(f"target must be one of {', '.join(TARGETS)} or 'all', got {type(target).__name__}.")
        for text in (answer, contrast):
            if text is not None and not isinstance(text, str):
                raise InputError(
                    f"contrast= takes another answer (its text) or 'no-answer', or a pair of them, got {type(text).__name__}."
                )
        return Question(target, contrast, many=many, answer=answer)

    # ---- inputs ---------------------------------------------------------------------------------------------------

    def encode(self, items: Sequence[Any], questions: Sequence[Question], on_long: str) -> list[tuple[Encoded, ...]]:
        if on_long not in ("error", "truncate"):
            raise InputError(f"on_long={on_long!r}: choose 'truncate' (long contexts are read in windows) or 'error'.")
        pairs = enumerate(zip(items, questions, strict=True))
        return [self._windows(item, question.answer, where(i, len(items)), on_long) for i, (item, question) in pairs]

    def _windows(self, item: Any, named: str | None, at: str, on_long: str) -> tuple[Encoded, ...]:
        """named: the answer, if the contrast says which it is."""
        if isinstance(item, Mapping) and "input_ids" in item:
            if named is not None:
                raise InputError(f"{at}a row of ids has no text in which contrast=({named!r}, …) could be found.")
            given = {k: v for k, v in item.items() if k != "answer"}
            row = self.encoder.encode_one(given, at)
            return (replace(row, answer=token_span(item.get("answer"), len(row), at)),)
        question, context, answer = self._parts(item, at)
        if named is not None:
            if answer is not None:
                raise InputError(f"{at}contrast=(this, that) names the answer: leave 'answer' out of the input.")
            answer = self._parts({"question": question, "context": context, "answer": named}, at)[2]
        rows = self._read(question, context, at, on_long)
        if answer is None:
            return rows
        spans = [tokens_of(row, *answer) for row in rows]
        best = max(range(len(rows)), key=lambda i: margin(rows[i], spans[i]))
        if spans[best] is None:
            raise InputError(f"{at}the answer lies in no window of the context that this model reads whole.")
        return (replace(rows[best], answer=spans[best]),)

    def _parts(self, item: Any, at: str) -> tuple[str, str, tuple[int, int] | None]:
        """Question, context and the answer's characters [start, end) if one is given."""
        if isinstance(item, tuple) and len(item) == 2 and all(isinstance(part, str) for part in item):
            return item[0], item[1], None
        if not isinstance(item, Mapping) or not {"question", "context"} <= set(item):
            raise InputError(
                f"{at}a question needs its context: give {{'question': …, 'context': …}}, got {type(item).__name__}"
                + (f" with the keys {sorted(map(str, item))}." if isinstance(item, Mapping) else ".")
            )
        extra = sorted(set(map(str, item)) - set(KEYS))
        if extra:
            raise InputError(f"{at}unknown keys {extra}; allowed: {', '.join(KEYS)}.")
        question, context, answer = item["question"], item["context"], item.get("answer")
        for name, text in (("question", question), ("context", context)):
            if not isinstance(text, str) or not text.strip():
                raise InputError(
                    f"{at}the {name} is {'empty' if isinstance(text, str) else 'no text'}: give at least one word."
                )
        if answer is None:
            return question, context, None
        start = item.get("answer_start")
        start = context.find(answer) if start is None else int(start)
        if start < 0 or context[start : start + len(answer)] != answer or not answer:
            raise InputError(
                f"{at}the answer {answer!r} does not stand in the context" + (f" at {start}." if start >= 0 else ".")
            )
        return question, context, (start, start + len(answer))

    def _read(self, question: str, context: str, at: str, on_long: str) -> tuple[Encoded, ...]:
        """The whole context in one row, or in windows that overlap by a quarter."""
        limit = self.encoder.max_length
        row = self.encoder.encode_text(question, context, at, "keep")
        if len(row) <= limit:
            return (row,)
        if on_long == "error":
            raise InputError(
                f"{at}{len(row)} tokens, but the model reads at most {limit}: shorten the context, or allow on_long='truncate'."
            )
        inside = [i for i, s in enumerate(row.segments) if s == 1]
        room = limit - (len(row) - len(inside))
        if room < 8:
            raise InputError(
                f"{at}the question leaves no room for the context within the {limit} tokens this model reads: shorten it."
            )
        step = max(1, room - room // 4)
        starts = [*range(0, len(inside) - room, step), len(inside) - room]
        before, after = range(inside[0]), range(inside[-1] + 1, len(row))
        windows = [[*before, *inside[s : s + room], *after] for s in starts]
        return tuple(replace(row.select(window), truncated=True) for window in windows)

    def choose(self, windows: Sequence[Encoded], logits: Sequence[Tensor]) -> int:
        scores = [best_span(row, values)[2] for row, values in zip(windows, logits, strict=True)]
        return max(range(len(scores)), key=scores.__getitem__)

    # ---- answers --------------------------------------------------------------------------------------------------

    def logits(self, output: Any, batch: Batch) -> Tensor:
        """(b, 2, n); padding can be neither start nor end."""
        logits = torch.stack([output.start_logits, output.end_logits], dim=1)
        real = batch.valid[:, None]
        return logits.masked_fill(~real, torch.finfo(logits.dtype).min / 4)

    def log_probabilities(self, logits: Tensor) -> Tensor | None:
        return F.log_softmax(logits, dim=-1)

    def targets(self, rows: Sequence[Encoded], questions: Sequence[Question], logits: Tensor) -> list[list[Target]]:
        found = []
        for row, question, values in zip(rows, questions, logits.cpu(), strict=True):
            wanted = ("span", "start", "end") if question.many else (question.target,)
            found.append([self._target(row, name, question.contrast, values) for name in wanted])
        return found

    def _target(self, row: Encoded, name: str, contrast: str | None, values: Tensor) -> Target:
        predicted = best_span(row, values)[:2]
        span = (0, 0) if name == NO_ANSWER else row.answer or predicted
        against = None if contrast is None else self._other(row, contrast)
        if against == span:
            raise InputError(f"contrast={contrast!r} is the answer itself: name another.")
        terms = tuple(
            Term((place,), (span[place],), (span[place],), None if against is None else (against[place],))
            for place in (START, END)
        )
        text = NO_ANSWER if name == NO_ANSWER else text_of(row, span)
        label = f"{name} of {text!r}" if name in ("start", "end") else text
        terms = terms[START : START + 1] if name == "start" else terms[END:] if name == "end" else terms
        said = label if span == predicted else text_of(row, predicted)
        reach = max((position for term in terms for position in term.contrasts or ()), default=-1)
        return Target(label, terms[0].indices[0], terms, contrast, said, reach=reach)

    def _other(self, row: Encoded, text: str) -> tuple[int, int]:
        """The tokens of another answer."""
        if text in (NO_ANSWER, "unanswerable"):
            return 0, 0
        at = -1 if row.pair is None or not text else row.pair.find(text)
        while row.pair is not None and at >= 0:
            span = tokens_of(row, at, at + len(text))
            if span is not None:
                return span
            at = row.pair.find(text, at + 1)
        raise InputError(f"contrast={text!r} does not stand in the context (or not in the window that was read).")

    def answers(self, rows: Sequence[Encoded], logits: Tensor, log_probabilities: Tensor | None) -> list[Prediction]:
        assert log_probabilities is not None
        found = []
        for row, values, chances in zip(rows, logits.cpu(), log_probabilities.cpu(), strict=True):
            start, end, _ = best_span(row, values)
            p = exp(float(chances[START, start] + chances[END, end]))
            none = exp(float(chances[START, 0] + chances[END, 0]))
            text = text_of(row, (start, end))
            found.append(Prediction(text, start, p, alternatives=((text, p), (NO_ANSWER, none))))
        return found


def best_span(row: Encoded, logits: Tensor) -> tuple[int, int, float]:
    """The best start ≤ end in the context, at most MAX_ANSWER tokens, and its score. logits: (2, n)"""
    inside = [i for i, s in enumerate(row.segments) if s == 1] if row.pair is not None else []
    start, end = logits[:, : len(row)].float()
    if not inside:
        s, e = int(start.argmax()), int(end.argmax())
        return s, e, float(start[s] + end[e])
    ends = F.pad(end[inside], (0, MAX_ANSWER - 1), value=float("-inf")).unfold(0, MAX_ANSWER, 1)  # (context, length)
    scores = start[inside][:, None] + ends
    s, more = divmod(int(scores.argmax()), MAX_ANSWER)
    return inside[s], inside[s + more], float(scores[s, more])


def tokens_of(row: Encoded, start: int, end: int) -> tuple[int, int] | None:
    """The first and last token that cover characters [start, end) of the context; None if the row does not hold them all."""
    covering = [
        i
        for i, ((a, b), s) in enumerate(zip(row.offsets, row.segments, strict=True))
        if s == 1 and a < end and b > start
    ]
    if not covering or row.offsets[covering[0]][0] > start or row.offsets[covering[-1]][1] < end:
        return None
    return covering[0], covering[-1]


def margin(row: Encoded, span: tuple[int, int] | None) -> int:
    """How much context stands on the scantier side of an answer; −1 if the row does not hold it."""
    if span is None:
        return -1
    inside = [i for i, s in enumerate(row.segments) if s == 1]
    return min(span[0] - inside[0], inside[-1] - span[1])


def text_of(row: Encoded, span: tuple[int, int]) -> str:
    start, end = span
    if row.pair is not None and row.segments[start] == 1 and row.segments[end] == 1 and end >= start:
        return row.pair[row.offsets[start][0] : row.offsets[end][1]].strip()
    return " ".join(row.tokens[start : end + 1]) if end >= start else f"{row.tokens[start]} … {row.tokens[end]}"


def token_span(given: Any, n: int, at: str) -> tuple[int, int] | None:
    """An answer in a row of ids: its first and last token."""
    if given is None:
        return None
    if (
        not isinstance(given, (tuple, list))
        or len(given) != 2
        or not all(isinstance(i, int) and 0 <= i < n for i in given)
    ):
        raise InputError(
            f"{at}in a row of ids 'answer' is a pair of token positions (first, last) below {n}, got {given!r}."
        )
    return int(given[0]), int(given[1])
