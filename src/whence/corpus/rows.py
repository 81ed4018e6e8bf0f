"""A shard's rows from records to scores: pure functions of the records and the job, whoever runs them and in whatever order.

A row that cannot be explained costs only itself: its sentence goes into `error`, and its batch mates are run again one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whence.corpus.bad_rows import BadRow, stop
from whence.corpus.job import MAX_PADDING, Job, Profile
from whence.corpus.sources import input_of
from whence.errors import InputError, NotSupported, WhenceError
from whence.explainer import Explainer
from whence.explanation import Explanation
from whence.inputs import Encoded, pack
from whence.run.plan import Plan
from whence.tasks import Question

PER_ROW = ("target", "contrast", "continuation", "place")  # roles that say what is asked of a row
PROBE = 8  # tokens of the row that tells a broken model from a broken row

Advance = Callable[[int, int], None]  # rows, tokens


@dataclass(frozen=True)
class Scored:
    """One target of one row."""

    target: str
    index: int
    contrast: str | None
    prediction: str | None
    probability: float | None
    scores: dict[str, NDArray[Any]]  # method → (n,)
    facts: dict[str, dict[str, Any]]  # method → what it reports of this row besides its options (delta, steps, …)


@dataclass
class Row:
    """One record on its way."""

    number: int
    record: Any
    text: str | None = None
    pair: str | None = None
    windows: tuple[Encoded, ...] = ()
    question: Question | None = None
    encoded: Encoded | None = None
    found: list[Scored] = field(default_factory=list)
    error: str | None = None
    unkept: dict[str, str] = field(default_factory=dict)  # kept column → why it is null here


def prepare(explainer: Explainer, job: Job, records: Sequence[Any], first: int) -> list[Row]:
    """Tokenise. Runs no model."""
    rows = []
    for number, record in enumerate(records, start=first):
        row = Row(number, record)
        try:
            if isinstance(record, InputError):
                raise record
            item, asked = item_of(record, job)
            row.text, row.pair = texts_of(item)
            row.question = explainer.ask(**asked)
            row.windows = explainer.encode(item, row.question, job.on_long)
        except NotSupported:
            raise
        except Exception as error:
            row.error = sentence(error)
        rows.append(row)
    return rows


def check_strict(job: Job, rows: Sequence[Row]) -> None:
    """The first row in error ends a strict run."""
    row = next((row for row in rows if row.error is not None), None) if job.strict else None
    if row is not None and row.error is not None:
        raise stop(BadRow(row.number, job.source.place(row.number), row.error, row.text))


def item_of(record: Any, job: Job) -> tuple[Any, dict[str, Any]]:
    """The model's input, and what is asked of it."""
    asked = dict(job.asked)
    if not isinstance(record, Mapping):
        return tuple(record) if isinstance(record, list) else record, asked
    missing = [column for column in job.roles.values() if column not in record]
    if missing:
        raise InputError(f"there is no column {missing[0]!r} in this row; it has: {', '.join(map(str, record))}.")
    asked |= {role: record[job.roles[role]] for role in PER_ROW if role in job.roles}
    item = input_of(record, job.roles)
    if "answer" in job.roles:
        item["answer"] = record[job.roles["answer"]]
        if "start" in job.roles:
            item["answer_start"] = record[job.roles["start"]]
    return item, asked


def texts_of(item: Any) -> tuple[str | None, str | None]:
    """What people would read of an input, for the rows that are never encoded."""
    if isinstance(item, Mapping):
        item = (item.get("question"), item.get("context"))
    parts = item if isinstance(item, tuple) and len(item) == 2 else (item, None)
    first, second = (p if isinstance(p, str) else None for p in parts)
    return first, second


