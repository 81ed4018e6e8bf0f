"""Relevance methods: the authors' numbers, conservation, invariance, and what they report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whence
from tests import architectures
from whence.errors import InputError, NotSupported, UnknownName
from whence.models import zoo
from whence.relevance.pass_through import relevance_ready
from whence.relevance.rules import RuleSet
from whence.trace.attention import Attended

GOLDEN = Path(__file__).parent.parent / "golden"
COVERED = (
    "bert",
    "roberta",
    "xlm-roberta",
    "distilbert",
    "electra",
    "albert",
    "gpt2",
    "llama",
    "qwen2",
    "mistral",
    "modernbert",
)
ROWS = [{"input_ids": [2, 7, 8, 9, 14, 22, 3]}, {"input_ids": [2, 7, 8, 3]}, {"input_ids": [2, *range(10, 26), 3]}]
LOSSY = ("lrp", "epsilon", "attnlrp")


def explainer(name: str) -> whence.Explainer:
    return whence.load(architectures.model(name), architectures.tokenizer())


def gap(found: Any, wanted: Any) -> float:
    """Largest difference as a share of the largest score."""
    return float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-300))


# ---- numbers nobody here invented -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["bert_cls", "roberta_cls", "distilbert_cls"])
def test_golden(model: str) -> None:
    stored = np.load(GOLDEN / "relevance.npz")
    references = np.split(stored["scores"], np.cumsum(stored["lengths"])[:-1])
    groups: dict[str, list[tuple[Any, int, Any]]] = {}
    for (name, method, options, row, target), scores in zip(json.loads(str(stored["index"])), references, strict=True):
        if name == model:
            groups.setdefault(json.dumps([method, options]), []).append((row, target, scores))
    assert len(groups) == 10
    loaded = whence.load(GOLDEN / "models" / model, dtype="float64")
    for key, cases in groups.items():
        method, options = json.loads(key)
        found = loaded.explain([c[0] for c in cases], method, [c[1] for c in cases], **options)
        for e, (_, _, reference) in zip(found, cases, strict=True):
            assert gap(e.scores[1:], reference[1:]) <= 2e-5, key  # released code zeroes position 0


# ---- mathematics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COVERED)
def test_deep_taylor_conserves_at_every_layer(name: str) -> None:
    for e in explainer(name).explain(ROWS, "lrp", rules="deep-taylor"):
        assert e.layers is not None
        assert e.layers.shape == (4, len(e))
        np.testing.assert_allclose(e.layers.sum(1), 1.0, atol=1e-4)
        assert e.options["relevance_kept"] == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("name", COVERED)
def test_masked_relevance_is_conserved_too(name: str) -> None:
    """The paper variant's pass, read at the hidden states; one layer's mask is all zero."""
    from whence.inputs import collate
    from whence.relevance.gates import HeadParts
    from whence.relevance.operations import RelevancePass
    from whence.trace import record

    ex = explainer(name)
    heads = HeadParts((((1, 0, 0, 1), (0, 0, 0, 0), (2, 0, 1, 0)), ((0, 0, 0, 1), (0, 0, 0, 0), (0, 1, 0, 0))))
    needs = frozenset({"hidden.relevance"})
    rows = ex.session.task.encoder.encode(ROWS)
    batch = collate(rows, 0, ex.device)
    with record(ex.model, ex.session.task, batch, needs, "deep-taylor") as recording:
        trace = recording.toward(architectures.first_logit(ex, rows, recording), last=False)
        trace = recording.with_relevance(trace, RelevancePass("deep-taylor", heads), needs, last=True)
    for layer in trace.hidden_relevance:
        np.testing.assert_allclose(layer.sum((1, 2)), 1.0, atol=1e-4)


@pytest.mark.parametrize("name", COVERED)
def test_an_all_ones_mask_is_transatt(name: str) -> None:
    ex = explainer(name)
    found = ex.explain(ROWS, ["transatt", "mask-lrp"], head_mask=np.ones((3, 4)))
    for a, b in zip(found["transatt"], found["mask-lrp"], strict=True):
        np.testing.assert_allclose(a.scores, b.scores, atol=1e-12)
    masked = ex.explain(ROWS, "mask-lrp", head_mask=[[1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]])
    assert any(gap(m.scores, t.scores) > 1e-6 for m, t in zip(masked, found["transatt"], strict=True))


@pytest.mark.parametrize("name", COVERED)
def test_padding_and_batching_change_nothing(name: str) -> None:
    ex = explainer(name)
    calls = [
        ("lrp", {"rules": "lrp"}),
        ("lrp", {"rules": "epsilon"}),
        ("attnlrp", {}),
        ("partial-lrp", {}),
        ("transatt", {}),
    ]
    calls += [
        ("mask-lrp", {"head_mask": [[1, 0, 0, 2], [0, 1, 0, 0], [1, 1, 0, 0]], "variant": v})
        for v in ("paper", "released")
    ]
    for method, options in calls:
        for row, e in zip(ROWS, ex.explain(ROWS, method, 1, **options), strict=True):
            alone = ex.explain(row, method, 1, **options)
            assert gap(e.scores, alone.scores) <= 1e-8, method


@pytest.mark.parametrize("name", COVERED)
def test_one_forward_gives_the_true_gradient_too(name: str) -> None:
    ex = explainer(name)
    together = ex.explain(ROWS, ["attcat", "gae", "transatt"])
    for method in ("attcat", "gae"):
        for a, b in zip(together[method], ex.explain(ROWS, method), strict=True):
            np.testing.assert_allclose(a.scores, b.scores, atol=1e-10)


class Chain(nn.Module):
    """Linear layers only, without biases; states stay non-negative, as `lrp`'s two denominators need."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Linear(6, 5, bias=False), nn.Linear(5, 4, bias=False), nn.Linear(4, 2, bias=False)]
        )
        torch.manual_seed(0)
        for layer in self.layers:
            nn.init.uniform_(layer.weight, 0.1, 1.0)
        self.double().requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("name", ["deep-taylor", *LOSSY])
