"""What is promised on one H200, all of it in one run: `python -m bench h200 --device cuda`, under 8 minutes.

Ratios of single-pass methods in float32, tf32 and bfloat16; the ALTI kernel; an evaluation; integrated gradients as a share of the
device's own forward + backward; and the peers side by side. Runs on a CPU too, with --quick.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import whence
from bench.measure import against, failing, measure, seconds_of
from bench.ours import explaining, shape_for, single_pass_methods, size_of
from bench.peers import Company
from bench.results import METRICS
from bench.settings import DTYPES, Settings, multiplying
from bench.shapes import bert, bert_lm, floor, random_rows
from bench.suites import kernels, paths, perturbation, relevance, single_pass
from bench.table import Row, Table
from whence.evaluate.data import read
from whence.models import zoo

ROWS, TOKENS = 256, 128
SMALL = (16, 64)  # rows, tokens: a batch that does not fill the device, where Python decides
FAMILIES = {"gradient": 1.1, "attention gradient": 1.6, "activation": 1.6}
OTHERS = {"transatt": 3.0, "attnlrp": 1.8, "alti": 2.0}
DECODED, ONE_TRACE = 1.5, 6.0
DISTANCES = (32, 512)  # rows, tokens
SENTENCES, EVALUATION_SECONDS = 872, 60.0
EVALUATED = ("raw-attention", "rollout", "grads", "attgrads", "attention-gradcam", "gae", "cat", "attcat", "grad-cam")
EVALUATED += ("decoded-grad-cam", "partial-lrp", "transatt", "mask-lrp", "attnlrp", "norms", "globenc", "alti")
EVALUATED += ("gradient", "gradient-x-input", "integrated-gradients")
PATH_TEXTS, PATH_TOKENS, STEPS, PATH_BATCH = 1024, 64, 50, 256
SHARE = 0.85  # of the device's forward + backward throughput
BATCH_TOKENS = 131_072  # of an evaluation on a GPU


def tables(settings: Settings, company: Company) -> Iterator[Table]:
    precisions = (settings.dtype,) if settings.dtype else DTYPES
    # small batches first: Python decides there, and peers run in processes that have done nothing else
    for rows, tokens in (SMALL, (ROWS, TOKENS)):
        turns = 5 if rows == ROWS else 20
        yield single_pass.gradients_beside_peers(settings, company, rows, tokens, turns)
        yield relevance.beside_lxt(settings, company, rows, tokens, turns)
    for precision in precisions:
        yield ratios(settings.with_dtype(precision))
    yield from kernels.distance_tables(settings, *((2, 16) if settings.quick else DISTANCES))
    yield kernels.norm_table(settings)
    yield kernels.rule_table(settings)
    yield kernels.method_table(settings)
    yield evaluation(settings)
    for precision in precisions:
        yield path_throughput(settings.with_dtype(precision))
    yield from paths.tables(settings, company)
    yield from perturbation.tables(settings, company)


def ratios(settings: Settings) -> Table:
    """Every single-pass method alone, then together."""
    shape = shape_for(settings)
    texts = random_rows(*((2, 16) if settings.quick else (ROWS, TOKENS)), shape.words)
    model = bert(shape, settings.device, settings.precision)
    explainer = whence.load(model)
    head = bert_lm(shape, settings.device, settings.precision)
    families = [m for m in single_pass_methods() if m.family in FAMILIES]
    alone = [m.name for m in families] + list(OTHERS)
    runs: dict[str, Any] = {"floor": floor(model, texts)}
    runs |= {name: explaining(explainer, texts, name) for name in alone}
    runs["decoded-grad-cam, one layer"] = explaining(explainer, texts, "decoded-grad-cam", lm_head=head)
    shared = [m.name for m in single_pass_methods()]
    everything = [*shared, *OTHERS, "decoded-grad-cam", "decoded-simple", "norms", "globenc"]
    runs["attention, gradient and activation families together"] = explaining(explainer, texts, shared)
    runs["these, relevance, mixing and decoded together"] = explaining(explainer, texts, everything, lm_head=head)
    bars = {m.name: FAMILIES[m.family] for m in families} | OTHERS | {"decoded-grad-cam, one layer": DECODED}
    bars |= dict.fromkeys(list(runs)[-2:], ONE_TRACE)
    with multiplying(settings.precision):
        found = measure(runs, settings, 5)
    title = f"{shape}, {size_of(texts)}, {settings.where()}"
    return against(found, title, "floor", {name: {"ratio": bar} for name, bar in bars.items()})


def evaluation(settings: Settings) -> Table:
    """Many sentences × 20 methods × all metrics with the embedded `sentiment`."""
    count, methods, metrics = (4, EVALUATED[:3], METRICS[:3]) if settings.quick else (SENTENCES, EVALUATED, METRICS)
    explainer = whence.load("sentiment", device=settings.device)
    data, said = sentences(settings.data, count)
    whence.evaluate(explainer, data[:2], list(methods), list(metrics), progress=False)  # warm up
    row = Row("evaluation", wanted={"seconds": EVALUATION_SECONDS})
    with failing(row), multiplying(settings.precision):
        row.seconds = seconds_of(
            lambda: whence.evaluate(
                explainer, data, list(methods), list(metrics), batch_tokens=BATCH_TOKENS, progress=False
            )
        )
    title = f"`sentiment`, {count} sentences × {len(methods)} methods × {len(metrics)} metrics, {settings.where()}"
    return Table(title, [row], notes=[said])


def sentences(folder: Path | None, count: int) -> tuple[list[str], str]:
    """SST-2's development set where there is one; else as many sentences of the samples' words, shuffled, all different."""
    for file in sorted(folder.glob("sst2_dev.*")) if folder else ():
        return [str(e.input) for e in read(file, limit=count)], f"sentences of {file.name}"
    own, draw = [row["text"].split() for row in zoo.samples("sentiment")], random.Random(0)
    found = [" ".join(draw.sample(own[i % len(own)], len(own[i % len(own)]))) for i in range(count)]
    return found, "the embedded samples' sentences, words shuffled: give SST-2 with --data FOLDER"


def path_throughput(settings: Settings) -> Table:
    """Integrated gradients of many texts against as many bare forwards + backwards of the same batches."""
    shape = shape_for(settings)
    count, tokens, steps, batch = (4, 16, 3, 2) if settings.quick else (PATH_TEXTS, PATH_TOKENS, STEPS, PATH_BATCH)
    texts = random_rows(count, tokens, shape.words)
    model = bert(shape, settings.device, settings.precision)
    explainer = whence.load(model)
    one = floor(model, texts[:batch])
    times = count * steps // batch

    def bare() -> None:
        for _ in range(times):
            one()

    name = f"integrated-gradients, {steps} steps"
    options: dict[str, Any] = {"steps": steps, "baseline": "pad", "batch_tokens": batch * tokens, "progress": False}
    rows = [Row("bare forwards + backwards"), Row(name)]
    with multiplying(settings.precision):
        one(), explainer.explain(texts[:2], "integrated-gradients", **options)  # warm up
        for row, run in zip(
            rows, (bare, lambda: explainer.explain(texts, "integrated-gradients", **options)), strict=True
        ):
            with failing(row):
                row.seconds = seconds_of(run)
    title = f"{count} texts of {tokens} tokens, {steps} steps, batches of {batch}: {shape}, {settings.where()}"
    table = against(rows, title, rows[0].name, {name: {"ratio": 1 / SHARE}})
    if rows[1].ratio:
        rows[1].note = f"{1 / rows[1].ratio:.0%} of the device's throughput, wanted ≥ {SHARE:.0%}"
    return table
