"""What is explained, as numbers: the terms of a row's target, and the scalars of a batch: every row's y and log p from the task's logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from whence.errors import NotSupported
from whence.inputs import to_device

PREDICTED = -1  # in place of an option's number: the one that the model predicts, which only the device knows yet


@dataclass(frozen=True)
class Term:
    """One scalar of one row: y = Σ_m logits[places[m], indices[m]], less logits[places[m], contrasts[m]] if there are any."""

    places: tuple[int, ...]  # rows of the task's logits (places, options)
    indices: tuple[int, ...]  # which option at each place
    readouts: tuple[int, ...]  # the token positions at which these are read
    contrasts: tuple[int, ...] | None = None
    of: str = "logit"  # or "log-probability"
    # where an answer is read at several tokens at once (a mean): how much of it at each of `readouts`, which are then as many as
    # these, not as the places; none if it is read at no token. None: whole at each
    shares: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Target:
    """What one Explanation explains. Its scores are the sum of its terms' (question answering: start and end)."""

    label: str
    index: int
    terms: tuple[Term, ...]
    contrast: str | None = None
    prediction: str | None = None  # what the model says in its place, where that is not simply its answer
    reach: int = -1  # the last token at which the contrast is read, where that is not where the target is

    @property
    def last_readout(self) -> int:
        """−1 if it is read at no token."""
        return max(self.reach, *(r for term in self.terms for r in term.readouts), -1)

    def joint(self) -> Term:
        """All terms as one scalar."""
        first = self.terms[0]
        if len(self.terms) == 1:
            return first
        contrasts = [c for t in self.terms for c in t.contrasts or ()]
        shares = None
        if any(t.shares is not None for t in self.terms):
            each = [(1.0,) * len(t.readouts) if t.shares is None else t.shares for t in self.terms]
            shares = tuple(share for own in each for share in own)
        return Term(
            tuple(p for t in self.terms for p in t.places),
            tuple(i for t in self.terms for i in t.indices),
            tuple(r for t in self.terms for r in t.readouts),
            tuple(contrasts) if contrasts else None,
            first.of,
            shares,
        )


