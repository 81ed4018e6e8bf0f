"""Every method on the device against the CPU in float32, on small models of several architectures, batched and padded."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import torch

import whence
from bench.measure import failing
from bench.peers import Company
from bench.settings import Settings, multiplying, weights_dtype
from bench.table import Row, Table
from tests import architectures
from whence.registry import all_methods

TEXTS = ["the film was not charming , but funny !", "good", "a slow and very long story . the music is lovely"]
ARCHITECTURES = ("bert", "roberta", "distilbert", "gpt2", "llama")
TOLERANCE = 1e-3


def tables(settings: Settings, company: Company) -> Iterator[Table]:
    for precision in (settings.dtype,) if settings.dtype else ("float32", "bfloat16"):
        chosen = settings.with_dtype(precision)
        with multiplying(precision):
            yield differences(chosen, ARCHITECTURES[:1] if settings.quick else ARCHITECTURES)


def differences(settings: Settings, names: tuple[str, ...]) -> Table:
    """The worst of all architectures and texts per method, as a share of the largest score."""
    rows = {m.name: Row(m.name, difference=0.0) for m in all_methods()}
    for architecture in names:
        reference = whence.load(architectures.build(architecture, torch.float32), architectures.tokenizer())
        own = copy.deepcopy(reference.model).to(settings.device, weights_dtype(settings.precision))
        there = whence.load(own, architectures.tokenizer())
        for name, row in rows.items():
            with failing(row):
                expected = reference.explain(TEXTS, name, 1, progress=False, **options_for(name, reference.model))
                found = there.explain(TEXTS, name, 1, progress=False, **options_for(name, own))
                row.difference = max(row.difference or 0.0, worst(expected, found))
    for row in rows.values():
        row.wanted = {"difference": TOLERANCE} if settings.precision == "float32" else {}
    return Table(f"{settings.where()} against the CPU: {', '.join(names)}", list(rows.values()))


def worst(expected: list[whence.Explanation], found: list[whence.Explanation]) -> float:
    largest = max(float(np.abs(e.scores).max()) for e in expected) or 1.0
    return max(float(np.abs(a.scores - b.scores).max()) for a, b in zip(expected, found, strict=True)) / largest


def options_for(name: str, model: torch.nn.Module) -> dict[str, object]:
    if name == "mask-lrp":
        return {"head_mask": np.ones((model.config.num_hidden_layers, model.config.num_attention_heads))}
    if name.startswith("decoded"):
        torch.manual_seed(1)
        head = torch.nn.Linear(model.config.hidden_size, model.config.vocab_size).to(model.device, model.dtype)
        return {"lm_head": head}
    return {}
