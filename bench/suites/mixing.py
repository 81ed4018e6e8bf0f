"""Time and memory of the mixing and decoded methods against the plain forward of the same rows, on BERT-base's shape.

The ratio counts everything `explain` does, its own forward included. Here the floor is the forward alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import whence
from bench.measure import against, measure
from bench.ours import explaining, shape_for, size_of
from bench.peers import Company
from bench.settings import Settings, multiplying
from bench.shapes import bert, bert_lm, forward, random_rows
from bench.table import Table

Case = tuple[str, str, dict[str, Any], dict[str, float]]  # row, method, options, bars
# (rows, tokens) → cases; tables are measured apart, so that each has the forward of its own rows
CASES: dict[tuple[int, int], list[Case]] = {
    (1, 512): [
        ("alti", "alti", {}, {"ratio": 3.5, "extra_megabytes": 400}),
        ("alti, ℓ2", "alti", {"norm": 2}, {}),
        ("alti, ln2", "alti", {"ln2": True}, {}),
        ("norms", "norms", {}, {}),
        ("globenc", "globenc", {}, {}),
    ],
    (8, 128): [("alti", "alti", {}, {"ratio": 3.0})],
    (1, 128): [
        ("decoded, all layers", "decoded-grad-cam", {"layer": "all"}, {"ratio": 6.0}),
        ("decoded, one layer", "decoded-grad-cam", {}, {}),
        ("decoded simple, all layers", "decoded-simple", {"layer": "all"}, {}),
    ],
    (1, 32): [("value-zeroing", "value-zeroing", {}, {})],
}


def tables(settings: Settings, company: Company) -> Iterator[Table]:
    shape = shape_for(settings)
    model = bert(shape, settings.device, settings.precision)
    head = bert_lm(shape, settings.device, settings.precision)
    explainer = whence.load(model)
    for (rows, tokens), cases in CASES.items():
        texts = random_rows(rows, 16 if settings.quick else tokens, shape.words)
        runs: dict[str, Any] = {"forward": forward(model, texts)}
        for row, method, options, _ in cases:
            more = {"lm_head": head} if method.startswith("decoded") else {}
            runs[row] = explaining(explainer, texts, method, **options, **more)
        with multiplying(settings.precision):
            found = measure(runs, settings, 7)
        title = f"{shape}, {size_of(texts)}, {settings.where()}"
        yield against(found, title, "forward", {row: bars for row, _, _, bars in cases})