@dataclass(frozen=True)
class Scalar:
    """Terms of a batch, padded to the same number of places m; a padded place weighs 0. All tensors hold whole numbers."""

    place: Tensor  # (b, m)
    index: Tensor  # (b, m) PREDICTED until it is `settled`
    against: Tensor  # (b, m) what is subtracted at each place
    readout: Tensor  # (b, k) token positions: one per place, but where answers are read at several at once
    weight: Tensor  # (b, m) 1, or 0 for padding
    share: Tensor  # (b, k) how much is read at each position: `weight`, but where answers are read at several at once
    contrastive: Tensor  # (b,) 1 where anything is subtracted
    logarithmic: Tensor  # (b,) 1 where log-probabilities are summed, not logits
    any_contrast: bool  # known without asking the device, as are the next two
    any_logarithm: bool
    any_padding: bool
    any_open: bool = False  # an index is PREDICTED
    all_open: bool = False
    any_unread: bool = False  # an answer is read at no token

    @classmethod
    def stack(cls, terms: Sequence[Term], device: torch.device) -> Scalar:
        """One row per term. Rows of a batch have few different terms, often the same object, and each is looked at once."""
        distinct = {id(term): term for term in terms}
        known = list(dict.fromkeys(distinct.values()))
        if len(known) == 1:
            return same_term(known[0], len(terms), device)
        number = {term: i for i, term in enumerate(known)}
        of_object = {key: number[term] for key, term in distinct.items()}
        rows = [of_object[id(term)] for term in terms]
        table = tabulated(known).take(rows, axis=1)
        return cls.of_table(known, to_device(table, device)).read_at(known, rows)  # one copy

    @classmethod
    def of_table(cls, known: Sequence[Term], there: Tensor) -> Scalar:
        """there: (7, b, m), as `tabulated` has it; known: the terms that stand in it."""
        widths = [len(t.places) for t in known]
        place, index, against, readout, weight, subtracted, logs = there.unbind()  # each (b, m)
        return cls(
            place=place,
            index=index,
            against=against,
            readout=readout,
            weight=weight,
            share=weight,
            contrastive=subtracted[:, 0],
            logarithmic=logs[:, 0],
            any_contrast=any(t.contrasts is not None for t in known),
            any_logarithm=any(t.of == "log-probability" for t in known),
            any_padding=min(widths) < max(widths),
            any_open=any(PREDICTED in t.indices for t in known),
            all_open=all(set(t.indices) == {PREDICTED} for t in known) and min(widths) == max(widths),
        )

    def read_at(self, known: Sequence[Term], rows: Sequence[int]) -> Scalar:
        """With shares of several positions, where a term has them. rows: each row's term among `known`."""
        if all(term.shares is None for term in known):
            return self
        width = max(1, *(len(term.readouts) for term in known))
        positions, shares = np.zeros((len(known), width), np.int64), np.zeros((len(known), width))
        for i, term in enumerate(known):
            positions[i, : len(term.readouts)] = term.readouts
            shares[i, : len(term.readouts)] = 1.0 if term.shares is None else term.shares
        device = self.readout.device
        readout, share = (to_device(table.take(rows, axis=0), device) for table in (positions, shares))
        return replace(self, readout=readout, share=share, any_unread=any(not term.readouts for term in known))

    def settled(self, logits: Tensor) -> Scalar:
        """With the options that the model predicts, by its logits (b, places, options), where terms leave that open; nobody waits."""
        if not self.any_open:
            return self
        best = logits.detach().argmax(-1)  # (b, places)
        index = best if best.shape[1] == 1 else best.gather(1, self.place)
        if not self.all_open:
            index = torch.where(self.index == PREDICTED, index, self.index)
        return replace(self, index=index, any_open=False, all_open=False)

    def take(self, rows: Tensor) -> Scalar:
        """The scalars of a batch, by number, from those of a whole call."""
        return Scalar(
            place=self.place[rows],
            index=self.index[rows],
            against=self.against[rows],
            readout=self.readout[rows],
            weight=self.weight[rows],
            share=self.share[rows],
            contrastive=self.contrastive[rows],
            logarithmic=self.logarithmic[rows],
            any_contrast=self.any_contrast,
            any_logarithm=self.any_logarithm,
            any_padding=self.any_padding,
            any_unread=self.any_unread,
        )

    def chosen(self, values: Tensor) -> Tensor:
        """Σ_m values[place, index]: (b, places, options) → (b,)."""
        return self._pick(values, self.index)

    def rejected(self, values: Tensor) -> Tensor:
        """Σ_m values[place, against], 0 for rows without a contrast: (b,)."""
        return self._pick(values, self.against) * self.contrastive

    def y(self, logits: Tensor, log_probabilities: Tensor | None) -> Tensor:
        """What is explained: (b,). A contrast's normaliser cancels, so its log-probabilities are logits too."""
        y = self._pick(logits, self.index)
        if self.any_contrast:
            y = y - self.rejected(logits)
        if not self.any_logarithm:
            return y
        if log_probabilities is None:
            raise NotSupported("this model answers with numbers, not with probabilities.")
        log_p = self._pick(log_probabilities, self.index)
        if self.any_contrast:
            log_p = log_p - self.rejected(log_probabilities)
        return torch.where(self.logarithmic.bool(), log_p, y.to(log_p.dtype))

    def positions(self) -> list[list[int]]:
        """Every row's readouts, padding left out."""
        return [[r for r, _ in row] for row in self.shared_positions()]

    def shared_positions(self) -> list[list[tuple[int, float]]]:
        """Every row's readouts and how much is read at each, padding left out."""
        self.check_read()
        pairs = zip(self.readout.tolist(), self.share.tolist(), strict=True)
        return [[(r, float(w)) for r, w in zip(row, shares, strict=True) if w] for row, shares in pairs]

    def check_read(self) -> None:
        """Refuse answers that are read at no token, where one is followed."""
        if self.any_unread:
            raise NotSupported(
                "this classifier does not read its answer at one token of its last layer, nor at the mean of them all, and this "
                "method follows the row of attention where an answer is read",
                lacks=("readout",),
            )

    def log_probability(self, logits: Tensor, log_probabilities: Tensor | None) -> Tensor | None:
        """log p of what is explained; of a contrast, log p(this rather than that) = log σ(logit − logit). (b,)"""
        if log_probabilities is None:
            return None
        plain = self._pick(log_probabilities, self.index)
        if not self.any_contrast:
            return plain
        difference = (self.chosen(logits) - self._pick(logits, self.against)).to(plain.dtype)
        return torch.where(self.contrastive.bool(), F.logsigmoid(difference), plain)

    def _pick(self, values: Tensor, index: Tensor) -> Tensor:
        places, options = values.shape[1:]
        at = index if places == 1 else self.place * options + index
        picked = values.flatten(1).gather(1, at)  # (b, m)
        if picked.shape[1] == 1:
            return picked.squeeze(1)
        return (picked * self.weight if self.any_padding else picked).sum(-1)


def tabulated(terms: Sequence[Term]) -> NDArray[np.int64]:
    """What the tensors of a `Scalar` hold, in their order: (7, terms, m)."""
    width = max(len(t.places) for t in terms)

    def padded(values: Sequence[Sequence[int]]) -> list[list[int]]:
        return [[*v, *[0] * (width - len(v))] for v in values]

    return np.array(
        [
            padded([t.places for t in terms]),
            padded([t.indices for t in terms]),
            padded([t.contrasts or (0,) * len(t.places) for t in terms]),  # some option that there is
            padded([t.readouts if t.shares is None else () for t in terms]),  # those with shares: `Scalar.read_at`
            padded([[1] * len(t.places) for t in terms]),
            padded([(t.contrasts is not None,) for t in terms]),
            padded([(t.of == "log-probability",) for t in terms]),
        ],
        np.int64,
    )


@lru_cache(256)
def one_term(term: Term, device: torch.device) -> Tensor:
    """A term's table (7, 1, m) on a device, where most batches ask for the same one again. Made by a copy that is waited for: it
    is there for whatever stream uses it next."""
    with torch.inference_mode(False):
        return torch.from_numpy(tabulated([term])).to(device)


@lru_cache(256)
def same_term(term: Term, rows: int, device: torch.device) -> Scalar:
    """Of rows that all have this term: views of its table."""
    with torch.inference_mode(False):
        return Scalar.of_table([term], one_term(term, device).expand(-1, rows, -1)).read_at([term], [0] * rows)
