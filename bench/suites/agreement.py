"""Every method on the device against the CPU in float32, batched and padded: on small random models of several architectures, and on
the embedded `sentiment`, whose trained weights are harder to divide by."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

import whence
from bench.measure import failing
from bench.peers import Company
from bench.settings import DTYPES, Settings, multiplying, weights_dtype
from bench.table import Row, Table
from tests import architectures
from whence.models import zoo
from whence.registry import all_methods

TEXTS = ["the film was not charming , but funny !", "good", "a slow and very long story . the music is lovely"]
TRAINED, SENTENCES = "sentiment", 12
ARCHITECTURES = ("bert", "roberta", "distilbert", "gpt2", "llama")
TOLERANCE = 1e-3


def tables(settings: Settings, company: Company) -> Iterator[Table]:
    names = (ARCHITECTURES[0],) if settings.quick else (*ARCHITECTURES, TRAINED)
    references = {name: Reference.of(name) for name in names}
    for precision in (settings.dtype,) if settings.dtype else DTYPES:
        chosen = settings.with_dtype(precision)
        with multiplying(precision):
            yield differences(chosen, references)


@dataclass(frozen=True)
class Reference:
    """A model on the CPU, in float32, and what methods say of its texts."""

    explainer: whence.Explainer
    texts: list[str]
    scores: dict[str, list[whence.Explanation]]

    @classmethod
    def of(cls, name: str) -> Reference:
        if name == TRAINED:
            explainer, texts = whence.load(name), [row["text"] for row in zoo.samples(name)][:SENTENCES]
        else:
            model = architectures.build(name, torch.float32)
            explainer, texts = whence.load(model, architectures.tokenizer()), TEXTS
        scores = {}
        for m in all_methods():
            if (
                name == TRAINED and m.kind != "trace"
            ):  # many passes of gradients and answers that other rows tell all about
                continue
            scores[m.name] = explained(explainer, texts, m.name)
        return cls(explainer, texts, scores)


def explained(explainer: whence.Explainer, texts: list[str], method: str) -> list[whence.Explanation]:
    options = options_for(method, explainer.model)
    found: list[whence.Explanation] = explainer.explain(texts, method, 1, progress=False, **options)
    return found


def differences(settings: Settings, references: Mapping[str, Reference]) -> Table:
    """The worst of all models and texts per method, as a share of the text's largest score."""
    rows = {m.name: Row(m.name, difference=0.0) for m in all_methods()}
    for reference in references.values():
        own = copy.deepcopy(reference.explainer.model).to(settings.device, weights_dtype(settings.precision))
        there = whence.load(own, reference.explainer.tokenizer)
        for name in reference.scores:
            row = rows[name]
            with failing(row):
                found = explained(there, reference.texts, name)
                row.difference = max(row.difference or 0.0, worst(reference.scores[name], found))
    for row in rows.values():
        row.wanted = {"difference": TOLERANCE} if settings.precision == "float32" else {}
    return Table(f"{settings.where()} against the CPU: {', '.join(references)}", list(rows.values()))


def worst(expected: list[whence.Explanation], found: list[whence.Explanation]) -> float:
    pairs = [(e.scores, f.scores, float(np.abs(e.scores).max()) or 1.0) for e, f in zip(expected, found, strict=True)]
    return max(float(np.abs(a - b).max()) / largest for a, b, largest in pairs)


def options_for(name: str, model: torch.nn.Module) -> dict[str, object]:
    if name == "mask-lrp":
        return {"head_mask": np.ones((model.config.num_hidden_layers, model.config.num_attention_heads))}
    if name.startswith("decoded"):
        torch.manual_seed(1)
        head = torch.nn.Linear(model.config.hidden_size, model.config.vocab_size).to(model.device, model.dtype)
        return {"lm_head": head, "layer": 1}
    return {}
