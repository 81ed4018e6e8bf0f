"""Long inputs: time and peak memory of attention-based methods against the number of tokens, one row.

On a GPU a model of BERT-base's shape that reads 4,096 tokens; on a CPU one of its layers and heads but 192 features: its maps are
as large as BERT-base's, and they are what long inputs are made of. Peak memory is held against one layer's maps, H·n²·4 bytes, and against all layers'.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import whence
from bench.measure import Runs, against, measure
from bench.ours import explaining, size_of
from bench.peers import Company
from bench.settings import Settings, multiplying
from bench.shapes import BERT_BASE, TINY, Shape, bert, floor, random_rows
from bench.table import Table

TOKENS = (512, 1024, 2048, 4096)
NARROW = Shape(12, 192, 12, 1000, 4096)
WIDE = replace(BERT_BASE, positions=4096)
METHODS = ("rollout", "attcat", "gae", "transatt", "alti")


def tables(settings: Settings, company: Company) -> Iterator[Table]:
    shape = replace(TINY, positions=64) if settings.quick else WIDE if settings.cuda else NARROW
    model = bert(shape, settings.device, settings.precision)
    explainer = whence.load(model)
    for tokens in (32, 64) if settings.quick else TOKENS:
        texts = random_rows(1, tokens, shape.words)
        runs: Runs = {"floor": floor(model, texts), **{m: explaining(explainer, texts, m) for m in METHODS}}
        with multiplying(settings.precision):
            found = measure(runs, settings, 2 if settings.cuda else 0)  # the first turn on CUDA compiles
        table = against(found, f"{shape}, {size_of(texts)}, {settings.where()}", "floor")
        table.axis = "tokens"
        layer = shape.heads * tokens**2 * 4 / 2**20  # MB of one layer's maps
        table.notes.append(
            f"one layer's maps {layer:.0f} MB, all {shape.layers} layers' {layer * shape.layers:,.0f} MB"
        )
        for row in table.rows:
            row.x, row.series = tokens, row.name
            if row.extra_megabytes is not None and row.name != "floor":
                row.note = f"{row.extra_megabytes / layer:.1f} layers' maps above the floor"
        yield table
