"""A compiled model is explained as the one that it was made of, by every family of methods, and stays compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import whence
from tests import architectures
from whence.evaluate.check import copy_of
from whence.models import layers_of, max_length
from whence.trace import recorder

TEXT = "the film was not charming , but funny !"
METHODS = [
    *("lrp", "attnlrp", "transatt", "attcat", "gae", "rollout", "gradient-x-input", "cat", "alti"),
    *("integrated-gradients", "deeplift", "occlusion", "kernel-shap"),
]


def explain(explainer: whence.Explainer, methods: list[str] = METHODS) -> dict[str, Any]:
    options = {"kernel-shap": {"samples": 32}, "integrated-gradients": {"steps": 4}}
    chosen = {k: v for name in methods for k, v in options.get(name, {}).items()}
    return explainer.explain(TEXT, methods, **chosen)  # type: ignore[no-any-return]


def explained(model: Any, framed: bool = True, methods: list[str] = METHODS) -> dict[str, Any]:
    return explain(whence.load(model, architectures.tokenizer(framed)), methods)


def compiled(function: Any) -> Any:
    return torch.compile(function, backend="eager")  # Dynamo runs whatever makes the kernels


def whole(model: Any) -> Any:
    model.compile(backend="eager")
    return model


def layer_compiled(model: Any) -> Any:
    layers_of(model)[1].compile(backend="eager")
    return model


def layer_wrapped(model: Any) -> Any:
    layers = next(m for m in model.modules() if isinstance(m, nn.ModuleList))
    layers[1] = compiled(layers[1])
    layers[2] = compiled(layers[2])
    return model


def deeper(model: Any) -> Any:
    """Every linear map and every norm within the layers."""
    for module in list(layers_of(model)[1].modules()):
        for name, child in list(module.named_children()):
            if not list(child.children()):
                setattr(module, name, compiled(child))
    return model


def forward_compiled(model: Any) -> Any:
    model.forward = compiled(model.forward)
    layers_of(model)[0].forward = compiled(layers_of(model)[0].forward)
    return model


def class_compiled(model: Any) -> Any:
    kind = type(layers_of(model)[0])
    twin = type(kind.__name__, (kind,), {"forward": compiled(kind.forward)})
    for layer in layers_of(model):
        layer.__class__ = twin
    return model


def around(model: Any) -> Any:
    return compiled(model)


def everywhere(model: Any) -> Any:
    return compiled(whole(layer_wrapped(deeper(model))))


WAYS = [whole, layer_compiled, layer_wrapped, deeper, forward_compiled, class_compiled, around, everywhere]


def agree(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, e in expected.items():
        np.testing.assert_array_equal(actual[name].scores, e.scores, err_msg=name)


def parts(model: nn.Module) -> list[Any]:
    """Every module with its own attributes, by identity."""
    tables = [m.__dict__ for m in model.modules()]
    return [
        (id(table), key, id(value))
        for table in tables
        for key, value in [*table.items(), *table.get("_modules", {}).items()]
    ]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_a_compiled_classifier_is_explained_as_it_was(name: str, way: Callable[[Any], Any]) -> None:
    expected = explained(architectures.build(name))
    model = way(architectures.build(name))
    before = parts(model)
    agree(explained(model), expected)
    assert parts(model) == before


@pytest.mark.parametrize("way", [whole, layer_wrapped, around])
def test_a_compiled_language_model(way: Callable[[Any], Any]) -> None:
    methods = ["lrp", "attnlrp", "gae", "integrated-gradients", "occlusion"]
    expected = explained(architectures.build("llama", task="causal-lm"), False, methods)
    model = way(architectures.build("llama", task="causal-lm"))
    agree(explained(model, False, methods), expected)
    explainer = whence.load(model, architectures.tokenizer(False))
    assert len(explainer.generate(TEXT, "attnlrp", max_new_tokens=2).matrix) == 2


def test_a_model_still_runs_compiled_afterwards() -> None:
    runs = []

    def counted(graph: Any, inputs: Any) -> Any:
        runs.append(1)
        return graph.forward

    model = architectures.build("bert", torch.float32)
    model.bert.encoder.layer[1].compile(backend=counted)
    explained(model, methods=["lrp", "occlusion"])
    assert not runs
    with torch.no_grad():
        model(torch.tensor([[2, 7, 8, 3]]))
    assert runs


@pytest.mark.parametrize("way", [whole, layer_wrapped])
def test_what_is_compiled_after_the_first_explanation(way: Callable[[Any], Any]) -> None:
    explainer = whence.load(architectures.build("bert"), architectures.tokenizer())
    expected = explain(explainer)
    way(explainer.model)
    agree(explain(explainer), expected)


def test_a_model_that_is_compiled_while_its_parts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where a batch is given before the model is looked at again."""
    monkeypatch.setattr(recorder, "launched_by_another_thread", lambda tensor: True)
    explainer = whence.load(layer_wrapped(architectures.build("bert")), architectures.tokenizer())
    for _ in range(3):
        expected = explain(explainer)
    layers = explainer.model.bert.encoder.layer
    layers[1] = compiled(layers[1]._orig_mod)
    agree(explain(explainer), expected)
    whole(explainer.model)
    for _ in range(2):
        agree(explain(explainer), expected)
    with torch.no_grad():
        other = architectures.build("bert", seed=1)
        layers[1] = compiled(other.bert.encoder.layer[1])
    changed = explain(explainer)
    assert not np.allclose(changed["gradient-x-input"].scores, expected["gradient-x-input"].scores)


