"""Whatever the shape of a model (layers, heads, sizes, tied, before or after the norm), what must hold of a method holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import whence
from tests import architectures
from whence.registry import all_methods

SETTINGS = settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
POST_NORM, PRE_NORM = ("bert", "roberta", "distilbert", "electra", "albert"), ("gpt2", "llama", "qwen2", "mistral")
TOLERANCE = 1e-8  # of the largest score, in float64
INVARIANT = [
    m.name
    for m in all_methods()
    if m.kind == "trace" and m.family not in ("decoded", "plug-in") and m.name not in ("mask-lrp", "attention-flow")
]


@st.composite
def models(
    draw: st.DrawFn, task: str = "sequence-classification", kinds: tuple[str, ...] = POST_NORM + PRE_NORM
) -> Any:
    """A model of 1–6 layers with random sizes; its name and settings show in a failing example."""
    name = draw(st.sampled_from(kinds))
    heads, width = (
        draw(st.integers(1, 4)),
        draw(st.sampled_from([8, 10, 16])),
    )  # an even width: rotary embeddings turn pairs
    layers, inner, size = draw(st.integers(1, 6)), draw(st.integers(3, 40)), heads * width
    sizes: dict[str, Any] = {
        "hidden_size": size,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "tie_word_embeddings": draw(st.booleans()),
    }
    own: dict[str, dict[str, Any]] = {
        "distilbert": {"dim": size, "n_layers": layers, "n_heads": heads, "hidden_dim": inner},
        "electra": {"embedding_size": draw(st.sampled_from([size, 8]))},
        "albert": {"embedding_size": draw(st.sampled_from([size, 8]))},
        "gpt2": {"n_embd": size, "n_layer": layers, "n_head": heads, "n_inner": inner},
    }
    if name in ("llama", "qwen2", "mistral"):
        sizes["num_key_value_heads"] = draw(st.sampled_from([k for k in range(1, heads + 1) if heads % k == 0]))
    seed = draw(st.integers(0, 99))
    return architectures.build(name, seed=seed, task=task, **{**sizes, **own.get(name, {})})


WORDS = st.lists(st.integers(5, len(architectures.VOCABULARY) - 1), min_size=1, max_size=8)


def framed(words: list[int]) -> dict[str, list[int]]:
    return {"input_ids": [2, *words, 3]}


@SETTINGS
@given(model=models(), rows=st.lists(WORDS, min_size=2, max_size=3))
def test_batch_mates_padding_and_order_change_nothing(model: Any, rows: list[list[int]]) -> None:
    explainer = whence.load(model, architectures.tokenizer())
    inputs = [framed(row) for row in rows]
    padded = explainer.explain([*inputs[::-1], framed([9] * 12)], INVARIANT, 1)
    each = [explainer.explain(one, INVARIANT, 1) for one in inputs]
    for name in INVARIANT:
        alone = [found[name] for found in each]
        for one, other in zip(alone, padded[name][-2::-1], strict=True):
            largest = max(np.abs(e.scores).max() for e in alone)
            # relevance divides by sums that may be near zero: rounding shows more there
            loose = 1e-5 if one.method in ("lrp", "partial-lrp", "transatt") else TOLERANCE
            assert np.abs(one.scores - other.scores).max() <= loose * largest, name


@SETTINGS
@given(model=models(), words=WORDS)
def test_rows_of_mixing_sum_to_one(model: Any, words: list[int]) -> None:
    explainer = whence.load(model, architectures.tokenizer())
    found = explainer.explain(framed(words), ["rollout", "alti", "norms"], matrices=True)
    for name in ("alti", "norms"):
        for matrix in found[name].matrices.values():
            np.testing.assert_allclose(matrix.sum(-1), 1, atol=1e-9)
    for e in found.values():
        assert e.scores.sum() == pytest.approx(1, abs=1e-9)
        assert e.scores.min() >= 0


@SETTINGS
@given(model=models(), words=WORDS, target=st.integers(0, 2))
def test_paths_are_complete(model: Any, words: list[int], target: int) -> None:
    """Σ scores = y(x) − y(baseline): DeepLIFT exactly, integrated gradients as its steps grow."""
    explainer = whence.load(model, architectures.tokenizer())
    exact = explainer.explain(framed(words), "deeplift", target)
    y, y_at_baseline = logits(model, [2, *words, 3])[target], logits(model, [2, *[4] * len(words), 3])[target]
    difference = float(y - y_at_baseline)
    assert exact.scores.sum() == pytest.approx(difference, rel=1e-6, abs=1e-7)
    close = explainer.explain(framed(words), "integrated-gradients", target, aggregate="sum", steps=64)
    assert close.scores.sum() == pytest.approx(difference, rel=0.05, abs=0.02)


def logits(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


@SETTINGS
@given(model=models(), words=WORDS, target=st.integers(0, 2))
def test_occlusion_is_the_difference_of_two_answers(model: Any, words: list[int], target: int) -> None:
    explainer = whence.load(model, architectures.tokenizer())
    e = explainer.explain(framed(words), "occlusion", target, of="logit")
    y = logits(model, [2, *words, 3])[target]
    for i in range(len(words)):
        without = [2, *words[:i], 4, *words[i + 1 :], 3]
        assert e.scores[1 + i] == pytest.approx(float(y - logits(model, without)[target]), abs=1e-9)


@SETTINGS
@given(model=models(kinds=POST_NORM), words=WORDS, target=st.integers(0, 2))
def test_deep_taylor_relevance_is_kept(model: Any, words: list[int], target: int) -> None:
    """Relevance starts as 1 at the logit; the rules hand on all of it, but for places where nothing was positive."""
    explainer = whence.load(model, architectures.tokenizer())
    e = explainer.explain(framed(words), "lrp", target, rules="deep-taylor")
    kept = e.options["relevance_kept"]
    assert kept == pytest.approx(float(e.scores.sum()), abs=1e-6)
    assert -1e-6 <= kept <= 1 + 1e-3


@SETTINGS
@given(model=models("causal-lm", PRE_NORM), words=st.lists(st.integers(5, 40), min_size=2, max_size=6))
def test_a_language_model_never_sees_the_future(model: Any, words: list[int]) -> None:
    explainer = whence.load(model, architectures.tokenizer(framed=False))
    names = ["gae", "gradient", "attnlrp", "alti"]
    asked = {"continuation": (words[-1], 7), "place": 0}
    found = explainer.explain({"input_ids": words[:-1]}, names, **asked)
    other = explainer.explain({"input_ids": words[:-1]}, names, **{**asked, "continuation": (words[-1], 11)})
    for name in names:
        assert not found[name].scores[len(words) - 1 :].any(), name
        np.testing.assert_allclose(found[name].scores[:-1], other[name].scores[:-1], atol=1e-10)
