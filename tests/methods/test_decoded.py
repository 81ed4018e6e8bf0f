"""Decoded saliency: slow literal transcriptions of the paper, the head's own arithmetic, and where heads come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel

import whence
from tests import architectures
from whence.errors import InputError
from whence.models import layers_of
from whence.models import lm_head as heads
from whence.models.lm_head import HEADS, LMHead, head_of_model, log_sum_exp

METHODS = ("decoded-grad-cam", "decoded-simple")
TEXTS = ["a charming and funny film .", "the plot was dull", "it is not a bad movie , but it is not a good film !"]
IDS = [2, 7, 9, 12, 30, 9, 22, 7, 3]  # with repetitions
DEPTH, WIDTH, VOCABULARY = 3, 32, len(architectures.VOCABULARY)


def language_model(name: str) -> PreTrainedModel:
    torch.manual_seed(5)
    auto = AutoModelForCausalLM if name in architectures.DECODERS else AutoModelForMaskedLM
    model = auto.from_config(architectures.config(name)).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.3)
    return model


def random_head() -> nn.Linear:
    torch.manual_seed(3)
    return nn.Linear(WIDTH, VOCABULARY).double()


# ---- the paper, loop by loop ----------------------------------------------------------------------------------------


def states_and_gradients(model: Any, ids: list[int], of: str) -> tuple[list[Tensor], list[Tensor]]:
    """X^l and ∂y/∂X^l (or ∂loss/∂X^l), by Hugging Face's own outputs; y is the predicted class."""
    output = model(input_ids=torch.tensor([ids]), output_hidden_states=True)
    hidden = list(output.hidden_states)
    best = int(output.logits.argmax())
    scalar = output.logits[0, best] if of == "y" else -output.logits.log_softmax(-1)[0, best]
    grads = torch.autograd.grad(scalar, hidden)
    return [h[0].detach() for h in hidden], [g[0] for g in grads]


def weights_of_tokens(hidden: Tensor, head: nn.Module, ids: list[int], tau: int | None) -> tuple[list[int], Tensor]:
    """Lines 4, 5 and 8 of Algorithm 1: the distinct tokens and D (T, n), small entries of each column set to 0."""
    distinct = list(dict.fromkeys(ids))
    probabilities = head(hidden).detach().softmax(-1)  # P (n, V)
    d = torch.zeros(len(distinct), len(ids), dtype=torch.float64)
    for i, token in enumerate(distinct):
        for j in range(len(ids)):
            d[i, j] = probabilities[j, token]
    if tau is not None:
        for j in range(len(ids)):
            ranked = sorted(range(len(distinct)), key=lambda i: -float(d[i, j]))
            for i in ranked[tau:]:
                d[i, j] = 0
    return distinct, d


def literal(ids: list[int], alpha: Tensor, d: Tensor, distinct: list[int], g: Any, each: bool) -> list[float]:
    """Equation 6 (each=False) or Algorithm 1 (each=True), then the token's score for each of its occurrences."""
    scores = []
    for i in range(len(distinct)):
        if each:
            s = 0.0
            for j in range(len(ids)):
                s += g(d[i, j] * alpha[j])
        else:
            total = torch.zeros_like(alpha[0])
            for j in range(len(ids)):
                total = total + d[i, j] * alpha[j]
            s = g(total)
        scores.append(float(s))
    return [scores[distinct.index(t)] for t in ids]


