"""`whence.evaluate`: model × data × methods × metrics → Report."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whence.errors import InputError, NotSupported
from whence.evaluate.candidates import Candidate, parse
from whence.evaluate.data import Example, class_of, digest, sample_of
from whence.evaluate.engine import BASELINE, DRAWS, Bench, Plan, join
from whence.evaluate.metrics.registry import METRIC_NEEDS, Metric, all_metrics, get_metric
from whence.evaluate.report import Report, report_of
from whence.evaluate.store import Store
from whence.explainer import Explainer
from whence.inputs.numbers import seed_of
from whence.registry import Method, all_methods
from whence.run.limits import BATCH_TOKENS
from whence.run.progress import counting
from whence.run.provenance import identity_of, short_digest
from whence.version import __version__

TARGETS = ("predicted", "label")
SAME_TARGETS = ("sequence-classification", "masked-lm", "causal-lm")  # one model's target can be asked of another


def evaluate(
    explainer: Explainer,
    data: Any,
    methods: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    *,
    seed: int = 0,
    limit: int | None = None,
    shuffle: bool = False,
    target: str = "predicted",
    columns: Mapping[str, str] | None = None,
    split: str | None = None,
    models: Sequence[Explainer] = (),
    output: str | Path | None = None,
    batch_tokens: int = BATCH_TOKENS,
    progress: bool | None = None,
    strict: bool = False,
) -> Report:
    """Measure how far explanations of a model can be trusted: every method by every metric, on your data.

    data: a .parquet, .csv, .tsv or .jsonl file, the name of a Hugging Face dataset or such an object, or a list of texts,
        pairs or dicts. Columns are guessed; `columns={"text": "body"}` says otherwise.
    methods: names, or names with options: "attcat", "decoded-grad-cam(layer=3)". None: every one that this model allows.
        The random baseline (20 draws) is always in the table.
    metrics: names, or names with a preset: "aopc", "comprehensiveness:eraser". None: every one that the data allow.
    limit: the first so many examples, or so many drawn at random if `shuffle`.
    target: explain the "predicted" class, or the "label" that the data give.
    models: other models that differ by seed only, for the metrics `jaccard` and `spearman`.
    output: a folder for results. An interrupted evaluation goes on where it stopped; other settings are refused.
    strict: stop at the first row that cannot be read (blank, broken, too long). Else such a row keeps its place: its values are NaN,
        `Report.errors` has its error, and a warning counts and names them.

    >>> import whence
    >>> ex = whence.load("sentiment")
    >>> texts = ["a charming and often affecting journey", "a dull , tedious film"]
    >>> report = whence.evaluate(ex, texts, ["attcat"], ["kendall"])
    >>> report
    method  kendall
    attcat  -1.000 *
    random  1.000 ≈
    """
    if target not in TARGETS:
        raise InputError(f"target={target!r}: choose 'predicted', or 'label' for the class that the data give.")
    if not isinstance(explainer, Explainer):
        raise InputError(f"evaluate() takes what whence.load() gives, then the data; got {type(explainer).__name__}.")
    seed_of(seed)
    sample = sample_of(
        explainer, data, columns=columns, limit=limit, split=split, seed=seed, shuffle=shuffle, strict=strict
    )
    examples = sample.examples
    if target == "label":
        check_labelled(explainer, examples)
    for other in models:
        if other.labels != explainer.labels:
            raise InputError(f"models= must have the same labels; {other.name} has {', '.join(other.labels)}.")
    plan = Plan(
        candidates=choose_methods(explainer, methods, examples),
        metrics=choose_metrics(explainer, metrics, examples, bool(models)),
        seed=seed,
        draws=DRAWS,
        target=target,
        batch_tokens=batch_tokens,
    )
    everybody = (explainer, *models) if output is not None else ()
    identities = [identity_of(one.model, one.tokenizer) for one in everybody]
    settings = {
        "whence": __version__,
        "model": explainer.name,
        "weights": [one["weights"] for one in identities] if identities else None,
        "identities": [short_digest(json.dumps(one, sort_keys=True)) for one in identities] if identities else None,
        "dtype": str(explainer.model.dtype).removeprefix("torch."),
        "device": explainer.device.type,
        "data": digest(examples, sample.bad),
        "texts": len(examples),
        "methods": [c.title for c in plan.candidates],
        "metrics": [m.title for m in plan.metrics],
        "seed": seed,
        "target": target,
        "batch_tokens": batch_tokens,
    }
    store = None if output is None else Store(output, settings)
    report = run(Bench(explainer, plan, tuple(models)), examples, settings, store, progress).in_place(sample)
    if output is not None:
        report.save(output)
    return report


def check_labelled(explainer: Explainer, examples: Sequence[Example]) -> None:
    """The data must give classes to explain; where they give none for some texts, it is said what happens to these."""
    without = sum(not explainer.labels or class_of(e.label, explainer.labels) is None for e in examples)
    if without == len(examples):
        raise InputError("target='label' explains the class that the data give, but these have no labels.")
    if without:
        warnings.warn(
            f"{without} of {len(examples)} texts have no label: of them the predicted class is explained.", stacklevel=3
        )


def run(
    bench: Bench, examples: Sequence[Example], settings: dict[str, Any], store: Store | None, progress: bool | None
) -> Report:
    """Chunk after chunk, finished ones taken from the store."""
    chunks = [examples[i : i + bench.chunk] for i in range(0, len(examples), bench.chunk)]
    kept = [store.get(number) if store else None for number in range(len(chunks))]
    expected = sum(bench.expected(c) for c, k in zip(chunks, kept, strict=True) if k is None)
    parts = []
    with counting("evaluating", expected, progress) as counter:
        for number, chunk in enumerate(chunks):
            part = kept[number]
            if part is None:
                part = bench.measure(chunk, counter)
                if store:
                    store.put(number, part)
            parts.append(part)
    return report_of(bench.plan, join(parts), settings)


def choose_methods(
    explainer: Explainer, methods: Sequence[str] | None, examples: Sequence[Example]
) -> tuple[Candidate, ...]:
    """The methods that were asked for; or all that this model allows."""
    if isinstance(methods, str):
        methods = [methods]
    if methods is not None:
        chosen = [parse(text) for text in methods]
        unique = {c.title: c for c in chosen if c.title != BASELINE}
        return tuple(unique.values())
    return tuple(Candidate(m.name) for m in usable(explainer, examples))


def usable(explainer: Explainer, examples: Sequence[Example]) -> list[Method]:
    """The methods that can explain this model, tried on the shortest example; the baseline, and what is too costly, apart."""
    shortest = min(examples, key=lambda e: len(str(e.input))).input
    found = []
    for method in all_methods():
        if method.name == BASELINE or method.on_request:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                explainer.explain(shortest, method.name, progress=False)
        except (
            NotSupported,
            InputError,
        ):  # an architecture without what it needs; a head mask or language model not given
            continue
        found.append(method)
    return found


def choose_metrics(
    explainer: Explainer, metrics: Sequence[str] | None, examples: Sequence[Example], models: bool
) -> tuple[Metric, ...]:
    """The metrics that were asked for, or all that the model and the data allow."""
    if isinstance(metrics, str):
        metrics = [metrics]
    if metrics is None:
        chosen = [m for m in all_metrics() if lacking(m, explainer, examples, models) is None]
        if not chosen:
            raise InputError(
                f"no metric applies to a {explainer.task} model and these data; whence.metrics() lists them."
            )
        return tuple(chosen)
    named = {m.title: m for m in (get_metric(title) for title in metrics)}
    for metric in named.values():
        reason = lacking(metric, explainer, examples, models)
        if reason:
            raise InputError(f"{metric.title} cannot be measured here: it needs {reason}.")
    if not named:
        raise InputError("no metric given; whence.metrics() lists them.")
    return tuple(named.values())


def lacking(metric: Metric, explainer: Explainer, examples: Sequence[Example], models: bool) -> str | None:
    """What a metric needs and does not have, in words; None if it has all."""
    classifier = explainer.task == "sequence-classification" and len(explainer.labels) > 1
    there = {
        "every-class": classifier,
        "models": models and explainer.task in SAME_TARGETS,
        "answer": explainer.task == "question-answering" and any(e.answer is not None for e in examples),
        "rationale": any(e.rationales is not None for e in examples),
    }
    if (metric.perturbs or metric.over == "corpus") and not classifier:
        return "a classifier"
    return next((METRIC_NEEDS[need] for need in sorted(metric.needs) if not there[need]), None)
