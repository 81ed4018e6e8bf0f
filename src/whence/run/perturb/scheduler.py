"""One scheduler of plain forwards, for the perturbation methods and the metrics: never a loop where a batch would do.

Rows that are asked for several times (by another method, another coalition, another target or another text) run once; rows of like
length run together, up to a budget of tokens; nothing is recorded, no gradients are kept, and the model uses its own fast
attention. On a GPU results are read back one batch behind, so that it always has the next batch waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from whence.errors import InputError, ModelError
from whence.fast.first_token import first_token_only
from whence.inputs import Batch, Encoded, Fetched, to_batch, to_device
from whence.models import Lent, is_causal, pad_id, untouched
from whence.run.perturb.rows import Ints, Rows
from whence.run.progress import Counter, counting
from whence.run.session import Session, exclusively
from whence.tasks import Scalar, Term
from whence.trace.attention import unasked
from whence.trace.checks import check_weights, weights_stamp
from whence.trace.recorder import head_where_asked, model_inputs

CPU_TOKENS = 1024  # larger batches gain nothing on a CPU, and leave its caches (9% slower at 8192 on BERT-base's shape)
IN_FLIGHT = {"cuda": 2}  # batches on their way before the oldest is read back; 1 elsewhere


@dataclass(frozen=True)
class Values:
    """What the model says of every row, in the order of the rows."""

    y: NDArray[np.float64]  # (N,) the term's scalar
    log_probability: NDArray[np.float64] | None  # (N,) of the term; None where the model gives no probabilities
    predicted: Ints  # (N,) the option with the largest logit at the term's first place
    forwards: int  # rows that really ran: duplicates are asked for, but not run

    @property
    def probability(self) -> NDArray[np.float64] | None:
        return None if self.log_probability is None else np.exp(self.log_probability)


@exclusively
def score_rows(
    session: Session,
    rows: Sequence[Encoded] | Rows,
    terms: Sequence[Term],
    *,
    batch_tokens: int,
    progress: bool | Counter | None = None,
    label: str = "forwards",
    repeats: Sequence[int] | None = None,
) -> Values:
    """y, log p and the prediction of every row under its own term, from one forward per distinct row.

    batch_tokens: how many tokens, padding included, may run at once; halved where memory does not suffice, and no more than
        serve a CPU are used on one.
    progress: as for `Explainer.explain`, or a counter that the caller shows already.
    label: what the progress bar calls this work.
    repeats: how many rows in sequence each term is for, where there are many; one each if None.

    An interrupt (Ctrl-C) leaves between two operations of the model, which is given back as it was found.
    """
    rows = rows if isinstance(rows, Rows) else Rows.of(rows)
    count = len(terms) if repeats is None else sum(repeats)
    if len(rows) != count:
        raise InputError(f"{count} terms for {len(rows)} rows; give one each.")
    if not len(rows):
        return Values(np.zeros(0), None, np.zeros(0, np.int64), 0)
    _ = session.reads  # tried before the model is lent
    requests = Requests.of(rows, terms, repeats)
    found = np.empty((3, len(requests.row)))  # y, log p, prediction
    padding = padding_for(session, rows)
    lent_id = padding != pad_id(session.model.config)
    lengths = rows.lengths[requests.distinct].tolist()
    spans = [range(n) for n in lengths]
    waiting: deque[Pending] = deque()
    with (
        counting(label, len(rows), progress) as counter,
        untouched(session.model, attention=unasked(session.model, session.device), pad_id=padding) as lent,
        ExitStack() as stack,
    ):
        check_weights(session.model, weights_stamp(lent.parameters))  # before the model is tried for what it reads
        stack.enter_context(first_token_only(session.model, lent))
        stack.enter_context(torch.no_grad())
        run = Runner(session, lent, rows, requests, Scalar.stack(requests.terms, session.device), padding, lent_id)

        def read_back() -> None:
            done = waiting.popleft()
            found[:, done.requests] = done.values()
            counter.advance(int(requests.asked[done.requests].sum()))

        budget = min(batch_tokens, CPU_TOKENS) if session.device.type == "cpu" else batch_tokens
        batches = session.batches(spans, budget)
        for numbers in batches:
            with batches.fitting(numbers):
                waiting.append(run(numbers))
            if len(waiting) >= IN_FLIGHT.get(session.device.type, 1):
                read_back()
        while waiting:
            read_back()
    y, logp, predicted = found[:, requests.inverse]
    if not np.isfinite(y).all():
        raise ModelError(
            "the model answered with logits that are not finite numbers, though its weights are: try dtype='float32'."
        )
    known = not np.isnan(logp).any()
    return Values(y, logp if known else None, predicted.astype(np.int64), len(requests.distinct))


def padding_for(session: Session, rows: Rows) -> int:
    """The model's own padding id, or one that no row uses where there is none, and where a decoder classifier, which answers at
    the last token that is not padding, would take a replaced token for padding."""
    own = pad_id(session.model.config)
    by_id = is_causal(session.model) or session.reads.by_id
    text = rows.ids if rows.padding is None else rows.ids[~rows.padding]
    if own is None or (by_id and bool((text == own).any())):
        return unused_id(rows)
    return own


def unused_id(rows: Rows) -> int:
    """The smallest token id that no row uses: safe padding for a model that has no padding token of its own."""
    used = np.unique(rows.ids)
    gaps = np.flatnonzero(used != np.arange(len(used)))
    return int(gaps[0]) if len(gaps) else len(used)


@dataclass(frozen=True)
class Requests:
    """The distinct (row, term) pairs among N asked for, sorted by row; each distinct row runs once for all its terms."""

    distinct: Ints  # (D,) numbers of the distinct rows
    terms: list[Term]  # (T,) the distinct terms
    row: Ints  # (R,) which of the distinct rows
    term: Ints  # (R,) which of the distinct terms
    asked: Ints  # (R,) how often
    first: Ints  # (D + 1,) the first request of each distinct row
    inverse: Ints  # (N,) the request that answers

    @classmethod
    def of(cls, rows: Rows, terms: Sequence[Term], repeats: Sequence[int] | None = None) -> Requests:
        row = rows.numbered()
        term, distinct_terms = number_terms(terms)
        term = term if repeats is None else np.repeat(term, repeats)
        codes, inverse, asked = np.unique(row * len(distinct_terms) + term, return_inverse=True, return_counts=True)
        return cls(
            distinct=np.unique(row, return_index=True)[1],
            terms=distinct_terms,
            row=codes // len(distinct_terms),
            term=codes % len(distinct_terms),
            asked=asked,
            first=np.searchsorted(codes // len(distinct_terms), np.arange(int(row.max()) + 2)),
            inverse=inverse,
        )

    def of_rows(self, numbers: Ints) -> tuple[Ints, Ints]:
        """The requests of some distinct rows, and for each its place among these rows."""
        counts = self.first[numbers + 1] - self.first[numbers]
        place = np.repeat(np.arange(len(numbers)), counts)
        within = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(self.first[numbers], counts) + within, place


def number_terms(terms: Sequence[Term]) -> tuple[Ints, list[Term]]:
    """Each term's number among the distinct ones. Most are the very same object: only new objects are compared."""
    by_value: dict[Term, int] = {}
    by_object: dict[int, int] = {}
    numbers = np.empty(len(terms), np.int64)
    for i, term in enumerate(terms):
        known = by_object.get(id(term))
        if known is None:
            known = by_object[id(term)] = by_value.setdefault(term, len(by_value))
        numbers[i] = known
    return numbers, list(by_value)


