"""The perturbed rows of many texts, methods and metrics, made by the thousand, and the model's answers dealt out again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields

import numpy as np
from numpy.typing import NDArray

from whence.errors import NotSupported
from whence.evaluate.metrics import Answers, Steps
from whence.inputs import Encoded
from whence.models import first_position, pad_id, stand_in_ids
from whence.run.perturb import Rows, delete, hide, replace, score_rows
from whence.run.progress import Counter
from whence.run.session import Session
from whence.tasks import Term

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

# action → what is done to the tokens that the ranking's first k are not among ("keep", "reveal") or are among
DONE = {
    "delete": "delete",
    "keep": "delete",
    "hide": "hide",
    "reveal": "hide",
    "pad": "pad",
    "mask": "mask",
    "unk": "unk",
}
KEPT_FIRST = ("keep", "reveal")
LAST = np.iinfo(np.int64).max  # the rank of a token that a ranking leaves out


@dataclass
class Book:
    """Rankings of one text with counts of their first tokens, put down once each; made into tables all at once."""

    ranks: list[Ints] = field(default_factory=list)  # (n,) each: a token's place in the ranking
    counts: list[tuple[int, ...]] = field(default_factory=list)
    kept_first: list[bool] = field(default_factory=list)
    known: dict[tuple[bool, tuple[int, ...], bytes], tuple[int, int]] = field(default_factory=dict)
    length: int = 0

    def put(self, steps: Steps, n: int) -> tuple[int, int]:
        """The numbers [start, end) of the steps; those of a ranking that is known are shared."""
        kept_first = steps.action in KEPT_FIRST
        key = (kept_first, steps.counts, steps.order.tobytes())
        if key not in self.known:
            rank = np.full(n, LAST)
            rank[steps.order] = np.arange(len(steps.order))
            self.ranks.append(rank)
            self.counts.append(steps.counts)
            self.kept_first.append(kept_first)
            self.known[key] = (self.length, self.length + len(steps.counts))
            self.length += len(steps.counts)
        return self.known[key]

    def keep(self, fixed: Bools) -> Bools:
        """What each step keeps; fixed (n,) tokens are never lost. (steps, n)"""
        owner = np.repeat(np.arange(len(self.counts)), [len(c) for c in self.counts])
        first = np.stack(self.ranks)[owner] < np.concatenate(self.counts)[:, None]
        return np.where(np.array(self.kept_first)[owner, None], first | fixed, ~first)


@dataclass
class Wanted:
    """What all metrics want of one text, asked for once each: `ask` gives numbers, `rows` the distinct rows they stand for."""

    row: Encoded
    term: Term
    asked: int = 0
    _books: dict[str, Book] = field(default_factory=dict)  # by what is done

    def ask(self, steps: Steps) -> tuple[str, int, int]:
        """Put down one metric's steps; what to look the answers up by."""
        done = DONE[steps.action]
        self.asked += len(steps.counts)
        return done, *self._books.setdefault(done, Book()).put(steps, len(self.row))

    def distinct(self) -> dict[str, tuple[Bools, Ints]]:
        """What is done → the distinct tables (k, n), and for every asked row which of them it is."""
        fixed = np.ones(len(self.row), bool)
        fixed[list(self.row.free)] = False
        found = {}
        for done, book in self._books.items():
            keep = book.keep(fixed)
            packed = np.packbits(keep, axis=1)
            _, first, inverse = np.unique(
                packed.view(f"V{packed.shape[1]}").ravel(), return_index=True, return_inverse=True
            )
            found[done] = (keep[first], inverse)
        return found


@dataclass(frozen=True)
class Perturber:
    """Makes changed rows for one model."""

    session: Session
    batch_tokens: int

    def rows(self, row: Encoded, done: str, keep: Bools) -> Rows:
        """k changed copies of a row, each keeping the tokens that `keep` (k, n) says."""
        if done == "delete":
            return delete(row, keep)
        if done != "hide":
            return replace(row, keep, self.token(done))
        start = first_position(self.session.model)
        # models that count positions from their padding id on leave out padding that stands within a text
        counted = not start or pad_id(self.session.model.config) not in row.input_ids
        if start is not None and counted and row.position_ids is None and row.attention_mask is None:
            return closed_up(row, keep, start)
        return hide(row, keep, self.token("mask"))

    def token(self, name: str) -> int:
        """The id of [PAD], [MASK] or the unknown token."""
        known = stand_in_ids(self.session.model.config, self.session.task.encoder.tokenizer)
        if name not in known:
            raise NotSupported(
                f"this model has no {name!r} token to replace others by; use a metric that deletes tokens."
            )
        return known[name]

    def answer(self, wanted: Sequence[Wanted], counter: Counter) -> list[Replies]:
        """The model's answers to everything that is wanted, every distinct row run once."""
        with self.session.exclusive():
            return self._answer(wanted, counter)

    def _answer(self, wanted: Sequence[Wanted], counter: Counter) -> list[Replies]:
        batches: dict[bool, list[tuple[int, str, Rows]]] = {}  # rows with positions of their own run by themselves
        inverses: list[dict[str, Ints]] = []
        for number, one in enumerate(wanted):
            original = self.rows(one.row, "delete", np.ones((1, len(one.row)), bool))
            batches.setdefault(original.positions is not None, []).append((number, "original", original))
            inverses.append({})
            for done, (keep, inverse) in one.distinct().items():
                made = self.rows(one.row, done, keep)
                batches.setdefault(made.positions is not None, []).append((number, done, made))
                inverses[-1][done] = inverse
        replies = [Replies(inverse) for inverse in inverses]
        for parts in batches.values():
            values = score_rows(
                self.session,
                Rows.join([rows for _, _, rows in parts]),
                [wanted[number].term for number, _, _ in parts],
                repeats=[len(rows) for _, _, rows in parts],
                batch_tokens=self.batch_tokens,
                progress=counter,
                label="evaluating",
            )
            if values.log_probability is None:
                raise NotSupported(
                    "this model gives no probabilities (regression): erasure metrics cannot be computed."
                )
            start = 0
            for number, done, rows in parts:
                part = slice(start, start + len(rows))
                replies[number].put(done, values.log_probability[part], values.predicted[part])
                start += len(rows)
        return replies


@dataclass
class Replies:
    """The answers to one text's rows."""

    inverse: dict[str, Ints]
    _found: dict[str, tuple[NDArray[np.float64], Ints]] = field(default_factory=dict)
    _made: dict[tuple[str, int, int], Answers] = field(default_factory=dict)

    def put(self, done: str, log_probability: NDArray[np.float64], predicted: Ints) -> None:
        self._found[done] = (log_probability, predicted)

    def answers(self, done: str, start: int, end: int) -> Answers:
        """Metrics that asked for the same rows share one object, and what it works out."""
        key = (done, start, end)
        if key not in self._made:
            (original,), (choice,) = self._found["original"]
            at = self.inverse[done][start:end]
            found = self._found[done]
            self._made[key] = Answers(float(original), int(choice), found[0][at], found[1][at])
        return self._made[key]


def closed_up(row: Encoded, keep: Bools, start: int) -> Rows:
    """Hidden rows without their hidden tokens: what nobody attends to need not be computed, if the others keep their positions.

    The same answer as `hide` for encoders (a test holds it), at half the tokens.
    """
    positions = np.broadcast_to(np.arange(len(row)) + start, keep.shape)
    rows = delete(row, keep)
    return replace_fields(rows, positions=positions[keep])
