"""What relevance costs against the floor, and AttnLRP on GPT-2 beside lxt: the same scores?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import whence
from bench.measure import Runs, against, measure
from bench.ours import explaining, shape_for, size_of
from bench.peers import Company, Job, PeerError
from bench.settings import Settings, multiplying
from bench.shapes import Shape, bert, floor, gpt2, random_rows
from bench.table import Table

ROWS, TOKENS = 16, 64
METHODS = {"attnlrp": 1.8, "transatt": 3.0, "mask-lrp": None, "partial-lrp": None, "lrp": None}


def tables(settings: Settings, company: Company) -> Iterator[Table]:
    shape = shape_for(settings)
    rows, tokens = (2, 16) if settings.quick else (ROWS, TOKENS)
    texts = random_rows(rows, tokens, shape.words)
    model = bert(shape, settings.device, settings.precision)
    explainer = whence.load(model)
    runs: Runs = {"floor": floor(model, texts)}
    for name in METHODS:
        options: dict[str, Any] = {"head_mask": some_heads(shape.layers, shape.heads)} if name == "mask-lrp" else {}
        runs = {**runs, name: explaining(explainer, texts, name, **options)}
    wanted = {name: {"ratio": bar} for name, bar in METHODS.items() if bar}
    with multiplying(settings.precision):
        found = measure(runs, settings, 5)
    yield against(found, f"{shape}, {size_of(texts)}, {settings.where()}", "floor", wanted)
    yield beside_lxt(settings, company)


def some_heads(layers: int, heads: int) -> np.ndarray:
    return np.random.default_rng(0).random((layers, heads)) < 0.2


def beside_lxt(
    settings: Settings,
    company: Company,
    rows: int = ROWS,
    tokens: int = TOKENS,
    turns: int = 20,
    shape: Shape | None = None,
) -> Table:
    shape = shape or shape_for(settings)
    rows, tokens = (2, 16) if settings.quick else (rows, tokens)
    texts = random_rows(rows, tokens, shape.words)
    model = gpt2(shape, settings.device, settings.precision)
    explainer = whence.load(model, task="sequence-classification")
    theirs = company.runs({"attnlrp": Job("attnlrp", shape, rows, tokens, "gpt2", **settings.for_job())})
    runs: Runs = {"floor": floor(model, texts), "attnlrp": explaining(explainer, texts, "attnlrp"), **theirs}
    with multiplying(settings.precision):
        ours = explainer.explain(texts, "attnlrp", progress=False)
        table = against(
            measure(runs, settings, turns),
            f"GPT-2, {shape}, {size_of(texts)}, {settings.where()}",
            "floor",
        )
    for name, run in theirs.items():
        try:
            reference = np.array(run.scores())
        except PeerError:
            continue  # its row says already why it does not run
        largest = np.abs(reference).max(1)
        gaps = [np.abs(e.scores - r).max() for e, r in zip(ours, reference, strict=True)]
        table.row(name).difference = float(max(gaps / largest))
    return table