@pytest.mark.parametrize("tau", [None, 1, 3, 99])
@pytest.mark.parametrize("relu", ["sum", "each"])
@pytest.mark.parametrize("layer", [0, 1, 3])
def test_grad_cam_literal(layer: int, relu: str, tau: int | None) -> None:
    model, head = architectures.model("bert"), random_head()
    hidden, grads = states_and_gradients(model, IDS, "y")
    alpha = hidden[layer] * grads[layer]
    distinct, d = weights_of_tokens(hidden[layer], head, IDS, tau)
    wanted = literal(IDS, alpha, d, distinct, lambda a: max(0.0, float(a.sum())), relu == "each")
    ex = whence.load(model)
    e = ex.explain({"input_ids": IDS}, "decoded-grad-cam", layer=layer, tau=tau, relu=relu, lm_head=head)
    np.testing.assert_allclose(e.scores, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("tau", [None, 2])
@pytest.mark.parametrize("relu", ["sum", "each"])
def test_simple_literal(relu: str, tau: int | None) -> None:
    model, head = architectures.model("bert"), random_head()
    hidden, grads = states_and_gradients(model, IDS, "loss")
    alpha = grads[2] / grads[2].abs().sum()
    distinct, d = weights_of_tokens(hidden[2], head, IDS, tau)
    wanted = literal(IDS, alpha, d, distinct, lambda a: float(a.abs().sum()), relu == "each")
    ex = whence.load(model)
    e = ex.explain({"input_ids": IDS}, "decoded-simple", layer=2, tau=tau, relu=relu, lm_head=head)
    np.testing.assert_allclose(e.scores, wanted, rtol=1e-9, atol=1e-12)


def own_token_head(states: Tensor, ids: list[int]) -> nn.Linear:
    """A head that decodes each of these states (n, d), n ≤ d, to its own token with certainty."""
    head = nn.Linear(WIDTH, VOCABULARY, bias=False).double()
    with torch.no_grad():
        head.weight.zero_()
        head.weight[ids] = 1e4 * torch.linalg.pinv(states).T
    return head


@pytest.mark.parametrize("layer", [0, 1, 2, 3])
def test_a_head_that_decodes_each_position_to_its_own_token_gives_grad_cam(layer: int) -> None:
    model, ids = architectures.model("bert"), [2, 7, 9, 12, 30, 22, 3]
    head = own_token_head(states_and_gradients(model, ids, "y")[0][layer], ids)
    ex = whence.load(model)
    plain = ex.explain({"input_ids": ids}, "grad-cam", layer=layer)
    for relu in ("sum", "each"):
        e = ex.explain({"input_ids": ids}, "decoded-grad-cam", layer=layer, lm_head=head, relu=relu)
        np.testing.assert_allclose(e.scores, plain.scores, rtol=1e-9, atol=1e-12)


def test_simple_with_such_a_head_is_simple_at_that_layer() -> None:
    model, ids = architectures.model("bert"), [2, 7, 9, 12, 30, 22, 3]
    hidden, grads = states_and_gradients(model, ids, "loss")
    norms = grads[1].abs().sum(-1)
    head = own_token_head(hidden[1], ids)
    e = whence.load(model).explain({"input_ids": ids}, "decoded-simple", layer=1, lm_head=head)
    np.testing.assert_allclose(e.scores, (norms / norms.sum()).numpy(), rtol=1e-9)


@pytest.mark.parametrize("layer", [1, 2, 3])
def test_any_layer_wise_score_can_be_decoded(layer: int) -> None:
    model, ids = architectures.model("bert"), [2, 7, 9, 12, 30, 22, 3]
    ex, row = whence.load(model), {"input_ids": [2, 7, 9, 12, 30, 22, 3]}
    head = own_token_head(states_and_gradients(model, ids, "y")[0][layer], ids)
    for method, options in (("attcat", {"variant": "paper"}), ("cat", {}), ("alti", {})):
        plain = ex.explain(row, method, **options)
        e = ex.explain(row, "decoded-grad-cam", layer=layer, decode=method, relu=None, lm_head=head)
        np.testing.assert_allclose(e.scores, plain.layers[layer - 1], rtol=1e-9, atol=1e-12)
    e = ex.explain(row, "decoded-grad-cam", layer=layer, decode="grad-cam", relu=None, lm_head=head)
    np.testing.assert_allclose(e.scores, ex.explain(row, "cat").layers[layer - 1], rtol=1e-9, atol=1e-12)


# ---- properties -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_batch_and_padding_do_not_matter(architecture: str, method: str) -> None:
    ex = whence.load(architectures.model(architecture), architectures.tokenizer())
    for options in ({"layer": 2}, {"layer": "all", "tau": 2}, {"layer": 1, "relu": "each"}):
        batch = ex.explain(TEXTS, method, lm_head=HEAD, **options)
        for text, e in zip(TEXTS, batch, strict=True):
            alone = ex.explain(text, method, lm_head=HEAD, **options)
            np.testing.assert_allclose(e.scores, alone.scores, rtol=1e-8, atol=1e-10)
            if e.layers is not None:
                np.testing.assert_allclose(e.layers, alone.layers, rtol=1e-8, atol=1e-10)


HEAD = random_head()


def test_all_layers_from_one_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    ex = whence.load(architectures.model("bert"), architectures.tokenizer())
    e = ex.explain(TEXTS[2], "decoded-grad-cam", layer="all", lm_head=HEAD)
    assert e.layers.shape == (DEPTH, len(e))
    for layer in range(1, DEPTH + 1):
        one = ex.explain(TEXTS[2], "decoded-grad-cam", layer=layer, lm_head=HEAD)
        np.testing.assert_allclose(e.layers[layer - 1], one.scores, rtol=1e-10)
    auto = ex.explain(TEXTS[2], "decoded-grad-cam", lm_head=HEAD)
    assert auto.options["layer"] == e.options["scores_of_layer"] == 2  # round(0.55 · 3)
    np.testing.assert_allclose(auto.scores, e.scores)
    assert whence.Explanation.from_dict(json.loads(json.dumps(e.to_dict()))) == e


def test_negative_layers_count_from_the_last() -> None:
    ex = whence.load(architectures.model("bert"))
    for layer in range(-DEPTH - 1, 0):
        below, above = (
            ex.explain({"input_ids": IDS}, "decoded-grad-cam", layer=number, lm_head=HEAD)
            for number in (layer, DEPTH + 1 + layer)
        )
        assert below.options["layer"] == above.options["layer"] == DEPTH + 1 + layer
        np.testing.assert_array_equal(below.scores, above.scores)


def test_occurrences_of_a_token_share_its_score() -> None:
    e = whence.load(architectures.model("bert")).explain({"input_ids": IDS}, "decoded-grad-cam", lm_head=HEAD)
    assert e.scores[1] == e.scores[7]
    assert e.scores[2] == e.scores[5]


# ---- the head -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HEADS)
def test_heads_compute_the_models_own_probabilities(name: str) -> None:
    model = language_model(name)
    ids = torch.tensor([[2, 7, 9, 12, 3], [2, 30, 9, 22, 3]])
    with torch.no_grad():
        output = model(input_ids=ids, output_hidden_states=True)
        kept: list[Tensor] = []
        handle = layers_of(model)[-1].register_forward_hook(
            lambda m, a, out: kept.append(out[0] if isinstance(out, tuple) else out)
        )
        model(input_ids=ids)
        handle.remove()
    head = head_of_model(model, name)
    assert head is not None
    wanted = output.logits.log_softmax(-1).gather(-1, ids[:, None, :].expand(-1, 5, -1))
    torch.testing.assert_close(head.log_probabilities(kept[-1], ids), wanted, rtol=1e-9, atol=1e-10)
    opaque = LMHead("opaque", lambda h: head_logits(head, h), None)
    torch.testing.assert_close(opaque.log_probabilities(kept[-1], ids), wanted, rtol=1e-9, atol=1e-10)


def head_logits(head: LMHead, hidden: Tensor) -> Tensor:
    return nn.functional.linear(head.transform(hidden), head.weight, head.bias)


def test_log_sum_exp_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "BLOCK_BYTES", 1)
    torch.manual_seed(0)
    features, weight, bias = torch.randn(5, 8) * 10, torch.randn(1000, 8) * 10, torch.randn(1000)
    wanted = nn.functional.linear(features.double(), weight.double(), bias.double()).logsumexp(-1)
    torch.testing.assert_close(log_sum_exp(features, weight, bias).double(), wanted, rtol=1e-5, atol=1e-4)
    assert torch.isfinite(log_sum_exp(features * 100, weight, bias)).all()