def compute(explainer: Explainer, job: Job, plan: Plan, rows: Sequence[Row], advance: Advance) -> Profile:
    """Run the model on every row that was tokenised; rows of like length together."""
    profile = Profile()
    good = [row for row in rows if row.error is None]
    if len(good) < len(rows):
        advance(len(rows) - len(good), 0)
    if not good:
        return profile
    choose(explainer, job, good)
    lengths = [length(row) for row in good]
    shortest = good[lengths.index(min(lengths))]
    for group in pack(lengths, job.batch_tokens, explainer.max_pairs(plan), max_padding=MAX_PADDING):
        batch = [good[i] for i in group if good[i].error is None]
        try:
            score(explainer, job, plan, batch)
        except (NotSupported, KeyboardInterrupt):
            raise
        except Exception:
            for row in batch:
                alone(explainer, job, plan, row, shortest)
        tokens = sum(lengths[i] for i in group)
        profile.tokens += tokens
        profile.padded += len(group) * lengths[group[0]]
        advance(len(group), tokens)
    return profile


def length(row: Row) -> int:
    return len(row.encoded) if row.encoded is not None else 0


def choose(explainer: Explainer, job: Job, rows: Sequence[Row]) -> None:
    """The window that answers best, of rows that were read in several."""
    for row, encoded in zip(rows, explainer.choose([row.windows for row in rows], job.batch_tokens), strict=True):
        row.encoded, row.windows = encoded, ()


def alone(explainer: Explainer, job: Job, plan: Plan, row: Row, shortest: Row) -> None:
    """A row of a batch that failed, by itself. If the model fails even on a few harmless tokens, it is the model's error."""
    try:
        score(explainer, job, plan, [row])
    except (NotSupported, KeyboardInterrupt):
        raise
    except Exception as error:
        probe(explainer, job, plan, shortest, error)
        row.error = sentence(error)


def probe(explainer: Explainer, job: Job, plan: Plan, row: Row, error: Exception) -> None:
    assert row.encoded is not None
    assert row.question is not None
    short = row.encoded.select(row.encoded.real.nonzero()[0][:PROBE].tolist())
    try:
        explainer.attribute([short], [row.question], plan, batch_tokens=job.batch_tokens)
    except InputError:
        return  # what is asked does not fit so short a row: says nothing about the model
    except Exception:
        raise error from None


def score(explainer: Explainer, job: Job, plan: Plan, rows: Sequence[Row]) -> None:
    """One batch; scores are kept, the rest of each Explanation is let go at once."""
    encoded = [row.encoded for row in rows if row.encoded is not None]
    questions = [row.question for row in rows if row.question is not None]
    explanations = explainer.attribute(encoded, questions, plan, batch_tokens=job.batch_tokens)
    for i, row in enumerate(rows):
        per_target = zip(*(explanations[name][i] for name in plan.names), strict=True)
        row.found = [scored(dict(zip(plan.names, one, strict=True)), plan, job.scores) for one in per_target]


def scored(of: Mapping[str, Explanation], plan: Plan, dtype: str) -> Scored:
    """One target by every method."""
    scores = {}
    for name, e in of.items():
        scores[name] = e.scores.astype(dtype)
        if not np.isfinite(scores[name]).all():
            raise InputError(f"scores of {name} are too large for {dtype}: store them as float32.")
    facts = {name: own for name, e in of.items() if (own := told(e.options, plan.options(name)))}
    e = next(iter(of.values()))
    return Scored(e.target, e.target_index, e.contrast, e.prediction, e.probability, scores, facts)


def told(options: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """What a method reports of a row beyond the options it was asked with."""
    return {
        k: v for k, v in options.items() if k not in asked or (v is not asked[k] and as_json(v) != as_json(asked[k]))
    }


def as_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=lambda v: v.tolist() if hasattr(v, "tolist") else str(v))


def sentence(error: Exception) -> str:
    """What goes into the column `error`: whence's own sentences as they are, anything else with its kind."""
    text = " ".join(str(error).split()) or "no further word"
    return text if isinstance(error, WhenceError) else f"{type(error).__name__}: {text}"