def test_compiled_parts_are_put_back_after_an_error() -> None:
    explainer = whence.load(whole(layer_wrapped(architectures.build("bert"))), architectures.tokenizer())
    before = parts(explainer.model)

    @whence.method("test-compiled-raises", needs={"hidden", "hidden.grad"})
    def raises(trace: whence.Trace) -> torch.Tensor:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        explainer.explain(TEXT, "test-compiled-raises")
    assert parts(explainer.model) == before


def test_what_is_read_outside_of_a_forward() -> None:
    """Where positions begin, the language-model head, attention heads, and copies whose weights are shuffled."""
    roberta, plain = architectures.build("roberta"), architectures.build("roberta")
    roberta.roberta.embeddings.position_embeddings = compiled(roberta.roberta.embeddings.position_embeddings)
    roberta.roberta.embeddings.word_embeddings = compiled(roberta.roberta.embeddings.word_embeddings)
    assert max_length(roberta, None) == max_length(plain, None) == 63
    agree(explained(roberta), explained(plain))

    decoded = ["decoded-grad-cam", "decoded-simple"]
    head, plain = (architectures.build("bert", task="masked-lm") for _ in range(2))
    head.cls.predictions.decoder = compiled(head.cls.predictions.decoder)
    classifier = architectures.build("bert")
    expected = whence.load(classifier, architectures.tokenizer(), lm_head=plain).explain(TEXT, decoded)
    for source in (head, compiled(plain)):
        agree(whence.load(classifier, architectures.tokenizer(), lm_head=source).explain(TEXT, decoded), expected)

    base, plain = architectures.build("bert"), architectures.build("bert")
    base.bert = compiled(base.bert)
    agree(explained(base), explained(plain))

    model = architectures.build("bert")
    model.bert.forward = compiled(model.bert.forward)
    copied = copy_of(whence.load(model, architectures.tokenizer()))
    with torch.no_grad():
        copied.model.bert.encoder.layer[0].output.dense.weight.zero_()
    before, after = (
        e.explain(TEXT, "gradient-x-input").scores for e in (whence.load(model, architectures.tokenizer()), copied)
    )
    assert not np.allclose(before, after)


def test_hooks_on_the_wrapper_are_refused() -> None:
    model = architectures.build("bert")
    layers = model.bert.encoder.layer
    layers[1] = compiled(layers[1])
    layers[1].register_forward_hook(lambda *_: None)
    with pytest.raises(whence.NotSupported, match="compiled BertLayer with hooks"):
        explained(model, methods=["gradient"])


def test_a_scripted_part_is_refused() -> None:
    model = architectures.build("bert", torch.float32)
    dense = model.bert.encoder.layer[1].output.dense
    model.bert.encoder.layer[1].output.dense = torch.jit.trace(dense, torch.zeros(1, dense.in_features))
    with pytest.raises(whence.NotSupported, match="put the module that it was made of in its place"):
        explained(model, methods=["gradient"])


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo looks at it
def test_what_wraps_a_compiled_forward_still_runs() -> None:
    """`functools.wraps` copies the marks of compiled functions."""
    model = architectures.build("bert")
    plain = compiled(type(model.classifier).forward)

    @functools.wraps(plain)
    def doubled(self: Any, x: torch.Tensor) -> Any:
        return 2 * plain(self, x)

    before = whence.load(model, architectures.tokenizer()).explain(TEXT, "gradient-x-input", 1)
    model.classifier.forward = MethodType(doubled, model.classifier)
    after = whence.load(model, architectures.tokenizer()).explain(TEXT, "gradient-x-input", 1)
    np.testing.assert_allclose(after.scores, 2 * before.scores)


# ---- what else stands between a model's code and its answers ----------------------------------------------------------


@pytest.mark.parametrize("name", ["bert", "roberta", "electra", "albert"])
@pytest.mark.parametrize("chunk", [1, 4])
def test_feed_forwards_in_chunks(name: str, chunk: int) -> None:
    """transformers cuts texts whose length is a multiple of the chunk, and refuses others."""
    methods = [m for m in METHODS if m != "lrp"]
    expected = explained(architectures.build(name), methods=methods)
    model = architectures.build(name, chunk_size_feed_forward=chunk)
    explainer = whence.load(model, architectures.tokenizer())
    agree(explain(explainer, methods), expected)
    assert (
        explainer.predict(TEXT).label
        == whence.load(architectures.build(name), architectures.tokenizer()).predict(TEXT).label
    )
    sizes = {m.chunk_size_feed_forward for m in model.modules() if hasattr(m, "chunk_size_feed_forward")}
    assert sizes == {chunk}


@pytest.mark.parametrize("kind", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_hooks_on_backwards_change_nothing(kind: str) -> None:
    methods = ["lrp", "attnlrp", "gradient-x-input", "integrated-gradients", "gae"]
    expected = explained(architectures.build("bert"), methods=methods)
    model = architectures.build("bert")
    layer, heard = layers_of(model)[1], []

    def nothing(module: nn.Module, *gradients: Any) -> Any:
        heard.append(1)
        return tuple(None if g is None else torch.zeros_like(g) for g in gradients[0])

    getattr(layer, kind)(nothing)
    before = parts(model)
    agree(explained(model, methods=methods), expected)
    assert parts(model) == before
    assert not heard
    model.train()(torch.tensor([[2, 7, 8, 3]])).logits.sum().backward()
    assert heard