def test_where_heads_come_from(tmp_path: Path) -> None:
    base = language_model("bert").double()
    base.save_pretrained(tmp_path / "base")
    ex = whence.load(architectures.model("bert"), architectures.tokenizer())
    with pytest.raises(whence.NotSupported, match=r"no language-model head.*lm_head="):
        ex.explain(TEXTS[0], "decoded-grad-cam")
    live = ex.explain(TEXTS[0], "decoded-grad-cam", lm_head=base)
    assert live.options["lm_head"] == "BertForMaskedLM"
    for given in (str(tmp_path / "base"), tmp_path / "base"):
        stored = ex.explain(TEXTS[0], "decoded-grad-cam", lm_head=given)
        np.testing.assert_allclose(stored.scores, live.scores, rtol=1e-12)
        assert stored.options["lm_head"] == str(given)
    opaque = ex.explain(TEXTS[0], "decoded-grad-cam", lm_head=base.cls)
    np.testing.assert_allclose(opaque.scores, live.scores, rtol=1e-9)
    told = whence.load(architectures.model("bert"), architectures.tokenizer(), lm_head=base)
    np.testing.assert_allclose(told.explain(TEXTS[0], "decoded-grad-cam").scores, live.scores)


def test_heads_that_do_not_fit(tmp_path: Path) -> None:
    ex = whence.load(architectures.model("bert"), architectures.tokenizer())
    cases: list[tuple[Any, str]] = [
        (nn.Linear(7, VOCABULARY).double(), "does not fit"),
        (nn.Linear(WIDTH, 9).double(), "does not fit"),
        (architectures.model("bert"), "no language-model head"),
        (3, "takes a name"),
        ("no-such-model", "unknown model"),
    ]
    for given, sentence in cases:
        with pytest.raises(whence.WhenceError, match=sentence):
            ex.explain(TEXTS[0], "decoded-grad-cam", lm_head=given)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"layer": 4}, "layers 0 .* to 3"),
        ({"layer": "last"}, "'auto' or 'all'"),
        ({"tau": 0}, "tau=0"),
        ({"relu": "both"}, "relu 'both'"),
        ({"decode": "attcta"}, "did you mean 'attcat'"),
        ({"decode": "random"}, "no score per layer"),
        ({"decode": "alti", "layer": 0}, "no score for layer 0"),
    ],
)
def test_wrong_options_say_so(options: dict[str, Any], sentence: str) -> None:
    ex = whence.load(architectures.model("bert"), architectures.tokenizer())
    with pytest.raises(whence.WhenceError, match=sentence):
        ex.explain(TEXTS[0], "decoded-grad-cam", lm_head=HEAD, **options)


