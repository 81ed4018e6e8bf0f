"""Each method against its formula written out with loops, on tensors that Hugging Face's own eager attention reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import captum.attr
import networkx
import numpy as np
import pytest
import torch

import whence
from tests import architectures

TEXT = "the film was not charming , but funny !"
TARGET = 2


@dataclass
class Reference:
    """One text, one row, traced the plain way: eager attention, hidden states and autograd."""

    a: np.ndarray  # (L, H, n, n)
    g: np.ndarray  # (L, H, n, n)
    x: np.ndarray  # (L + 1, n, d)
    dx: np.ndarray  # (L + 1, n, d)
    e: np.ndarray  # (n, d) word embeddings
    de: dict[str, np.ndarray]  # (n, d) by scalar
    r: int

    @property
    def n(self) -> int:
        return self.a.shape[-1]

    @property
    def depth(self) -> int:
        return self.a.shape[0]


def reference(name: str) -> Reference:
    model = architectures.build(name, attn_implementation="eager")
    ids = torch.tensor([architectures.tokenizer()(TEXT)["input_ids"]])
    embeddings = model.get_input_embeddings()(ids).detach().requires_grad_(True)
    handle = model.get_input_embeddings().register_forward_hook(lambda *_: embeddings)
    output = model(input_ids=ids, output_attentions=True, output_hidden_states=True)
    handle.remove()
    hidden = output.hidden_states
    inputs = [*output.attentions, *hidden, embeddings]
    grads = torch.autograd.grad(output.logits[0, TARGET], inputs, retain_graph=True, allow_unused=True)
    depth = len(output.attentions)
    probability = output.logits.softmax(-1)[0, TARGET]
    by_scalar = {"logit": grads[-1][0].numpy()}
    for key, scalar in (("probability", probability), ("loss", -probability.log())):
        by_scalar[key] = torch.autograd.grad(scalar, embeddings, retain_graph=True)[0][0].numpy()
    return Reference(
        a=torch.stack([a[0] for a in output.attentions]).detach().numpy(),
        g=torch.stack([g[0] for g in grads[:depth]]).numpy(),
        x=torch.stack([h[0] for h in hidden]).detach().numpy(),
        dx=torch.stack(
            [(torch.zeros_like(h) if g is None else g)[0] for g, h in zip(grads[depth:-1], hidden, strict=True)]
        )
        .detach()
        .numpy(),
        e=embeddings[0].detach().numpy(),
        de=by_scalar,
        r=ids.shape[1] - 1 if name in architectures.DECODERS else 0,
    )


def raw_attention(t: Reference) -> np.ndarray:
    return np.array([np.mean([t.a[-1, h, t.r, j] for h in range(t.a.shape[1])]) for j in range(t.n)])


def residual(t: Reference) -> list[np.ndarray]:
    sums = [t.a[layer].mean(0) + np.eye(t.n) for layer in range(t.depth)]
    return [m / m.sum(1, keepdims=True) for m in sums]


def rollout(t: Reference) -> np.ndarray:
    joint = np.eye(t.n)
    for b in residual(t):
        joint = b @ joint
    return joint[t.r]


def attention_flow(t: Reference) -> np.ndarray:
    graph = networkx.DiGraph()
    for layer, b in enumerate(residual(t)):
        for i in range(t.n):
            for j in range(t.n):
                if b[i, j] > 0:
                    graph.add_edge((layer + 1, i), (layer, j), capacity=b[i, j])
    for j in range(t.n):
        graph.add_node((0, j))
    return np.array([networkx.maximum_flow_value(graph, (t.depth, t.r), (0, j)) for j in range(t.n)])


def grads(t: Reference) -> np.ndarray:
    return np.array([max(0.0, np.mean(t.g[-1, :, :, j])) for j in range(t.n)])


def attgrads(t: Reference) -> np.ndarray:
    return np.array([np.mean(t.a[:, :, :, j] * np.maximum(0, t.g[:, :, :, j])) for j in range(t.n)])


def attention_gradcam(t: Reference) -> np.ndarray:
    p = np.zeros((t.n, t.n))
    for h in range(t.a.shape[1]):
        p += t.g[-1, h].mean() * t.a[-1, h] / t.a.shape[1]
    return np.maximum(0, p)[t.r]


def attention_gradcam_released(t: Reference) -> np.ndarray:
    p = np.maximum(0, sum(t.g[-1, h].mean() * t.a[-1, h] for h in range(t.a.shape[1])) / t.a.shape[1])
    return np.zeros(t.n) if p.max() == p.min() else ((p - p.min()) / (p.max() - p.min()))[t.r]


def gae(t: Reference) -> np.ndarray:
    joint = np.eye(t.n)
    for layer in range(t.depth):
        joint = joint + np.maximum(0, t.g[layer] * t.a[layer]).mean(0) @ joint
    return joint[t.r]


def activation(t: Reference, layer: int) -> np.ndarray:
    return np.array([t.dx[layer, j] @ t.x[layer, j] for j in range(t.n)])


def cat(t: Reference) -> np.ndarray:
    return sum((activation(t, layer) for layer in range(1, t.depth + 1)), np.zeros(t.n))


def attcat(t: Reference, offset: int = 0) -> np.ndarray:
    total = np.zeros(t.n)
    for layer in range(t.depth):
        for j in range(t.n):
            total[j] += t.a[layer, :, :, j].mean() * activation(t, layer + offset)[j]
    return total


FORMULAS: list[tuple[str, dict[str, Any], Callable[[Reference], np.ndarray]]] = [
    ("raw-attention", {}, raw_attention),
    ("rollout", {}, rollout),
    ("attention-flow", {}, attention_flow),
    ("grads", {}, grads),
    ("attgrads", {}, attgrads),
    ("attention-gradcam", {}, attention_gradcam),
    ("attention-gradcam", {"variant": "released"}, attention_gradcam_released),
    ("gae", {}, gae),
    ("cat", {}, cat),
    ("cat", {"layer": 1}, lambda t: activation(t, 1)),
    ("attcat", {}, attcat),
    ("attcat", {"variant": "paper"}, lambda t: attcat(t, offset=1)),
    ("grad-cam", {}, lambda t: np.maximum(0, activation(t, 0))),
    ("grad-cam", {"layer": 2}, lambda t: np.maximum(0, activation(t, 2))),
    ("simple", {}, lambda t: np.abs(t.de["loss"]).sum(1) / np.abs(t.de["loss"]).sum()),
    ("gradient", {}, lambda t: np.sqrt((t.de["probability"] ** 2).sum(1))),
    ("gradient", {"norm": 1, "of": "logit"}, lambda t: np.abs(t.de["logit"]).sum(1)),
    ("gradient-x-input", {}, lambda t: np.sqrt(((t.de["logit"] * t.e) ** 2).sum(1))),
    ("gradient-x-input", {"aggregate": "mean"}, lambda t: np.abs(t.de["logit"] * t.e).mean(1)),
    ("gradient-x-input", {"aggregate": "sum", "of": "probability"}, lambda t: (t.de["probability"] * t.e).sum(1)),
]


def test_every_method_equals_its_formula(architecture: str) -> None:
    t = reference(architecture)
    explainer = whence.load(architectures.model(architecture), architectures.tokenizer())
    pre_norm = architecture in (*architectures.DECODERS, "modernbert")
    for name, options, formula in FORMULAS:
        if pre_norm and (name == "cat" or options.get("variant") == "paper") and not options.get("layer"):
            continue  # Hugging Face reports the last hidden state after the final norm; X^L is before it
        e = explainer.explain(TEXT, name, TARGET, **options)
        expected = formula(t)
        # some model files take their softmax in float32 whatever the model's dtype; whence does not
        share = 1e-3 if pre_norm else 1e-9
        np.testing.assert_allclose(
            e.scores, expected, rtol=0, atol=share * np.abs(expected).max() + 1e-4 * share, err_msg=f"{name} {options}"
        )


def test_the_last_hidden_state_is_the_last_layers_output_before_the_final_norm() -> None:
    """For pre-norm models X^L·∂y/∂X^L must be read before the final norm."""
    model = architectures.model("gpt2")
    explainer = whence.load(model, architectures.tokenizer())
    kept = []
    handle = model.transformer.h[-1].register_forward_hook(
        lambda _m, _a, out: kept.append(out[0] if isinstance(out, tuple) else out)
    )
    logits = model(torch.tensor([architectures.tokenizer()(TEXT)["input_ids"]])).logits
    handle.remove()
    gradient = torch.autograd.grad(logits[0, TARGET], kept[0])[0]
    expected = (gradient * kept[0]).sum(-1)[0].detach().numpy()
    np.testing.assert_allclose(explainer.explain(TEXT, "cat", TARGET, layer=3).scores, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2", "llama"])
def test_equals_captum_at_the_word_embeddings(name: str) -> None:
    model = architectures.model(name)
    explainer = whence.load(model, architectures.tokenizer())
    ids = torch.tensor([architectures.tokenizer()(TEXT)["input_ids"]])
    x = model.get_input_embeddings()(ids).detach()

    def logit(embeddings: torch.Tensor) -> torch.Tensor:
        handle = model.get_input_embeddings().register_forward_hook(lambda *_: embeddings)
        try:
            return model(input_ids=ids).logits
        finally:
            handle.remove()

    saliency = captum.attr.Saliency(logit).attribute(x.requires_grad_(), target=TARGET, abs=False)[0]
    product = captum.attr.InputXGradient(logit).attribute(x, target=TARGET)[0]
    gradient = explainer.explain(TEXT, "gradient", TARGET, of="logit").scores
    np.testing.assert_allclose(gradient, saliency.norm(dim=-1).numpy(), rtol=1e-6)
    total = explainer.explain(TEXT, "gradient-x-input", TARGET, aggregate="sum").scores
    np.testing.assert_allclose(total, product.sum(-1).detach().numpy(), rtol=1e-6, atol=1e-9)
    probability = captum.attr.Saliency(lambda e: logit(e).softmax(-1)).attribute(x, target=TARGET, abs=False)[0]
    np.testing.assert_allclose(
        explainer.explain(TEXT, "gradient", TARGET).scores, probability.norm(dim=-1).detach().numpy(), rtol=1e-6
    )


def test_the_attention_seam_computes_what_the_model_computes(architecture: str) -> None:
    """Logits under whence's attention equal the plain model's, padded batch included."""
    model = architectures.model(architecture)
    explainer = whence.load(model, architectures.tokenizer())
    texts = [TEXT, "good", "a slow and very long story . the music is lovely"]
    found = explainer.explain(texts, "rollout", target="all")
    for text, per_class in zip(texts, found, strict=True):
        plain = model(torch.tensor([architectures.tokenizer()(text)["input_ids"]])).logits.softmax(-1)[0]
        np.testing.assert_allclose([e.probability for e in per_class], plain.detach().numpy(), rtol=1e-8)
