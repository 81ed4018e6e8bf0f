"""Rules on the graph are those of the function mode, to the last bit; what they do not cover is left to the mode."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

import whence
from tests.architectures import build, model, tokenizer
from whence.fast import graph
from whence.relevance.operations import Run
from whence.relevance.rules import rule_set
from whence.trace import recorder

TEXTS = ["a charming journey", "dull and far too long , really", "good"]
ON_GRAPH = ("bert", "distilbert", "electra", "albert", "modernbert", "gpt2", "llama", "qwen2", "mistral")


@contextmanager
def by_mode(model: PreTrainedModel) -> Iterator[None]:
    recorder._NOT_ON_GRAPH.add(model)
    try:
        yield
    finally:
        recorder._NOT_ON_GRAPH.discard(model)


def explained(name: str, model: PreTrainedModel, method: Any = "attnlrp", **options: Any) -> Any:
    return whence.load(model, tokenizer()).explain(TEXTS, method, **options)


@pytest.mark.parametrize("name", ON_GRAPH)
@pytest.mark.parametrize("beside", [None, "gae", "gradient-x-input"])
def test_scores_are_those_of_the_function_mode(name: str, beside: str | None) -> None:
    own = model(name)
    methods = ["attnlrp", *([beside] if beside else [])]  # attention recorded; true gradients from the same graph
    found = explained(name, own, methods, target="all")
    assert own not in recorder._NOT_ON_GRAPH
    with by_mode(own):
        expected = explained(name, own, methods, target="all")
    for method in methods:
        for of_text, wanted in zip(found[method], expected[method], strict=True):
            for one, other in zip(of_text, wanted, strict=True):
                np.testing.assert_array_equal(one.scores, other.scores)
    if beside == "gradient-x-input":
        alone = explained(name, own, beside, target="all")
        for of_text, wanted in zip(found[beside], alone, strict=True):
            for one, other in zip(of_text, wanted, strict=True):
                np.testing.assert_allclose(one.scores, other.scores, rtol=1e-12, atol=1e-15)


def test_an_operation_that_is_not_covered_is_left_to_the_mode() -> None:
    own = build("roberta")  # its head calls torch.tanh, which keeps no input
    first = explained("roberta", own)
    assert own in recorder._NOT_ON_GRAPH
    again = explained("roberta", own)
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.scores, other.scores)


def test_operations_by_their_name_and_what_they_work_on() -> None:
    run = Run(rule_set("attnlrp"), nn.Identity(), 2)
    x = torch.randn(2, 3, 4, requires_grad=True)
    w = torch.randn(4, 4)
    for covered in (x @ w, (x * 2).softmax(-1), x * x, x @ x.mT, torch.cat([x, x]), x.relu(), x / 3, x - 1, 1 - x):
        assert graph.put_rules([covered], run)
    for not_covered in (x.tanh(), x.exp(), x / x, 1 / x, x - 2 * x, x.mean(-1), nn.functional.gelu(x), x.cumsum(-1)):
        assert not graph.put_rules([not_covered], run)
    assert not graph.put_rules([nn.functional.layer_norm(x, (3, 4))], run)  # over two axes


def test_within_hooks_of_the_callers_own_the_mode_takes_over() -> None:
    own = build("gpt2")
    expected = explained("gpt2", own)
    with torch.autograd.graph.save_on_cpu():
        found = explained("gpt2", own)
    assert own in recorder._NOT_ON_GRAPH
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.scores, other.scores)


@pytest.mark.parametrize("product", [lambda a, b: a * b, lambda a, b: a @ b.mT])
def test_products_share_evenly_while_relevance_is_carried(product: Any) -> None:
    run = Run(rule_set("attnlrp"), nn.Identity(), 2)
    a, b = (torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    y = product(a, b)
    assert graph.put_rules([y], run)
    gradients = torch.autograd.grad(y.sum(), (a, b), retain_graph=True)
    with run.carrying(None):
        carried = torch.autograd.grad(y.sum(), (a, b), retain_graph=True)
    again = torch.autograd.grad(y.sum(), (a, b))
    for gradient, coefficient, later in zip(gradients, carried, again, strict=True):
        torch.testing.assert_close(coefficient, gradient / 2)
        torch.testing.assert_close(later, gradient)


def test_nothing_is_left_once_the_graph_is_gone() -> None:
    own = model("gpt2")
    kept: list[weakref.ref[Run]] = []
    put_rules = graph.put_rules

    def watched(outputs: Any, run: Run) -> bool:
        kept.append(weakref.ref(run))
        return put_rules(outputs, run)

    gc.collect()
    gc.disable()  # no collection may be needed: a graph holds a batch's memory
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(recorder, "put_rules", watched)
            explained("gpt2", own)
        assert len(kept) == 1
        assert kept[0]() is None
    finally:
        gc.enable()
