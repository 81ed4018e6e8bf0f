"""Texts × methods × metrics → numbers per text: explain, ask for every perturbed row once, measure; a few texts at a time."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whence.errors import InputError, NotSupported
from whence.evaluate.candidates import Candidate, explain, explanation_for
from whence.evaluate.data import Example, answer_tokens, class_of, marked_tokens
from whence.evaluate.metrics import Case, Measured
from whence.evaluate.metrics.registry import Metric
from whence.evaluate.perturbed import Perturber, Replies, Wanted
from whence.explainer import Explainer
from whence.explanation import Explanation
from whence.inputs import Encoded
from whence.inputs.numbers import short
from whence.methods.baseline import draw
from whence.run.progress import Counter
from whence.tasks import Question, Term

Floats = NDArray[np.float64]

BASELINE = "random"  # of every report: what `methods.baseline.draw` draws
DRAWS = 20  # of the random baseline, as in Decoded saliency §4.1
CHUNK = {"cpu": 16}  # texts that are explained, perturbed and kept together
LARGE_CHUNK = 256  # on other devices


@dataclass(frozen=True)
class Plan:
    """What is measured, and how."""

    candidates: tuple[Candidate, ...]
    metrics: tuple[Metric, ...]
    seed: int = 0
    draws: int = DRAWS
    target: str = "predicted"  # or "label": explain the class that the data give
    batch_tokens: int = 8192

    @property
    def names(self) -> list[str]:
        """The methods in the order of the table, the baseline last."""
        return [*(c.title for c in self.candidates), *([BASELINE] if self.draws else [])]

    def needs(self, need: str) -> bool:
        return any(need in m.needs for m in self.metrics)


@dataclass
class Results:
    """Numbers of some texts; arrays are (methods, texts, …), NaN where a text was not measured."""

    values: dict[str, Floats]  # metric → (methods, texts)
    weights: dict[str, Floats]  # metric → (texts,)
    curves: dict[str, Floats]  # metric → (methods, texts, grid)
    cases: dict[str, list[Case]] = field(default_factory=dict)  # method → cases, for metrics over the whole corpus

    def __len__(self) -> int:
        return len(next(iter(self.weights.values()))) if self.weights else len(next(iter(self.cases.values()), []))


def join(parts: Sequence[Results]) -> Results:
    """All texts of all parts, in order."""
    first = parts[0]
    return Results(
        {m: np.concatenate([p.values[m] for p in parts], axis=1) for m in first.values},
        {m: np.concatenate([p.weights[m] for p in parts]) for m in first.weights},
        {m: np.concatenate([p.curves[m] for p in parts], axis=1) for m in first.curves},
        {name: [c for p in parts for c in p.cases[name]] for name in first.cases},
    )


@dataclass(frozen=True)
class Bench:
    """One model (and perhaps others that differ by seed) ready to measure chunks of examples under a plan."""

    explainer: Explainer
    plan: Plan
    others: tuple[Explainer, ...] = ()

    @property
    def chunk(self) -> int:
        return CHUNK.get(self.explainer.device.type, LARGE_CHUNK)

    def measure(self, examples: Sequence[Example], counter: Counter) -> Results:
        """Every method and metric on a few examples."""
        rows, cases = self.cases(examples)
        wanted, keys = self.ask(rows, cases)
        if wanted:
            perturber = Perturber(self.explainer.session, self.plan.batch_tokens)
            before, asked = counter.done, sum(one.asked for one in wanted)
            replies = perturber.answer(wanted, counter)
            counter.advance(max(0, asked - (counter.done - before)))  # the others were asked for more than once
        else:
            replies = [Replies({}) for _ in examples]
            counter.advance(len(examples))
        return self.collect(cases, replies, keys)

    def rows(self, examples: Sequence[Example]) -> list[Encoded]:
        """The rows that are perturbed; the window that a long input is read in is of no use to an erasure metric."""
        task = self.explainer.session.task
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `explain` says already which texts were cut
            encoded = task.encode([e.input for e in examples], [Question()] * len(examples), "truncate")
        return [windows[0] for windows in encoded]

    def expected(self, examples: Sequence[Example]) -> int:
        """How many perturbed rows will be asked for: it depends on lengths only."""
        erasing = [m for m in self.plan.metrics if m.perturbs]
        if not erasing:
            return len(examples)
        total = 0
        for row in self.rows(examples):
            steps = [m.rows(Case(np.zeros(len(row)), untouchable(row), row.input_ids)) for m in erasing]
            total += sum(len(s.counts) for s in steps if s is not None)
        return total * (len(self.plan.candidates) + self.plan.draws)

    def cases(self, examples: Sequence[Example]) -> tuple[list[Encoded], dict[str, list[list[Case]]]]:
        """The rows, and per method and text its case; one per draw for the baseline."""
        plan, labels = self.plan, self.explainer.labels
        inputs, rows = [e.input for e in examples], self.rows(examples)
        if self.others and any(len(row.places) > 1 for row in rows):
            raise InputError("jaccard and spearman compare models at one [MASK] a text; some texts have several.")
        classes = [class_of(e.label, labels) if labels else None for e in examples]
        every = plan.needs("every-class")
        target: Any = "all" if every else list(classes) if plan.target == "label" else None
        if plan.candidates:
            found = explain(self.explainer, inputs, plan.candidates, target, batch_tokens=plan.batch_tokens)
        else:
            found = {}
        about = self.about(inputs, target, found)
        chosen = [
            c if plan.target == "label" and c is not None else own for c, own in zip(classes, about.said, strict=True)
        ]
        peers = [self.peers(one, inputs, chosen) for one in self.others]
        facts = [self.facts(e, x, c) for e, x, c in zip(examples, about.explanations, classes, strict=True)]
        made: dict[str, list[list[Case]]] = {}
        for title, explanations in found.items():
            made[title] = []
            for i, own in enumerate(explanations):
                scores = scores_of(explanation_for(own, chosen[i]))
                others = tuple(scores_of(e) for e in own if e.target_index != chosen[i]) if every else ()
                models = (scores, *(peer[title][i] for peer in peers)) if peers else ()
                made[title].append([Case(scores, target=chosen[i], others=others, models=models, **facts[i])])
        if plan.draws:
            made[BASELINE] = [
                self.baseline(chosen[i], facts[i], len(labels) if every else 1) for i in range(len(inputs))
            ]
        return rows, made

    def about(self, inputs: list[Any], target: Any, found: dict[str, list[Any]]) -> About:
        """An explanation of each text to read tokens off, and the class that the model predicts."""
        first = next(iter(found.values()), None)
        if first is None:
            first = self.explainer.explain(inputs, BASELINE, target, progress=False)
        explanations = [e[0] if isinstance(e, list) else e for e in first]
        labels = self.explainer.labels
        known = [labels.index(e.prediction) if e.prediction in labels else e.target_index for e in explanations]
        return About(explanations, known)

    def peers(self, other: Explainer, inputs: list[Any], chosen: Sequence[int]) -> dict[str, list[Floats]]:
        """Another model's scores for the same classes, or words at one place."""
        found = explain(other, inputs, self.plan.candidates, list(chosen), batch_tokens=self.plan.batch_tokens)
        return {title: [scores_of(e) for e in own] for title, own in found.items()}

    def facts(self, example: Example, e: Explanation, label: int | None) -> dict[str, Any]:
        """What the data say of one text, in the model's own tokens."""
        rationale = None
        if example.rationales is not None and e.text is not None:
            rationale = marked_tokens(example.rationales, e.text, e.offsets, e.segments)
        answer = None if example.answer is None else answer_tokens(example.answer, e.offsets, e.segments)
        special = np.asarray(e.special, dtype=bool)
        return {"special": special, "ids": e.input_ids, "label": label, "rationale": rationale, "answer": answer}

    def baseline(self, target: int, facts: dict[str, Any], classes: int) -> list[Case]:
        """Random scores know nothing of classes; every model of a set has draws of its own."""
        cases = []
        for turn in range(self.plan.draws):
            seeds = [self.plan.seed * 1_000_003 + turn + 1000 * model for model in range(1 + len(self.others))]
            drawn = [draw(seed, facts["ids"]) for seed in seeds]
            models = tuple(drawn) if self.others else ()
            cases.append(Case(drawn[0], target=target, others=(drawn[0],) * (classes - 1), models=models, **facts))
        return cases

    def ask(self, rows: Sequence[Encoded], cases: dict[str, list[list[Case]]]) -> tuple[list[Wanted], Keys]:
        """Put down every perturbed row that a metric wants, and where its answers will be."""
        erasing = [m for m in self.plan.metrics if m.perturbs]
        keys: Keys = {}
        if not erasing:
            return [], keys
        if self.explainer.task != "sequence-classification":
            raise NotSupported(
                f"erasure metrics ({erasing[0].name}, …) measure classifiers; this is {self.explainer.task}."
            )
        alike: dict[tuple[Any, ...], list[Metric]] = {}  # metrics that want the same rows
        for metric in erasing:
            alike.setdefault(metric.rows_key, []).append(metric)
        wanted = []
        for i, row in enumerate(rows):
            target = next(iter(cases.values()))[i][0].target
            wanted.append(Wanted(row, Term((0,), (target,), (0,))))
            for name, own in cases.items():
                for turn, case in enumerate(own[i]):
                    for first, *others in alike.values():
                        steps = first.rows(case)
                        if steps is not None:
                            key = keys[name, i, turn, first.title] = wanted[i].ask(steps)
                            for metric in others:
                                keys[name, i, turn, metric.title] = key
                            wanted[i].asked += len(others) * len(steps.counts)
        return wanted, keys

    def collect(self, cases: dict[str, list[list[Case]]], replies: Sequence[Replies], keys: Keys) -> Results:
        """Numbers and curves per method and text; draws of the baseline are averaged."""
        names, n = self.plan.names, len(replies)
        results = Results({}, {}, {})
        for metric in self.plan.metrics:
            if metric.over == "corpus":
                results.cases = {name: [case for own in cases[name] for case in own] for name in names}
                continue
            grid = metric.grid() if metric.perturbs else None
            values, weights = np.full((len(names), n), np.nan), np.zeros(n)
            curves = None if grid is None else np.full((len(names), n, len(grid)), np.nan)
            for k, name in enumerate(names):
                for i, own in enumerate(cases[name]):
                    found = []
                    for turn, case in enumerate(own):
                        key = keys.get((name, i, turn, metric.title))
                        if metric.perturbs and key is not None:
                            found.append(as_measured(metric, metric(case, replies[i].answers(*key))))
                        elif not metric.perturbs and measurable(metric, case):
                            found.append(as_measured(metric, metric(case)))
                    if found:
                        values[k, i] = np.mean([m.value for m in found]) if len(found) > 1 else found[0].value
                        weights[i] = found[0].weight
                        lines = [m.curve for m in found if m.curve is not None]
                        if curves is not None and lines:
                            curves[k, i] = np.mean(lines, axis=0) if len(lines) > 1 else lines[0]
            results.values[metric.title], results.weights[metric.title] = values, weights
            if curves is not None:
                results.curves[metric.title] = curves
        return results


Keys = dict[tuple[str, int, int, str], tuple[str, int, int]]


@dataclass(frozen=True)
class About:
    """What is known of every text before a method is looked at."""

    explanations: list[Explanation]
    said: list[int]  # the predicted class


def scores_of(e: Explanation) -> Floats:
    return np.asarray(e.scores, dtype=np.float64)


def untouchable(row: Encoded) -> NDArray[np.bool_]:
    special = np.ones(len(row), bool)
    special[list(row.free)] = False
    return special


def measurable(metric: Metric, case: Case) -> bool:
    """Whether the case has what the metric needs."""
    there = {
        "every-class": bool(case.others),
        "models": len(case.models) > 1,
        "answer": case.answer is not None,
        "rationale": case.rationale is not None,
    }
    return all(there[need] for need in metric.needs)


def as_measured(metric: Metric, found: Any) -> Measured:
    """A metric may return a bare number."""
    if isinstance(found, Measured):
        return found
    if isinstance(found, bool) or not (isinstance(found, Real) or (isinstance(found, np.ndarray) and not found.ndim)):
        raise InputError(f"the metric {metric.title!r} must return a number or a Measured, got {short(found)}.")
    return Measured(float(found))
