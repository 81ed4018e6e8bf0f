"""One loop: batches of rows through the forwards, the scalars and the methods of a plan."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whence.errors import InputError, ModelError
from whence.inputs import Encoded
from whence.run.paths import run_paths
from whence.run.perturb import run_perturbations
from whence.run.plan import ForwardPass, Plan
from whence.run.session import Session
from whence.tasks import Question, Scalar, Target, Task, Term
from whence.trace.attribution import Attribution, RowScores, fits_rows
from whence.trace.checks import check_finite

# how methods that take more than one traced pass are run, by their kind
RUNNERS = {"path": run_paths, "perturbation": run_perturbations}

Owners = list[int | None]  # of which of its row's targets a scalar is, for every row; None: of none


@dataclass
class RowResult:
    """What the model answered for one row, and what every method makes of it."""

    targets: list[Target]
    values: list[float]  # y of each target
    probabilities: list[float | None]  # of each target
    prediction: str
    scores: dict[str, list[RowScores]] = field(default_factory=dict)  # method → one per target


def attribute(
    session: Session,
    rows: Sequence[Encoded],
    questions: Sequence[Question],
    plan: Plan,
    *,
    batch_tokens: int,
    progress: bool | None = False,
) -> list[RowResult]:
    """Every row by every method of a plan.

    Args:
        session: the model, which the caller has to itself.
        rows: encoded inputs, of any length.
        questions: what is asked of each row.
        batch_tokens: how many tokens, padding included, run at once.
        progress: show bars; None: on a terminal, for long work.

    Returns:
        One result per row, in order.
    """
    forwards = plan.forwards(session.model.dtype)
    results: dict[int, RowResult] = {}
    under_way: deque[Launched] = deque()
    batches = session.batches(rows, batch_tokens, forwards, progress=progress)
    for numbers in batches:
        with batches.fitting(numbers):
            under_way.append(
                launch(session, forwards, numbers, [rows[i] for i in numbers], [questions[i] for i in numbers])
            )
        while len(under_way) > 1:  # the last batch is read while the next one runs, so that a GPU never waits
            results.update(under_way.popleft().read())
    while under_way:
        results.update(under_way.popleft().read())
    ordered = [results[i] for i in range(len(rows))]
    for kind, run in RUNNERS.items():
        calls = plan.of_kind(kind)
        if calls and rows:
            owners = [i for i, result in enumerate(ordered) for _ in result.targets]
            scores = run(
                session,
                [rows[i] for i in owners],
                [target for result in ordered for target in result.targets],
                calls,
                values=[y for result in ordered for y in result.values],
                batch_tokens=batch_tokens,
                progress=progress,
            )
            for name, per_target in scores.items():
                for i, row_scores in zip(owners, per_target, strict=True):
                    ordered[i].scores.setdefault(name, []).append(row_scores)
    return ordered


def launch(
    session: Session,
    forwards: Sequence[ForwardPass],
    numbers: Sequence[int],
    rows: Sequence[Encoded],
    questions: Sequence[Question],
) -> Launched:
    """One batch through every forward, every scalar of its answers and every method; its numbers may still be on their way."""
    batch, dtype = session.collate(rows), session.model.dtype
    kept_dtype = torch.float64 if dtype == torch.float64 else torch.float32
    answers: Answers | None = None
    attributions: list[tuple[str, Owners, Attribution]] = []
    for forward in forwards:
        with session.record(
            batch,
            forward.needs,
            rules=forward.rules,
            dtype=forward.dtype,
            lm_heads={name: session.lm_heads(name) for name in forward.lm_heads},
            gradients=forward.follows_gradients,
            shared=forward.attention_readers > 1 or any(question.many for question in questions),
        ) as recording:
            answers = answers or Answers(session.task, rows, questions, recording.logits.detach())
            for number, (scalar, owners) in enumerate(answers.scalars if forward.calls else (), start=1):
                for call, trace in forward.traces(recording, scalar, last=number == len(answers.scalars)):
                    attribution = attribution_of(
                        call.name, call.method.function(trace, **call.options), batch.own_ids.shape
                    )
                    attributions.append((call.name, owners, attribution.to_host(kept_dtype)))
    assert answers is not None
    return Launched(list(numbers), rows, answers, attributions)


def attribution_of(name: str, returned: Any, shape: tuple[int, ...]) -> Attribution:
    """What a method returned, scores or an Attribution, as an Attribution.

    Raises:
        InputError: it does not have one score per token.
    """
    attribution = returned if isinstance(returned, Attribution) else Attribution(returned)
    misfit = fits_rows(attribution, *shape)
    if misfit:
        raise InputError(f"the method {name!r} returned what is no score per token: {misfit}.")
    return attribution


@dataclass(frozen=True)
class Launched:
    """A batch that is on its way through the device."""

    numbers: list[int]
    rows: Sequence[Encoded]
    answers: Answers
    attributions: list[tuple[str, Owners, Attribution]]

    def read(self) -> dict[int, RowResult]:
        """Wait for the batch: each row's result by its number. Terms of one target add up.

        Raises:
            ModelError: scores are not finite numbers.
        """
        results = self.answers.read()
        real = [row.real for row in self.rows]
        for name, owners, attribution in self.attributions:
            for row, result, target, scores in zip(self.rows, results, owners, attribution.rows(real), strict=True):
                if not np.isfinite(scores.scores).all():
                    raise ModelError(
                        f"{name} gave scores that are not finite numbers for {' '.join(row.tokens[:8])!r}; try dtype='float64'."
                    )
                per_target = result.scores.setdefault(name, [])
                if target == len(per_target):
                    per_target.append(scores)
                elif target is not None:
                    per_target[target] = per_target[target] + scores
        return dict(zip(self.numbers, results, strict=True))


class Answers:
    """What the model answered for a batch, and which scalars are explained.

    Where the task can name the scalars beforehand (`Task.early_terms`) nobody waits for the answer before the backward is on its way.

    Args:
        logits: (b, places, options), on the model's device.
    """

    def __init__(self, task: Task, rows: Sequence[Encoded], questions: Sequence[Question], logits: Tensor) -> None:
        self.task, self.rows, self.questions, self.logits = task, rows, questions, logits
        self._stream = torch.cuda.current_stream(logits.device) if logits.is_cuda else None
        self._targets: list[list[Target]] | None = None
        terms = task.early_terms(rows, questions)
        if terms is None:
            self._targets = self._resolve(logits)
            terms = [[target.terms for target in targets] for targets in self._targets]
        self.scalars = list(scalars_of(terms, logits))
        # A few labels are read on the host, and their copy begins before the backward; a vocabulary is more than a copy is worth.
        self._on_host = bool(task.labels)
        self._answers = self._with_log_probabilities() if self._on_host else []
        self._event: torch.cuda.Event | None = None
        if self._on_host and logits.is_cuda:
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    def _with_log_probabilities(self) -> list[Tensor]:
        """Logits, at least in float32, their log-probabilities if there are such, and last the options that are explained. The first two are
        made on the device: on a CPU torch's softmax wakes all its threads, which takes longer than the rest of the reading."""
        logits = self.logits.to(torch.promote_types(self.logits.dtype, torch.float32))
        log_probabilities = self.task.log_probabilities(logits)
        tensors = [logits, *([] if log_probabilities is None else [log_probabilities]), self.scalars[0][0].index]
        return [tensor.detach().to("cpu", non_blocking=True) for tensor in tensors] if self._on_host else tensors

    def read(self) -> list[RowResult]:
        """Each row's targets with their values and probabilities, and what the model says of it.

        Raises:
            ModelError: the logits are not finite numbers.
        """
        if self._event is not None:
            self._event.synchronize()
        # what is read on the device is read by the stream that made it, whoever asks
        with nullcontext() if self._stream is None or self._on_host else torch.cuda.stream(self._stream):
            logits, *more, index = self._answers or self._with_log_probabilities()
            log_probabilities = more[0] if more else None
            targets = self._targets or self._resolve(logits, index if self._on_host else None)
            if all(target.prediction is not None for row_targets in targets for target in row_targets):
                labels = [row_targets[0].prediction or "" for row_targets in targets]
            else:
                labels = [answer.label for answer in self.task.answers(self.rows, logits, log_probabilities)]
            results = [RowResult(t, [], [], label) for t, label in zip(targets, labels, strict=True)]
            for k in range(max(map(len, targets))):
                in_turn = [row_targets[min(k, len(row_targets) - 1)] for row_targets in targets]
                terms = [target.terms[0] if len(target.terms) == 1 else target.joint() for target in in_turn]
                scalar = Scalar.stack(terms, logits.device)
                log_p = scalar.log_probability(logits, log_probabilities)
                probabilities = [None] * len(results) if log_p is None else log_p.exp().tolist()
                for result, probability, y in zip(
                    results, probabilities, scalar.y(logits, log_probabilities).tolist(), strict=True
                ):
                    if k < len(result.targets):
                        result.probabilities.append(probability)
                        result.values.append(y)
        return results

    def _resolve(self, logits: Tensor, index: Tensor | None = None) -> list[list[Target]]:
        """The targets. index: the options that were explained, by the device: of two equal logits another might be taken here."""
        check_finite(torch.isfinite(logits).all())
        questions = self.questions
        if index is not None:
            questions = [
                replace(question, target=options[0]) if question.target is None and not question.many else question
                for question, options in zip(questions, index.tolist(), strict=True)
            ]
        return self.task.targets(self.rows, questions, logits)


def scalars_of(terms: Sequence[Sequence[tuple[Term, ...]]], logits: Tensor) -> list[tuple[Scalar, Owners]]:
    """The scalars of a batch, one after the other, and of which of its row's targets each is.

    Args:
        terms: of every row its targets' terms.
        logits: (b, places, options), which say what is explained where terms leave that open.
    """
    flat = [[(k, term) for k, of_target in enumerate(row_terms) for term in of_target] for row_terms in terms]
    scalars: list[tuple[Scalar, Owners]] = []
    for turn in range(max(map(len, flat))):
        in_turn = [row_terms[min(turn, len(row_terms) - 1)] for row_terms in flat]
        scalar = Scalar.stack([term for _, term in in_turn], logits.device).settled(logits)
        owners: Owners = [k if turn < len(row_terms) else None for (k, _), row_terms in zip(in_turn, flat, strict=True)]
        scalars.append((scalar, owners))
    return scalars
