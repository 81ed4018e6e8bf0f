"""Attention maps are made when they are looked at: kept where they fit, one layer at a time where they do not."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import whence
from tests import architectures
from whence.trace import attention, maps
from whence.trace.attention import Attended
from whence.trace.maps import Maps

TEXTS = ["the film was not charming , but funny !", "good", "a slow and very long story . the music is lovely"]
METHODS = ["raw-attention", "rollout", "attgrads", "gae", "attcat", "attention-gradcam", "transatt", "mask-lrp", "alti"]


def explain(ex: whence.Explainer) -> dict[str, list[whence.Explanation]]:
    config = ex.model.config
    mask = np.ones((config.num_hidden_layers, config.num_attention_heads))
    mask[0, 0] = 0
    found: dict[str, list[whence.Explanation]] = ex.explain(TEXTS, METHODS, 1, head_mask=mask)
    return found


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_scores_do_not_depend_on_what_is_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ex = whence.load(architectures.model(name, torch.float64), architectures.tokenizer())
    kept = explain(ex)
    monkeypatch.setattr(maps, "KEPT_BYTES", {"cpu": 0})
    monkeypatch.setattr(attention, "CHUNK_BYTES", {"cpu": 1})  # relevance passes head by head
    streamed = explain(ex)
    for method in METHODS:
        for a, b in zip(kept[method], streamed[method], strict=True):
            np.testing.assert_allclose(a.scores, b.scores, rtol=1e-12, atol=1e-14)
        if method != "attention-gradcam":  # whose ReLU may leave nothing
            assert all(np.abs(a.scores).max() > 0 for a in kept[method])


@pytest.mark.parametrize("kept", [0, 1 << 30])
@pytest.mark.parametrize("method", ["rollout", "gae", "attcat", "attgrads", "transatt", "alti", "norms"])
def test_one_layer_at_a_time(method: str, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where maps are not kept, or nobody else looks at them, the map of a layer is gone before the next but one is made."""
    monkeypatch.setattr(maps, "KEPT_BYTES", {"cpu": kept})
    alive: list[weakref.ref[Any]] = []
    most = 0

    def counted(make: Any) -> Any:
        def made(*args: Any) -> torch.Tensor:
            nonlocal most
            found: torch.Tensor = make(*args)
            alive.append(weakref.ref(found))
            most = max(most, sum(ref() is not None for ref in alive))
            return found

        return made

    for kind in ("probabilities", "gradient", "relevance"):
        monkeypatch.setattr(Attended, kind, counted(getattr(Attended, kind)))
    model = architectures.model("bert", torch.float32)
    ex = whence.load(model, architectures.tokenizer())
    ex.explain(TEXTS[0], method, 1)
    kinds = 2 if method in ("gae", "attgrads", "transatt") else 1
    assert 1 <= most <= 2 * kinds
    checked = 1  # a model's first blocks are held against what it computed
    assert len(alive) <= (kinds + checked) * model.config.num_hidden_layers  # none is made twice
    assert len(alive) >= model.config.num_hidden_layers


@pytest.mark.parametrize(("methods", "target"), [(["alti", "rollout"], 1), (["rollout"], "all")])
def test_maps_that_are_looked_at_again_are_made_once(
    methods: list[str], target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0
    make = Attended.probabilities

    def counted(self: Attended) -> torch.Tensor:
        nonlocal made
        made += 1
        return make(self)

    monkeypatch.setattr(Attended, "probabilities", counted)
    model = architectures.model("bert", torch.float32)
    whence.load(model, architectures.tokenizer()).explain(TEXTS[0], methods, target)
    assert made == model.config.num_hidden_layers


def test_maps_are_sequences() -> None:
    made: list[int] = []

    def make(i: int) -> torch.Tensor:
        made.append(i)
        return torch.full((1, 1, 2, 2), float(i))

    def of(keep: bool) -> Maps:
        made.clear()
        return Maps([lambda i=i: make(i) for i in range(3)], keep)  # type: ignore[misc]

    kept = of(True)
    assert [float(m[0, 0, 0, 0]) for m in kept] == [0, 1, 2]
    assert float(kept[-1].max()) == 2
    assert made == [0, 1, 2]  # each once
    anew = of(False)
    assert len(anew[1:]) == 2
    assert float(anew[1:][0].max()) == 1
    assert float(anew[1].max()) == 1
    assert made == [1, 1]
    held = anew[2]
    assert anew[2] is held  # as long as somebody holds it
    del held
    assert float(anew[2].max()) == 2
    assert made == [1, 1, 2, 2]
    with pytest.raises(IndexError):
        anew[3]


def layer(**more: Any) -> Attended:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    return Attended(q, k, v, more.pop("bias", None), 0.5, **more)


@pytest.mark.parametrize(
    "more",
    [{}, {"bias": torch.randn(2, 3, 5, 5, dtype=torch.float64)}, {"softcap": 2.0}, {"sinks": torch.randn(3).double()}],
    ids=["plain", "bias", "softcap", "sinks"],
)
def test_the_gradient_of_a_map_follows_from_that_of_the_context(more: dict[str, Any]) -> None:
    one = layer(**more)
    a = one.softmax(one.scores(one.query @ one.key.mT)).detach().requires_grad_(True)
    context = a @ one.value
    wanted = torch.randn_like(context)
    (expected,) = torch.autograd.grad((context * wanted).sum(), a)
    torch.testing.assert_close(one.gradient(wanted), expected)
    torch.testing.assert_close(one.probabilities(), a.detach())
    torch.testing.assert_close(one.written_out(None), context)
    if one.fused:
        torch.testing.assert_close(one.kernel(), context)


def test_a_position_bias_counts() -> None:
    """T5 and its kin hand their relative positions over as a bias: left out, the attention would be silently wrong."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 4, 3) for _ in range(3))
    bias, mask = torch.randn(1, 2, 4, 4), torch.zeros(1, 1, 4, 4)
    mask[..., -1] = torch.finfo(torch.float32).min
    found, _ = attention.attention(torch.nn.Module(), q, k, v, mask, scaling=1.0, position_bias=bias)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=bias + mask, scale=1.0).transpose(1, 2)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("method", ["transatt", "mask-lrp", "partial-lrp", "gae", "alti"])
def test_nothing_of_a_trace_waits_for_the_garbage_collector(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch may take a sixth of a GPU's memory: what refers to itself would fill it in a few calls."""
    explainer = whence.load(architectures.build("bert", torch.float32), architectures.tokenizer())
    config = explainer.model.config
    heads = np.ones((config.num_hidden_layers, config.num_attention_heads))
    options = {"head_mask": heads} if method == "mask-lrp" else {}
    explainer.explain(TEXTS[0], method, **options)
    contexts: list[weakref.ref[torch.Tensor]] = []
    kernel = Attended.kernel

    def told(self: Attended) -> torch.Tensor:
        found = kernel(self)
        contexts.append(weakref.ref(found))
        return found

    monkeypatch.setattr(Attended, "kernel", told)
    gc.collect()
    gc.disable()
    try:
        explainer.explain(TEXTS[0], method, **options)
        assert contexts
        assert not any(context() is not None for context in contexts)
    finally:
        gc.enable()