def test_linear_layers_without_biases_conserve_exactly(name: str) -> None:
    model = Chain()
    x = torch.rand(3, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_(True)
    with relevance_ready(model, list(model.modules()), name, 3) as run:
        z = model(x)[:, 0, 0]
    with run.carrying(None):
        (r,) = torch.autograd.grad(z.sum(), x)
    if run.rules.carries == "coefficient":
        r, start = r * x.detach(), z.detach()
    else:
        start = torch.ones(3, dtype=torch.float64)
    np.testing.assert_allclose(r.sum((1, 2)), start, rtol=1e-5)
    assert not r[:, 1:].any()  # other tokens took no part


@pytest.mark.parametrize("rules", LOSSY)
def test_lossy_rules_report_what_is_kept(rules: str) -> None:
    ex = explainer("bert")
    for e in ex.explain(ROWS, "lrp", rules=rules):
        start = 1.0
        if rules == "attnlrp":
            with torch.no_grad():
                start = float(ex.model(torch.tensor([e.input_ids])).logits[0, e.target_index])
        assert e.options["relevance_kept"] == pytest.approx(e.scores.sum() / start, rel=1e-6)


def test_of_a_contrast_no_share_is_kept() -> None:
    """It starts with as much for as against, so with nothing in all."""
    e = explainer("bert").explain(ROWS[0], "lrp", 0, contrast=1)
    assert e.options["relevance_kept"] is None
    assert np.abs(e.scores).max() > 0


def test_attnlrp_is_the_same_in_a_fused_kernel_and_written_out() -> None:
    for name in ("bert", "gpt2", "llama"):
        ex = explainer(name)
        fused, written = ex.explain(ROWS, "attnlrp"), ex.explain(ROWS, ["raw-attention", "attnlrp"])["attnlrp"]
        for a, b in zip(fused, written, strict=True):
            np.testing.assert_allclose(a.scores, b.scores, atol=1e-12)


@pytest.mark.parametrize("rules", ["deep-taylor", "lrp", "epsilon", "attnlrp"])
@pytest.mark.parametrize("method", ["transatt", "partial-lrp"])
def test_a_map_gets_half_of_the_relevance_of_what_it_makes(
    method: str, rules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Σ_j cam[h, i, j] = ½ Σ_d R[h, i, d] of the context A·v, by every rule set: they all share a product evenly."""
    seen = 0
    relevance = Attended.relevance

    def told(self: Attended, found: Tensor, by: RuleSet) -> Tensor:
        nonlocal seen
        seen += 1
        cam, context = relevance(self, found, by), self.handle.detach()
        assert by.name == rules
        carried = found * context if rules == "attnlrp" else found
        torch.testing.assert_close(cam.sum(-1), carried.sum(-1) / 2, rtol=1e-3, atol=1e-6)
        return cam

    monkeypatch.setattr(Attended, "relevance", told)
    explainer("bert").explain(ROWS, method, rules=rules)
    assert seen


# ---- precision ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["transatt", "mask-lrp", "lrp", "partial-lrp"])
def test_float32_holds_against_float64(method: str, sentiment: whence.Explainer) -> None:
    """A sample of what docs/decisions measured on 210 sentences."""
    texts = [row["text"] for row in zoo.samples("sentiment")[:8]]
    options = {"head_mask": np.random.default_rng(0).random((6, 12)) < 0.3} if method == "mask-lrp" else {}
    exact = whence.load("sentiment", dtype="float64").explain(texts, method, 1, **options)
    gaps = [gap(a.scores, b.scores) for a, b in zip(sentiment.explain(texts, method, 1, **options), exact, strict=True)]
    assert np.median(gaps) <= 1e-3
    assert max(gaps) <= 2e-2


def test_bare_relevance_runs_in_float64_and_leaves_the_weights_alone() -> None:
    model = architectures.build("bert", torch.float32)
    before = {name: (p.data_ptr(), p.dtype) for name, p in model.named_parameters()}
    ex = whence.load(model, architectures.tokenizer())
    exact = whence.load(architectures.build("bert", torch.float32).double(), architectures.tokenizer())
    for a, b in zip(ex.explain(ROWS, "lrp", 0), exact.explain(ROWS, "lrp", 0), strict=True):
        assert a.scores.dtype == np.float32
        assert gap(a.scores, b.scores) <= 1e-6
    assert before == {name: (p.data_ptr(), p.dtype) for name, p in model.named_parameters()}


def test_half_precision_models_carry_relevance_in_float32() -> None:
    model = architectures.build("bert", torch.float32).to(torch.bfloat16)
    ex = whence.load(model, architectures.tokenizer())
    wide = whence.load(architectures.build("bert", torch.float32).to(torch.bfloat16).float(), architectures.tokenizer())
    for a, b in zip(ex.explain(ROWS, "transatt", 0), wide.explain(ROWS, "transatt", 0), strict=True):
        assert gap(a.scores, b.scores) <= 1e-4
    assert model.dtype == torch.bfloat16


# ---- behaviour ------------------------------------------------------------------------------------------------------------


def test_masks_come_with_the_embedded_models(sentiment: whence.Explainer) -> None:
    e = sentiment.explain("a charming and often affecting journey", "mask-lrp")
    assert e.options["head_mask"]["source"] == "embedded (sentiment)"
    assert whence.Explanation.from_dict(json.loads(json.dumps(e.to_dict()))) == e
    for name in zoo.names():
        mask = whence.relevance.head_mask.load_mask(zoo.head_mask(name))
        assert mask.provenance["model"] == name
        assert mask.count


def test_errors_say_what_to_do() -> None:
    ex = explainer("bert")
    with pytest.raises(InputError, match="whence heads"):
        ex.explain("a good film", "mask-lrp")
    with pytest.raises(InputError, match="2 layers × 4 heads"):
        ex.explain("a good film", "mask-lrp", head_mask=np.ones((2, 4)))
    with pytest.raises(InputError, match="layers × heads"):
        ex.explain("a good film", "mask-lrp", head_mask=[1, 2])
    with pytest.raises(InputError, match="attnlrp"):
        ex.explain("a good film", "mask-lrp", head_mask=np.ones((3, 4)), rules="attnlrp")
    with pytest.raises(UnknownName, match="deep-taylor"):
        ex.explain("a good film", "transatt", rules="deep-tailor")
    with pytest.raises(UnknownName, match="released"):
        ex.explain("a good film", "mask-lrp", head_mask=np.ones((3, 4)), variant="realeased")
    with pytest.raises((NotSupported, InputError)):
        explainer("mpnet").explain("a good film", "mask-lrp", head_mask=np.ones((3, 4)))


def test_several_rule_sets_in_one_call_and_all_targets() -> None:
    ex = explainer("bert")
    found = ex.explain("a good film", ["lrp", "transatt", "attnlrp", "attcat"], "all")
    for method, es in found.items():
        assert [e.target_index for e in es] == [0, 1, 2], method
        for e in es:
            alone = ex.explain("a good film", method, e.target_index)
            assert gap(e.scores, alone.scores) <= 1e-8
