"""The caller's autocast, and models whose weights have several dtypes: right, or refused in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import whence
from tests import architectures
from whence.models import layers_of

TEXT = "the film was not charming , but funny !"
METHODS = [
    *("lrp", "attnlrp", "attcat", "gae", "rollout", "attention-flow", "gradient-x-input", "alti"),
    *("integrated-gradients", "deeplift", "occlusion", "kernel-shap"),
]


def explain(explainer: whence.Explainer, methods: list[str] = METHODS, **options: Any) -> dict[str, Any]:
    chosen = {"samples": 32} if "kernel-shap" in methods else {}
    return explainer.explain(TEXT, methods, **chosen, **options)  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["bert", "llama"])
def test_the_caller_s_autocast_does_not_matter(name: str, dtype: torch.dtype) -> None:
    explainer = whence.load(architectures.build(name, torch.float32), architectures.tokenizer())
    expected, answer = explain(explainer), explainer.predict(TEXT)
    with torch.autocast("cpu", dtype=dtype):
        actual, other = explain(explainer), explainer.predict(TEXT)
        assert torch.is_autocast_enabled("cpu")
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype
    assert other == answer
    for method in METHODS:
        np.testing.assert_array_equal(actual[method].scores, expected[method].scores, err_msg=method)


def test_a_language_model_under_autocast() -> None:
    model = architectures.build("gpt2", torch.float32, task="causal-lm")
    explainer = whence.load(model, architectures.tokenizer(framed=False))
    expected = explainer.generate(TEXT, "attnlrp", max_new_tokens=3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = explainer.generate(TEXT, "attnlrp", max_new_tokens=3)
        fresh = whence.load(model, architectures.tokenizer(framed=False)).explain(TEXT, "alti")
    np.testing.assert_array_equal(actual.matrix, expected.matrix)
    np.testing.assert_array_equal(fresh.scores, explainer.explain(TEXT, "alti").scores)


def head_apart(model: Any) -> None:
    model.to(torch.bfloat16)
    next(getattr(model, name) for name in ("classifier", "score", "lm_head") if hasattr(model, name)).float()


def layers_apart(model: Any) -> None:
    for layer in layers_of(model)[1:]:
        layer.to(torch.bfloat16)


def one_norm(model: Any) -> None:
    norm = next(m for m in layers_of(model)[1].modules() if "norm" in type(m).__name__.lower())
    norm.to(torch.float64)


@pytest.mark.parametrize("split", [head_apart, layers_apart, one_norm])
@pytest.mark.parametrize(
    ("name", "task"), [("bert", "classification"), ("llama", "classification"), ("gpt2", "causal-lm")]
)
def test_dtypes_that_do_not_go_together(name: str, task: str, split: Callable[[Any], None]) -> None:
    model = architectures.build(
        name,
        torch.float32,
        task="causal-lm" if task == "causal-lm" else "sequence-classification",
        tie_word_embeddings=False,
    )
    split(model)
    with pytest.raises(RuntimeError), torch.no_grad():
        model(torch.tensor([[2, 7, 8, 3]]))
    explainer = whence.load(model, architectures.tokenizer(task != "causal-lm"))
    says = r"weights of several dtypes, .*(float32|float64) .*does not run: .*Convert it to one"
    for method in ["attnlrp", "gradient-x-input", "gae", "integrated-gradients", "occlusion", "rollout"]:
        with pytest.raises(whence.ModelError, match=says):
            explainer.explain(TEXT, method)
    for call in (explainer.predict, explainer.generate if task == "causal-lm" else explainer.predict):
        with pytest.raises(whence.ModelError, match=says):
            call(TEXT)


def cast(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return (args[0].to(next(module.parameters()).dtype), *args[1:])


def test_dtypes_that_go_together_are_explained() -> None:
    """A model that casts between its parts; relevance is not divided in half precision, whichever dtype comes first."""
    model = architectures.build("bert", torch.float32)
    layers_apart(model)
    for module in (*layers_of(model), model.bert.pooler):
        module.register_forward_pre_hook(cast)
    explainer = whence.load(model, architectures.tokenizer())
    actual = explain(explainer, ["lrp", "transatt", "gradient-x-input", "occlusion"], target=1)
    expected = explain(
        whence.load(model.float(), architectures.tokenizer()),
        ["lrp", "transatt", "gradient-x-input", "occlusion"],
        target=1,
    )
    for method in ("lrp", "transatt"):  # in float32 both
        np.testing.assert_allclose(actual[method].scores, expected[method].scores, rtol=1e-6)
    for e in actual.values():
        assert np.isfinite(e.scores).all()
