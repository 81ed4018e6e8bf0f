"""Run path methods: (row, point) pairs of all rows packed by a token budget, reduced to one small sum per row on the fly.

Pairs are packed longest rows first with all points of a row in sequence, so that only the rows of the batch at hand have
open sums: memory does not grow with the number of points, nor with the number of rows.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from whence.errors import UNEXPLAINED, Incomplete, ModelError, NotSupported
from whence.inputs import Batch, Encoded, to_device
from whence.methods.gradient import GRADIENT_OF
from whence.methods.ground import Ground, PathBatch
from whence.methods.path import Path, Tally
from whence.models import pad_id, special_ids, vocab_size
from whence.relevance.deeplift import DEEPLIFT, for_inputs, log_softmax
from whence.run.plan import MethodCall
from whence.run.progress import counting
from whence.run.session import Batches, Session, exclusively, pairs_that_fit
from whence.tasks import Scalar, Target, Term
from whence.trace import Recording
from whence.trace.attribution import RowScores
from whence.trace.checks import check_finite
from whence.trace.recording import gradients

CPU_TOKENS = 1024  # more at once is no faster there, and takes more memory
PAIR_BYTES = 1 << 30  # how much attention, written out in a paired run, one batch may hold
PAIR_COPIES = 8  # of an attention map, in such a run

Sums = dict[str, Tensor]


@exclusively
def run_paths(
    session: Session,
    rows: Sequence[Encoded],
    targets: Sequence[Target],
    calls: Sequence[MethodCall],
    *,
    batch_tokens: int,
    values: Sequence[float] | None = None,
    progress: bool | None = None,
) -> dict[str, list[RowScores]]:
    """Every path method on every row toward its target: {name: RowScores per row}.

    values: y of each row's target, where the model has answered already.
    batch_tokens: how many tokens, padding included, run at once at most.
    """
    with torch.inference_mode(False):
        ground = ground_of(session)
        paths = {call.name: call.method.function(ground, **call.options) for call in calls}
        budget = batch_tokens if session.device.type == "cuda" else min(batch_tokens, CPU_TOKENS)
        whole = Walker(session, ground, rows, [t.joint() for t in targets], values, budget, progress)
        if all(len(target.terms) == 1 for target in targets):
            return {name: complete(name, path, whole.walk(name, path)) for name, path in paths.items()}
        owners = [i for i, target in enumerate(targets) for _ in target.terms]
        terms = [term for target in targets for term in target.terms]
        apart = replace(whole, rows=[rows[i] for i in owners], terms=terms, values=None, finite=[])
        walked = {
            name: whole.walk(name, path) if path.additive else added_up(owners, apart.walk(name, path))
            for name, path in paths.items()
        }
        return {name: complete(name, paths[name], parts) for name, parts in walked.items()}


def complete(name: str, path: Path, parts: Sequence[RowScores]) -> list[RowScores]:
    """Parts with shares as numbers; warns of those that leave more unexplained than they may."""
    settled = [replace(part, options=part.facts()) for part in parts]
    shares = [part.options.get("unexplained") or 0.0 for part in settled]
    over = sum(share > UNEXPLAINED for share in shares)
    if over:
        warnings.warn(
            f"{name} leaves up to {max(shares):.1%} of the difference between the answer and its baseline's unexplained, in {over} of "
            f"{len(parts)} explanation{'s' * (len(parts) > 1)} more than {UNEXPLAINED:.0%}, so scores do not add up: {path.remedy}. "
            "Explanation.options['unexplained'] says how much is missing of each.",
            Incomplete,
            stacklevel=outside(),
        )
    return settled


def outside() -> int:
    """Of the function that called this one, the `stacklevel` of whoever called whence."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("whence."):
        frame, level = frame.f_back, level + 1
    return level


def added_up(owners: Sequence[int], parts: Sequence[RowScores]) -> list[RowScores]:
    """Of every row its terms' parts, added up."""
    totals: dict[int, RowScores] = {}
    for owner, part in zip(owners, parts, strict=True):
        totals[owner] = totals[owner] + part if owner in totals else part
    return list(totals.values())


def ground_of(session: Session) -> Ground:
    """The model's embeddings and the ids that may stand in a baseline."""
    table, tokenizer = session.model.get_input_embeddings(), session.task.encoder.tokenizer
    specials = special_ids(session.model.config, tokenizer)
    padding = pad_id(session.model.config)
    if tokenizer is not None:
        specials |= set(tokenizer.all_special_ids)
        padding = tokenizer.pad_token_id if padding is None else padding
    return Ground(
        embed=lambda ids: table(ids).detach(),
        vocabulary=vocab_size(session.model),
        special_ids=specials,
        mask_id=None if tokenizer is None else tokenizer.mask_token_id,
        pad_id=padding,
    )


