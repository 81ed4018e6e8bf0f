"""Play the games of all texts and all perturbation methods together, in rounds of shared forwards."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from whence.errors import NotSupported
from whence.inputs import Encoded
from whence.models import stand_in_ids
from whence.run.perturb.game import Coalitions, Floats, Play, Text
from whence.run.perturb.rows import Bools, Rows
from whence.run.perturb.scheduler import Values, score_rows
from whence.run.plan import MethodCall
from whence.run.progress import Counter, counting
from whence.run.session import Session, exclusively
from whence.tasks import Target, Term
from whence.trace.attribution import RowScores

TOKENS_AT_ONCE = 1 << 21  # tokens of changed rows that are made before any of them runs: some tens of megabytes


@dataclass
class Running:
    """A game under way."""

    name: str
    number: int  # of the row
    play: Play
    term: Term
    y: float | None  # of the text as it is, which the model has answered already
    question: Coalitions
    asked: int = 0

    @property
    def known(self) -> Bools:
        """(k,) which rows of the question are the text as it is, with a value that is known."""
        whole = np.asarray(self.question.keep.all(1))
        return whole & (self.y is not None and self.question.game.of == "logit")

    @property
    def expected(self) -> int:
        """Rows asked for so far, and those that are known to come."""
        return self.asked + len(self.question.keep) + self.question.later


@exclusively
def run_perturbations(
    session: Session,
    rows: Sequence[Encoded],
    targets: Sequence[Target],
    calls: Sequence[MethodCall],
    *,
    batch_tokens: int,
    values: Sequence[float] | None = None,
    progress: bool | None = None,
) -> dict[str, list[RowScores]]:
    """{method: RowScores per row}: every row explained for its own target. values: y of each, where the model has answered already.

    Games begin in the order of the rows as long as their changed rows fit into memory together, all methods of a row at once;
    each round of questions is one call of the scheduler.
    """
    stand_ins = stand_in_ids(session.model.config, session.task.encoder.tokenizer)
    found: dict[str, list[RowScores]] = {call.name: [RowScores(np.zeros(0))] * len(rows) for call in calls}
    waiting = deque((number, call) for number in range(len(rows)) for call in calls)
    running: list[Running] = []
    kind = np.float64 if session.model.dtype.itemsize == 8 else np.float32
    done = 0  # rows asked for by games that are over
    over = 0
    with counting("perturbing", 0, progress) as counter:
        while waiting or running:
            tokens = sum(r.question.tokens for r in running)
            while waiting and tokens < TOKENS_AT_ONCE:
                number, call = waiting.popleft()
                text = Text(rows[number], stand_ins, session.task.name)
                play: Play = call.method.function(text, **call.options)
                y = None if values is None else values[number]
                running.append(Running(call.name, number, play, targets[number].joint(), y, next(play)))
                tokens += running[-1].question.tokens
            expected = done + sum(r.expected for r in running)
            counter.expect(expected + len(waiting) * (expected // max(over + len(running), 1)))
            answers = ask(session, running, batch_tokens, counter)
            still: list[Running] = []
            for game, answer in zip(running, answers, strict=True):
                game.asked += len(answer)
                try:
                    game.question = game.play.send(answer)
                    still.append(game)
                except StopIteration as end:
                    part: RowScores = end.value
                    found[game.name][game.number] = replace(part, scores=part.scores.astype(kind))
                    done, over = done + game.asked, over + 1
            running = still
    return found


def ask(session: Session, running: Sequence[Running], batch_tokens: int, counter: Counter) -> list[Floats]:
    """Every game's values, from one call of the scheduler; what the model has answered before is not asked again."""
    known = [r.known for r in running]
    rows = Rows.join([r.question.game.rows(r.question.keep[~k]) for r, k in zip(running, known, strict=True)])
    counts = [int((~k).sum()) for k in known]
    terms = [r.term for r, count in zip(running, counts, strict=True) for _ in range(count)]
    values = score_rows(session, rows, terms, batch_tokens=batch_tokens, progress=counter, label="perturbing")
    ends = np.cumsum(counts)[:-1]
    by_value = {of: np.split(scalars(values, of), ends) for of in dict.fromkeys(r.question.game.of for r in running)}
    answers = []
    for i, (r, k) in enumerate(zip(running, known, strict=True)):
        answer = np.full(len(k), np.nan if r.y is None else r.y)
        answer[~k] = by_value[r.question.game.of][i]
        answers.append(answer)
        counter.advance(int(k.sum()))
    return answers


def scalars(values: Values, of: str) -> Floats:
    """The value that a game is about."""
    if of == "logit":
        return values.y
    if values.probability is None:
        raise NotSupported("this model answers with a number, not with probabilities: use of='logit'.")
    return values.probability
