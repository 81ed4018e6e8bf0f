"""How near an evaluation comes to the raw forward: its time against a bare loop of forwards over the same rows.

Explaining is timed apart: the rest (which rows are wanted, making them, removing duplicates, batching, running, measuring) is what
the engine adds to the forward, and is wanted at 80% of the bare rate or more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from unittest.mock import patch

import torch

import whence
from bench.measure import Runs, against, measure, synchronize
from bench.peers import Company
from bench.settings import Settings, multiplying
from bench.table import Row, Table
from whence.evaluate.candidates import parse
from whence.evaluate.data import read
from whence.evaluate.engine import Bench, Plan
from whence.evaluate.metrics.registry import get_metric
from whence.evaluate.perturbed import Perturber
from whence.fast.first_token import first_token_only
from whence.inputs import Batch
from whence.models import Lent, zoo
from whence.run.perturb.scheduler import Runner
from whence.run.progress import Counter
from whence.trace.recorder import model_inputs

METHODS = ("raw-attention", "rollout", "grads", "attgrads", "attention-gradcam", "gae", "cat", "attcat", "grad-cam")
METHODS += ("decoded-grad-cam", "transatt", "mask-lrp", "norms", "alti", "gradient")
METRICS = ("aopc", "lodds", "comprehensiveness", "sufficiency", "hiding-auc", "revealing-auc")
TEXTS, BATCH_TOKENS = 24, 8192
WANTED = 1.25  # of the bare time: 80% of its rate


def tables(settings: Settings, company: Company) -> Iterator[Table]:
    with multiplying(settings.precision):
        yield engine_table(settings)


def engine_table(settings: Settings) -> Table:
    texts, methods, names = (2, METHODS[:2], METRICS[:1]) if settings.quick else (TEXTS, METHODS, METRICS)
    explainer = whence.load("sentiment", device=settings.device)
    examples = read(zoo.samples("sentiment"), limit=texts)
    metrics = tuple(get_metric(name) for name in names)
    bench = Bench(explainer, Plan(tuple(parse(m) for m in methods), metrics, batch_tokens=BATCH_TOKENS))
    start = time.perf_counter()
    rows, cases = bench.cases(examples)
    synchronize()
    explaining = time.perf_counter() - start
    asked = 0

    def engine() -> object:
        nonlocal asked
        wanted, keys = bench.ask(rows, cases)
        asked = sum(one.asked for one in wanted)
        replies = Perturber(explainer.session, BATCH_TOKENS).answer(wanted, Counter("rows", 1, silent=True))
        return bench.collect(cases, replies, keys)

    batches = batches_of(engine)

    def bare() -> None:
        with torch.inference_mode():
            for batch in batches:
                explainer.model(**model_inputs(explainer.model, batch)).logits.cpu()

    def bare_and_cut() -> None:
        with first_token_only(explainer.model, Lent.of(explainer.model)):
            bare()

    runs: Runs = {
        "bare forwards": bare,
        "bare forwards, as little of the last layer": bare_and_cut,
        "evaluation": engine,
    }
    found = measure(runs, settings, 3)
    title = f"`sentiment`, {texts} texts × {len(methods)} methods + 20 random draws × {len(names)} metrics, {settings.where()}"
    table = against(found, title, "bare forwards", {"evaluation": {"ratio": WANTED}})
    table.rows.append(Row("explaining, before", explaining))
    ran = sum(len(batch.input_ids) for batch in batches)
    tokens = sum(int(batch.valid.sum()) for batch in batches)
    table.notes.append(f"{asked:,} rows asked for, {ran:,} distinct rows run ({tokens:,} tokens)")
    return table


def batches_of(run: object) -> list[Batch]:
    """The batches that a run of the engine makes."""
    batches: list[Batch] = []
    original = Runner.batch

    def kept(self: Runner, numbers: object) -> Batch:
        batches.append(original(self, numbers))  # type: ignore[arg-type]
        return batches[-1]

    with patch.object(Runner, "batch", kept):
        run()  # type: ignore[operator]
    return batches