@dataclass(frozen=True)
class Walker:
    """Rows with what is explained of each."""

    session: Session
    ground: Ground
    rows: Sequence[Encoded]
    terms: Sequence[Term]
    values: Sequence[float] | None  # y of each row, where the model has answered already
    batch_tokens: int
    progress: bool | None
    finite: list[Tensor] = field(default_factory=list)  # whether each batch's logits were; asked at the end

    def walk(self, name: str, path: Path) -> list[RowScores]:
        """One RowScores per row; rows that need more points than they had walk again."""
        found: dict[int, RowScores] = {}
        ends = self.ends(path) if path.ends else {}
        counts = dict.fromkeys(range(len(self.rows)), path.count)
        while counts:
            more: dict[int, int] = {}
            for row, sums in self.round(name, path, counts):
                values = {key: value.cpu().numpy() for key, value in sums.items()}
                result = path.finish(Tally(values, counts[row], ends.get(row)))
                if isinstance(result, RowScores):
                    found[row] = self.checked(name, row, result)
                else:
                    more[row] = result
            counts = dict(sorted(more.items()))
        if self.finite:
            check_finite(torch.stack(self.finite).all())
        return [found[row] for row in range(len(self.rows))]

    def checked(self, name: str, row: int, part: RowScores) -> RowScores:
        """Scores as float32, or float64 for a model that runs in it; refuses what is not finite."""
        if not np.isfinite(part.scores).all():
            raise ModelError(
                f"{name} gave scores that are not finite numbers for {' '.join(self.rows[row].tokens[:8])!r}; try "
                "dtype='float64'."
            )
        kind = np.float64 if self.session.model.dtype == torch.float64 else np.float32
        return replace(part, scores=part.scores.astype(kind))

    def round(self, name: str, path: Path, counts: Mapping[int, int]) -> Iterator[tuple[int, Sums]]:
        """The sums of each row over its points, as soon as the last one is done."""
        pairs = [(row, k) for row, count in counts.items() for k in range(count)]
        owners = [self.rows[row] for row, _ in pairs]

        open_sums: dict[int, Sums] = {}
        left = dict(counts)
        with counting(name, len(pairs), self.progress) as counter:
            complete: list[tuple[int, Sums]] = []  # handed out once the next batch runs, so that a GPU never waits
            batches = self.batches(owners, path.paired)
            for numbers in batches:
                sums_of_rows: list[tuple[int, int, Sums]] = []
                with batches.fitting(numbers):
                    points, rows = [pairs[i] for i in numbers], [owners[i] for i in numbers]
                    sums_of_rows = by_row([row for row, _ in points], rows, self.parts(path, rows, points, counts))
                yield from complete
                complete = []
                for row, done, sums in sums_of_rows:
                    before = open_sums.get(row)
                    open_sums[row] = sums if before is None else {key: before[key] + sums[key] for key in sums}
                    left[row] -= done
                    counter.advance(done)
                    if not left[row]:
                        complete.append((row, open_sums.pop(row)))
            yield from complete

    def batches(self, owners: Sequence[Encoded], paired: bool) -> Batches:
        """Points in batches, each as long as its row; a pair of runs (DeepLIFT) holds the attention of all layers."""
        if not paired:
            return self.session.batches(owners, self.batch_tokens)
        config = self.session.model.config
        map_bytes = config.num_hidden_layers * config.num_attention_heads * self.session.model.dtype.itemsize
        pair_bytes = 2 * PAIR_COPIES * map_bytes
        pairs_that_fit(pair_bytes, max(map(len, owners), default=0), self.session.device)  # or an error
        return self.session.batches(owners, self.batch_tokens // 2, max_pairs=PAIR_BYTES // pair_bytes)

    def parts(
        self, path: Path, rows: Sequence[Encoded], pairs: Sequence[tuple[int, int]], counts: Mapping[int, int]
    ) -> Sums:
        """What each point of one batch adds to its row's sums, (b, …)."""
        batch = self.session.collate(rows)
        here = self.here(batch, rows, [k for _, k in pairs], [counts[row] for row, _ in pairs])
        leg = path.leg(here)
        scalar = self.scalar([row for row, _ in pairs])
        if path.paired:
            both = self.session.collate([*rows, *rows])
            points = torch.cat([leg.points, leg.points - leg.span])
            with self.session.record(both, frozenset({"embeddings.grad"}), rules=DEEPLIFT, points=points) as recording:
                finite = recording.finite
                gradient, change = multipliers(recording, self.scalar([row for row, _ in pairs] * 2))
            self.finite.append(finite)
            return path.parts(leg, gradient * batch.valid[:, :, None], change)
        with self.session.record(batch, frozenset({GRADIENT_OF[path.of]}), points=leg.points) as recording:
            finite = recording.finite
            gradient = recording.toward(scalar).embeddings_grad(path.of)
        self.finite.append(finite)
        return path.parts(leg, gradient, None)

    def ends(self, path: Path) -> dict[int, tuple[float, float]]:
        """f(x) and f(baseline) of every row, without gradients; rows that differ in free tokens alone share a baseline."""
        values: dict[tuple[int, int], float] = {}
        first: dict[tuple[object, ...], int] = {}
        shared = [first.setdefault(blank(r, t), i) for i, (r, t) in enumerate(zip(self.rows, self.terms, strict=True))]
        pairs = [(row, 1) for row in first.values()]
        if path.of == "logit" and self.values is not None:
            values |= {(row, 0): float(y) for row, y in enumerate(self.values)}
        else:
            pairs += [(row, 0) for row in range(len(self.rows))]
        owners = [self.rows[row] for row, _ in pairs]

        batches = self.batches(owners, paired=False)
        for numbers in batches:
            with batches.fitting(numbers):
                rows, which = [owners[i] for i in numbers], [pairs[i][1] for i in numbers]
                batch = self.session.collate(rows)
                here = self.here(batch, rows, which, [2] * len(rows))
                points = torch.lerp(here.x, here.baseline(path.baseline), here.per_point(which))
                with self.session.record(batch, points=points) as recording:
                    recording.check()
                    at_points = value(recording, self.scalar([pairs[i][0] for i in numbers]), path.of).tolist()
                values |= zip([pairs[i] for i in numbers], at_points, strict=True)
        return {row: (values[row, 0], values[base, 1]) for row, base in enumerate(shared)}

    def here(self, batch: Batch, rows: Sequence[Encoded], points: Sequence[int], counts: Sequence[int]) -> PathBatch:
        x = self.ground.embed(batch.input_ids)
        free = np.zeros(tuple(batch.valid.shape), bool)
        for i, row in enumerate(rows):
            free[i, row.free] = True
        precise = x.to(torch.promote_types(x.dtype, torch.float32))
        ids = [row.real_ids for row in rows]
        return PathBatch(
            self.ground, ids, points, counts, precise, to_device(free, self.session.device), batch.own_valid
        )

    def scalar(self, numbers: Sequence[int]) -> Scalar:
        return Scalar.stack([self.terms[i] for i in numbers], self.session.device)


def blank(row: Encoded, term: Term) -> tuple[object, ...]:
    """All that the value at a fixed baseline depends on: what is not free, and what is explained."""
    free = set(row.free)
    kept = tuple(None if i in free else token for i, token in enumerate(row.input_ids))
    return kept, row.token_type_ids, row.attention_mask, row.position_ids, row.places, term


def by_row(owners: Sequence[int], rows: Sequence[Encoded], parts: Sums) -> list[tuple[int, int, Sums]]:
    """The points of a batch added up by row, padding cut off: (row, how many points, their sums)."""
    lengths = {row: len(encoded) for row, encoded in zip(owners, rows, strict=True)}
    place = {row: i for i, row in enumerate(lengths)}
    device = next(iter(parts.values())).device
    places = np.array([place[row] for row in owners])
    index, counts = to_device(places, device), np.bincount(places).tolist()
    sums = {
        key: torch.zeros(len(lengths), *v.shape[1:], dtype=torch.float64, device=device).index_add_(
            0, index, v.double()
        )
        for key, v in parts.items()
    }
    return [
        (row, counts[i], {key: s[i, : lengths[row]].clone() if s.dim() > 1 else s[i] for key, s in sums.items()})
        for row, i in place.items()
    ]


def value(recording: Recording, scalar: Scalar, of: str) -> Tensor:
    """The scalar itself: y for of="logit", p for "probability", −log p for "loss". (b,)"""
    if of == "logit":
        return recording.y(scalar).detach()
    log_probability = recording.log_probability(scalar)
    if log_probability is None:
        raise NotSupported("this model answers with a number, not with probabilities: use of='logit'.")
    return log_probability.detach().exp() if of == "probability" else -log_probability.detach()


def multipliers(recording: Recording, scalar: Scalar) -> tuple[Tensor, Tensor]:
    """DeepLIFT's multipliers (b, n, d) at the inputs' embeddings, and y(x) − y(x̄) (b,), of a paired recording.

    y is linear in logits or in log-probabilities; the latter hand multipliers to the logits by the rule of log-softmax.
    """
    assert recording.run is not None
    logits = recording.logits.detach().requires_grad_(True)  # (2b, places, options)
    logs = recording.log_probabilities
    logs = None if logs is None else logs.detach().requires_grad_(True)
    y = scalar.y(logits, logs)
    pairs = len(y) // 2
    at_logits, *at_logs = gradients(y[:pairs].sum(), [logits] if logs is None else [logits, logs], keep=False)
    start = at_logits[:pairs]
    for found in at_logs:
        start = start + log_softmax(logits.detach(), found[:pairs])
    with recording.run.carrying(None):
        (found,) = torch.autograd.grad(recording.logits, recording.embeddings[:1], for_inputs(start).to(logits.dtype))
    return found[:pairs], (y[:pairs] - y[pairs:]).detach()