@dataclass(frozen=True)
class Runner:
    """Runs groups of distinct rows as batches; called inside `untouched` and without gradients."""

    session: Session
    lent: Lent
    rows: Rows
    requests: Requests
    scalar: Scalar  # one row per distinct term, on the device
    padding: int
    lent_id: bool  # the padding id is not the model's own

    def __call__(self, numbers: Sequence[int]) -> Pending:
        group = np.asarray(numbers)
        batch = self.batch(self.requests.distinct[group])
        asked, place = self.requests.of_rows(group)
        model, task = self.session.model, self.session.task
        with head_where_asked(model, self.lent, task, batch):
            output = model(**model_inputs(model, batch))
        logits = task.logits(output, batch)  # (b, places, options)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if len(place) != len(group):  # several terms of one row
            logits = logits[to_device(place, self.session.device)]  # (r, places, options)
        scalar = self.scalar.take(to_device(self.requests.term[asked], self.session.device))
        log_probabilities = task.log_probabilities(logits)
        y = scalar.y(logits, log_probabilities)
        log_probability = scalar.log_probability(logits, log_probabilities)
        first = logits[torch.arange(len(logits), device=logits.device), scalar.place[:, 0]]  # (r, options)
        known = torch.full_like(y, torch.nan) if log_probability is None else log_probability
        found = torch.stack([y.double(), known.double(), first.argmax(-1).double()])
        return Pending(asked, Fetched(found))

    def batch(self, numbers: Ints) -> Batch:
        """The rows as padded tensors, brought to the device by one copy."""
        padded = self.rows.padded(numbers, self.padding, lent=self.lent_id)
        tables = {
            "input_ids": padded.ids,
            "attention_mask": padded.visible,
            "valid": padded.valid,
            "token_type_ids": padded.types,
            "position_ids": padded.positions,
        }
        return to_batch(tables, self.rows.places[numbers], self.padding, self.session.device)


@dataclass(frozen=True)
class Pending:
    """Results that may still be on their way from the device."""

    requests: Ints
    fetched: Fetched

    def values(self) -> NDArray[np.float64]:
        """(3, r), waited for."""
        return self.fetched.tensor().numpy()
