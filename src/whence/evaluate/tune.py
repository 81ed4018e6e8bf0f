"""`whence tune`: the method, layer and options that explain *this* model best, on a sample of the user's own texts.

Successive halving (Jamieson & Talwalkar 2016): all candidates are measured on a few texts, the best third goes on to twice as
many, and so on, so that hopeless candidates stop early. The predicted class is explained, so no labels are needed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whence.corpus.bad_rows import BadRow
from whence.errors import InputError
from whence.evaluate import statistics
from whence.evaluate.candidates import Candidate, parse
from whence.evaluate.data import Example, sample_of
from whence.evaluate.engine import Bench, Plan
from whence.evaluate.recipe import Recipe
from whence.evaluate.run import choose_metrics, usable
from whence.explainer import Explainer
from whence.inputs.numbers import seed_of
from whence.models import layers_of
from whence.registry import get_method
from whence.render.table import Table
from whence.run.limits import BATCH_TOKENS
from whence.run.progress import counting
from whence.version import __version__

Floats = NDArray[np.float64]

OBJECTIVE = ("comprehensiveness", "sufficiency", "revealing-auc:probability", "hiding-auc:probability")
FINALISTS = 4
KEPT = 3  # one in three goes on to the next round
FIRST_SHARE = 16  # the first round has 1/16 of the texts
CHEAP = ("trace", "path")  # kinds of methods that are tried unless others are asked for


@dataclass(frozen=True)
class Tuned:
    """What tuning found."""

    recipe: Recipe
    objective: tuple[str, ...]
    rows: list[dict[str, Any]]  # every candidate: texts it was measured on, mean rank, and its figures
    seconds: float
    errors: tuple[BadRow, ...] = ()  # rows of the data that could not be read

    def table(self) -> Table:
        """Every candidate, the best first; those that stopped early were measured on fewer texts."""
        return Table({k: f"{v:.3f}" if isinstance(v, float) else v for k, v in row.items()} for row in self.rows)

    def sentence(self) -> str:
        """The choice, how sure it is and what it costs."""
        r = self.recipe
        return (
            f"{r.title}: best of {len(self.rows)} candidates by mean rank over {', '.join(self.objective)} on {r.texts} "
            f"texts; with other texts of this kind it would be chosen again {100 * (r.sure or 0):.0f}% of the time. It costs "
            f"{r.ms_per_text:.1f} ms per text here ({get_method(r.method).cost}). Tuned in {self.seconds:.0f} s."
        )

    def to_dict(self) -> dict[str, Any]:
        errors = [row.to_dict() for row in self.errors]
        return {"recipe": asdict(self.recipe), "candidates": self.rows, "seconds": self.seconds, "errors": errors}


def tune(
    explainer: Explainer,
    data: Any,
    methods: Sequence[str] | None = None,
    *,
    objective: Sequence[str] | None = None,
    limit: int | None = 200,
    shuffle: bool = False,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    split: str | None = None,
    batch_tokens: int = BATCH_TOKENS,
    progress: bool | None = None,
    strict: bool = False,
) -> Tuned:
    """Find the candidate with the best mean rank over the objective's metrics.

    methods: candidates as names or "name(option=value)"; None tries every single-pass and path method, at every layer where
        a method has layers.
    strict: stop at the first row that cannot be read; else such rows are left out, counted and named, and `Tuned.errors` has them.
    """
    started = time.monotonic()
    seed_of(seed)
    sample = sample_of(
        explainer, data, columns=columns, limit=limit, split=split, seed=seed, shuffle=shuffle, strict=strict
    )
    order = np.random.default_rng(seed).permutation(len(sample.examples))
    examples = [sample.examples[i] for i in order]
    candidates = default_candidates(explainer, examples) if methods is None else [parse(m) for m in methods]
    if not candidates:
        raise InputError("no candidate to tune: give at least one method.")
    metrics = choose_metrics(explainer, objective or OBJECTIVE, examples, models=False)
    better = [m.better for m in metrics]
    values: dict[str, Floats] = {c.title: np.zeros((len(metrics), 0)) for c in candidates}  # (metrics, texts)
    alive = list(candidates)
    with counting("tuning", 0, progress) as counter:
        done = 0
        for count in rounds(len(examples), len(candidates)):
            bench = Bench(explainer, Plan(tuple(alive), metrics, seed, draws=0, batch_tokens=batch_tokens))
            chunk = examples[done:count]
            counter.expect(counter.done + bench.expected(chunk))
            found = bench.measure(chunk, counter)
            for k, one in enumerate(alive):
                new = np.stack([found.values[m.title][k] for m in metrics])
                values[one.title] = np.concatenate([values[one.title], new], axis=1)
            done = count
            if count < len(examples):
                alive = survivors(alive, values, better)
    final = np.stack([values[c.title] for c in alive])  # (candidates, metrics, texts)
    ranks = mean_ranks(np.nanmean(final, axis=2), better)
    best = alive[int(np.argmin(ranks))]
    recipe = Recipe(
        method=best.method,
        options=dict(best.options),
        model=explainer.name,
        tuned=best_options(candidates, values, better),
        objective=tuple(m.title for m in metrics),
        texts=len(examples),
        sure=float(probability_best(final, better, seed)[int(np.argmin(ranks))]),
        ms_per_text=cost(explainer, best, examples[:16], batch_tokens),
        whence=__version__,
    )
    rows = describe(candidates, alive, values, better, [m.title for m in metrics])
    return Tuned(recipe, recipe.objective, rows, time.monotonic() - started, sample.bad)


def default_candidates(explainer: Explainer, examples: Sequence[Example]) -> list[Candidate]:
    """Every cheap method that can explain the model: at every layer, if it takes one, else by default and in its variants."""
    depth = len(layers_of(explainer.model))
    found: list[Candidate] = []
    for method in usable(explainer, examples):
        if method.kind not in CHEAP:
            continue
        if "layer" in method.defaults:
            found += [Candidate(method.name, {"layer": layer}) for layer in range(1, depth + 1)]
        else:
            found += [Candidate(method.name, o) for o in ({}, *method.variants)]
    return found


def rounds(texts: int, candidates: int) -> list[int]:
    """How many texts have been used after each round: twice as many each time, all of them in the last.

    >>> rounds(200, 40), rounds(200, 3)
    ([12, 25, 50, 100, 200], [200])
    """
    counts = [texts]
    while counts[0] > max(8, texts // FIRST_SHARE) and candidates > FINALISTS:
        counts.insert(0, counts[0] // 2)
    return counts


def survivors(alive: Sequence[Candidate], values: Mapping[str, Floats], better: Sequence[str]) -> list[Candidate]:
    """The best third, but never fewer than the finalists."""
    ranks = mean_ranks(np.nanmean(np.stack([values[c.title] for c in alive]), axis=2), better)
    keep = max(FINALISTS, -(-len(alive) // KEPT))
    chosen = sorted(np.argsort(ranks, kind="stable")[:keep].tolist())
    return [alive[i] for i in chosen]


def mean_ranks(means: Floats, better: Sequence[str]) -> Floats:
    """(candidates, metrics) → (candidates,)"""
    ranks = [statistics.ranks(means[:, m], way) for m, way in enumerate(better)]
    return np.asarray(np.mean(ranks, axis=0), dtype=np.float64)


def probability_best(values: Floats, better: Sequence[str], seed: int) -> Floats:
    """How often each candidate has the best mean rank when the texts are drawn anew. (candidates, metrics, texts) → (candidates,)"""
    candidates, metrics, texts = values.shape
    draws = statistics.resamples(texts, seed)
    means = np.einsum("cmt,dt->dmc", np.nan_to_num(values), draws) / texts  # (draws, metrics, candidates)
    total = sum(statistics.ranks(means[:, m], better[m]) for m in range(metrics))
    wins = np.bincount(np.argmin(np.asarray(total), axis=1), minlength=candidates)
    return wins / len(draws)


def best_options(
    candidates: Sequence[Candidate], values: Mapping[str, Floats], better: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """For every method with options tried, the best of them: those that went furthest, then by mean rank."""
    found = {}
    for name in {c.method for c in candidates if c.options}:
        own = [c for c in candidates if c.method == name]
        most = max(values[c.title].shape[1] for c in own)
        last = [c for c in own if values[c.title].shape[1] == most]
        ranks = mean_ranks(np.nanmean(np.stack([values[c.title] for c in last]), axis=2), better)
        found[name] = dict(last[int(np.argmin(ranks))].options)
    return dict(sorted(found.items()))


def describe(
    candidates: Sequence[Candidate],
    alive: Sequence[Candidate],
    values: Mapping[str, Floats],
    better: Sequence[str],
    metrics: Sequence[str],
) -> list[dict[str, Any]]:
    """One row per candidate; those measured on more texts first, ranked among their like."""
    rows = []
    for texts in sorted({values[c.title].shape[1] for c in candidates}, reverse=True):
        own = [c for c in candidates if values[c.title].shape[1] == texts]
        means = np.nanmean(np.stack([values[c.title] for c in own]), axis=2)
        ranks = mean_ranks(means, better)
        for i in np.argsort(ranks, kind="stable"):
            figures = dict(zip(metrics, means[i].tolist(), strict=True))
            rows.append({"candidate": own[i].title, "texts": texts, "mean rank": float(ranks[i]), **figures})
    return rows


def cost(explainer: Explainer, best: Candidate, examples: Sequence[Example], batch_tokens: int) -> float:
    """Milliseconds per text of explaining with the chosen candidate, on this machine."""
    inputs = [e.input for e in examples]
    explainer.explain(inputs[:1], best.method, progress=False, **best.options)
    started = time.perf_counter()
    explainer.explain(inputs, best.method, batch_tokens=batch_tokens, progress=False, **best.options)
    return (time.perf_counter() - started) * 1000 / len(inputs)
