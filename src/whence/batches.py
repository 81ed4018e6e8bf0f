"""One batch through every pass that its methods need. Numbers are read late: a GPU that is asked for one makes everybody wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from whence.attribution import Part
from whence.engine import Engine
from whence.inputs import Encoded, Fetched
from whence.models.lm_head import LMHead
from whence.parts import Made, deal_out
from whence.passes import ForwardPass
from whence.tasks import Ask, Scalar, Target, Task, Term
from whence.trace import Recording
from whence.trace.checks import check_finite
from whence.trace.meanwhile import Later


@dataclass(frozen=True)
class Answered:
    """What the model said of one row, and what is explained of it."""

    targets: list[Target]
    values: list[float]  # y of each target
    probabilities: list[float | None]  # of each target
    prediction: str


@dataclass
class Outcome:
    """One row's answer and each method's parts, one per target; empty until they are read."""

    parts: dict[str, list[Part]] = field(default_factory=dict)
    _answered: Answered | None = None

    @property
    def answered(self) -> Answered:
        assert self._answered is not None
        return self._answered


def trace_batch(
    engine: Engine,
    rows: Sequence[Encoded],
    asks: Sequence[Ask],
    passes: Sequence[ForwardPass],
    lm_head: Callable[[Any], LMHead],
) -> Callable[[Sequence[Outcome]], None]:
    """Run the passes: for each one forward, and one backward per scalar, relevance and term. What is returned reads the numbers."""
    said: Said | None = None
    made: list[Made] = []
    batch = engine.collate(rows)
    own = engine.model.dtype
    for planned in passes or [ForwardPass({}, None)]:
        dtype, heads = planned.dtype(own), {given: lm_head(given) for given in planned.decodes}
        both, shared = planned.follows_gradients, planned.looks_at_attention > 1 or any(ask.many for ask in asks)
        with engine.record(
            batch, planned.needs, rules=planned.rules, dtype=dtype, lm_heads=heads, gradients=both, shared=shared
        ) as recording:
            said = said or Said(engine.task, rows, asks, recording)
            for scalar, of_target, last in said.turns() if planned.plan else ():
                traces = planned.traces(recording, scalar, last=last)
                for name, (method, options) in planned.plan.items():
                    made.append(Made.of(name, method(traces[name], **options), of_target, own))
    assert said is not None
    return partial(read, said, made, rows)


def read(said: Said, made: Sequence[Made], rows: Sequence[Encoded], outcomes: Sequence[Outcome]) -> None:
    """Wait for the batch, and put its numbers into the outcomes of its rows."""
    for outcome, answered in zip(outcomes, said.answered, strict=True):
        outcome._answered = answered
    deal_out(made, rows, [outcome.parts for outcome in outcomes])


Turn = tuple[Scalar, list[int | None]]


class Said:
    """What the model said of a batch, and which scalars follow from it.

    Where the task can name the scalars beforehand (`at_once`), nobody waits for the answer before the backward is on its way.
    """

    def __init__(self, task: Task, rows: Sequence[Encoded], asks: Sequence[Ask], recording: Recording) -> None:
        self.task, self.rows, self.asks = task, rows, asks
        at_once = getattr(task, "at_once", None)
        self._known: list[list[tuple[Term, ...]]] | None = None if at_once is None else at_once(rows, asks)
        self._turns: list[Turn] = []
        self._logits = recording.logits.detach()
        self._stream = torch.cuda.current_stream(self._logits.device) if self._logits.is_cuda else None
        # a few labels are read on the host; a vocabulary is more than a copy is worth
        self._labelled = bool(task.labels)
        # what is not read meanwhile is fetched before the backward all the same: a copy waits for all that its device was given earlier
        early = self._known is not None and self._labelled and recording.meanwhile.in_python
        self._early = self._fetching() if early else None
        self._answers = Later(self._read)
        if self._known is not None:
            recording.meanwhile.add(self._answers)

    @property
    def answered(self) -> list[Answered]:
        """Targets resolved by what the model says, with their probabilities."""
        return self._answers()

    def _there(self) -> AbstractContextManager[Any]:
        """By the stream that made the logits, whoever asks."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def _with_log_probabilities(self, logits: Tensor) -> list[Tensor]:
        """At least in float32: logits (b, places, options), and their log-probabilities if there are such. They are made where the
        logits are: on a CPU torch's softmax wakes all its threads, which takes longer than the rest of the reading."""
        precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
        log_p = self.task.log_probabilities(precise)
        return [precise] if log_p is None else [precise, log_p]

    def _fetching(self) -> Fetched:
        """The same on its way to the host."""
        with self._there():
            return Fetched(torch.stack(self._with_log_probabilities(self._logits)))

    def _read(self) -> list[Answered]:
        if self._known is not None and self._labelled:
            return self._answered(*(self._early or self._fetching()).tensor().unbind())
        with self._there():
            return self._answered(*self._with_log_probabilities(self._logits))

    def _answered(self, logits: Tensor, log_p: Tensor | None = None) -> list[Answered]:
        check_finite(torch.isfinite(logits).all())
        targets = self.task.targets(self.rows, self._explained(logits), logits)
        if all(target.prediction is not None for own in targets for target in own):
            labels = [own[0].prediction or "" for own in targets]
        else:
            labels = [said.label for said in self.task.answers(self.rows, logits, log_p)]
        answered = [Answered(t, [], [], label) for t, label in zip(targets, labels, strict=True)]
        for k in range(max(map(len, targets))):
            joint = [own[min(k, len(own) - 1)].joint() for own in targets]
            for row, (chance, y) in zip(answered, valued(joint, logits, log_p), strict=True):
                if k < len(row.targets):
                    row.probabilities.append(chance)
                    row.values.append(y)
        return answered

    def _explained(self, logits: Tensor) -> Sequence[Ask]:
        """Asks for what was explained at once. Of two equal logits the device may have taken another than the host would."""
        if not (self._labelled and self._turns) or all(ask.target is not None for ask in self.asks):
            return self.asks
        best = logits.amax(-1, keepdim=True) == logits  # (b, 1, options)
        if int(best.sum()) == len(best):
            return self.asks
        taken = [indices[0] for indices in self._turns[0][0].index.tolist()]
        return [
            replace(ask, target=index) if ask.target is None and not ask.many else ask
            for ask, index in zip(self.asks, taken, strict=True)
        ]

    def turns(self) -> Iterator[tuple[Scalar, list[int | None], bool]]:
        """Every scalar of the batch in turn, which of its row's targets each is of, and whether it is the last."""
        if not self._turns:
            self._turns = list(self._in_turn())
        for number, (scalar, of_target) in enumerate(self._turns, start=1):
            yield scalar, of_target, number == len(self._turns)

    def _in_turn(self) -> Iterator[Turn]:
        known = self._known
        if known is None:
            known = [[target.terms for target in answered.targets] for answered in self.answered]
        terms = [[(k, term) for k, own in enumerate(targets) for term in own] for targets in known]
        for turn in range(max(map(len, terms))):
            now = [own[min(turn, len(own) - 1)] for own in terms]
            scalar = Scalar.stack([term for _, term in now], self._logits.device).settled(self._logits)
            yield scalar, [k if turn < len(own) else None for (k, _), own in zip(now, terms, strict=True)]


def valued(joint: Sequence[Any], logits: Tensor, log_p: Tensor | None) -> Iterator[tuple[float | None, float]]:
    """The probability (where there is one) and the value of each row's scalar."""
    scalar = Scalar.stack(joint, logits.device)
    found = scalar.log_probability(logits, log_p)
    chances = [None] * len(joint) if found is None else found.exp().tolist()
    return zip(chances, scalar.y(logits, log_p).tolist(), strict=True)
