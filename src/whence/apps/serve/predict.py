"""What the model says of a text, with any of its words hidden."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whence.apps.serve.jobs import Asked
from whence.errors import InputError
from whence.evaluate.games import open_game, word_numbers
from whence.explainer import Explainer
from whence.inputs import Encoded
from whence.models import stand_in_ids
from whence.run.limits import BATCH_TOKENS
from whence.run.perturb import Game
from whence.tasks import Prediction, Question, Scalar, Target


@dataclass(frozen=True)
class Answer:
    """What the model says of one row: its own answer, and how likely what is asked about is."""

    row: Encoded  # the text as it was given, nothing hidden
    prediction: Prediction
    target: Target
    probability: float | None  # of the target


@dataclass(frozen=True)
class Predict:
    """One prediction; the words numbered in `hidden` are hidden from the model."""

    asked: Asked
    hidden: tuple[int, ...] = ()

    @property
    def key(self) -> Hashable:
        return Predict

    @classmethod
    def run(cls, explainer: Explainer, jobs: Sequence[Predict]) -> list[Answer]:
        """Texts as they are first: the target is what the model says of the whole text, also when words are hidden."""
        asked = list(dict.fromkeys(job.asked for job in jobs))
        rows, questions = encode(explainer, asked)
        whole = dict(zip(asked, answer(explainer, rows, questions), strict=True))
        hiding = list(dict.fromkeys(job for job in jobs if job.hidden))
        changed = [without_words(explainer, whole[job.asked].row, job.hidden) for job in hiding]
        answers = answer(explainer, changed, [whole[job.asked].target for job in hiding])
        found = {
            job: dataclasses.replace(one, row=whole[job.asked].row) for job, one in zip(hiding, answers, strict=True)
        }
        return [found[job] if job.hidden else whole[job.asked] for job in jobs]


def encode(explainer: Explainer, asked: Sequence[Asked]) -> tuple[list[Encoded], list[Question]]:
    """The rows that the model reads, and what is asked of each."""
    questions = [explainer.ask(**request.about) for request in asked]
    return explainer.rows([request.input for request in asked], questions, "truncate", BATCH_TOKENS), questions


def answer(explainer: Explainer, rows: Sequence[Encoded], about: Sequence[Question | Target]) -> list[Answer]:
    """The model's answers, in batches; a Question is resolved by what the model says, a Target is known already."""
    session, task = explainer.session, explainer.session.task
    answers: dict[int, Answer] = {}
    with session.exclusive():
        batches = session.batches(rows, BATCH_TOKENS)
        for numbers in batches:
            with batches.fitting(numbers):
                part = [rows[i] for i in numbers]
                with session.record(session.collate(part)) as recording:
                    recording.check()
                    predictions = task.answers(part, recording.logits, recording.log_probabilities)
                    targets = [
                        asked if isinstance(asked, Target) else task.targets([row], [asked], logits[None])[0][0]
                        for asked, row, logits in zip([about[i] for i in numbers], part, recording.logits, strict=True)
                    ]
                    log_p = recording.log_probability(
                        Scalar.stack([target.joint() for target in targets], session.device)
                    )
                    probabilities = [None] * len(part) if log_p is None else log_p.exp().tolist()
                per_row = zip(part, predictions, targets, probabilities, strict=True)
                answers.update(zip(numbers, [Answer(*fields) for fields in per_row], strict=True))
    return [answers[i] for i in range(len(rows))]


def without_words(explainer: Explainer, row: Encoded, hidden: Sequence[int]) -> Encoded:
    """The row with some words hidden."""
    game = open_game(explainer, row)
    numbers = word_numbers(game)
    unknown = sorted(set(hidden) - set(numbers))
    if unknown:
        raise InputError(
            f"there is no word {unknown[0]} that could be hidden; this text's own words are {spans(numbers) or 'none'}."
        )
    return changed(game, ~np.isin(numbers, hidden))


def spans(numbers: Sequence[int]) -> str:
    """Numbers that rise, with gaps where a word is not the text's own ([MASK]), as people say them.

    >>> spans([0, 2, 3, 4]), spans([5]), spans([])
    ('0, 2 to 4', '5', '')
    """
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1] = [found[-1][0], number]
        else:
            found.append([number])
    return ", ".join(" to ".join(map(str, ends)) for ends in found)


def changed(game: Game, keep: NDArray[np.bool_]) -> Encoded:
    """The text with only the units where `keep` (units,) is True, as a row of its own."""
    ids = tuple(game.rows(keep[None]).ids.tolist())
    row = game.text.row
    if game.replacement == "delete":
        kept = np.flatnonzero(game.parts.tokens_kept(keep[None])[0]).tolist()
        row = row.select(kept if len(kept) == len(ids) else sorted({0, *kept}))  # of an empty text one blank is left
    return dataclasses.replace(row, input_ids=ids)


def hidden_by(explainer: Explainer, replacement: str) -> str:
    """What stands in the place of a hidden word, as people would read it."""
    if replacement == "delete":
        return "nothing (the word is deleted)"
    number = stand_in_ids(explainer.model.config, explainer.tokenizer)[replacement]
    token = None if explainer.tokenizer is None else explainer.tokenizer.convert_ids_to_tokens(number)
    return str(token or number)