def test_embedded_models_know_their_head(sentiment: whence.Explainer) -> None:
    e = sentiment.explain("a charming and often affecting journey", "decoded-grad-cam")
    assert e.options["lm_head"] == "masked-lm"
    assert e.scores.max() > 0


@pytest.mark.parametrize("method", ["decoded-grad-cam", "decoded-simple"])
def test_no_layer_is_the_auto_layer(method: str) -> None:
    ex = whence.load("sentiment")
    plain, auto = ex.explain("a charming journey", method), ex.explain("a charming journey", method, layer="auto")
    assert np.array_equal(plain.scores, auto.scores)


def test_methods_of_relevance_can_be_decoded_and_those_of_many_passes_are_refused() -> None:
    model, head = architectures.model("bert"), random_head()
    ex = whence.load(model)
    row = {"input_ids": IDS}
    for decode in ("attnlrp", "lrp", "transatt"):
        layers = ex.explain(row, decode).layers
        assert layers is not None
        alpha = torch.from_numpy(layers)[2 - (4 - len(layers))][:, None].double()
        hidden, _ = states_and_gradients(model, IDS, "y")
        distinct, d = weights_of_tokens(hidden[2], head, IDS, None)
        wanted = literal(IDS, alpha, d, distinct, lambda a: float(a.sum()), False)
        e = ex.explain(row, "decoded-grad-cam", layer=2, relu=None, lm_head=head, decode=decode)
        np.testing.assert_allclose(e.scores, wanted, rtol=1e-5, atol=1e-9, err_msg=decode)
    for decode, what in (
        ("mask-lrp", "head mask"),
        ("occlusion", "more than one pass"),
        ("gradient", "no score per layer"),
    ):
        with pytest.raises(InputError, match=what):
            ex.explain(row, "decoded-grad-cam", lm_head=head, decode=decode)
