"""Path methods: captum's numbers on equal work, completeness, and scores that do not depend on the batch."""

from __future__ import annotations

import logging
import tracemalloc
from typing import Any

import captum.attr
import numpy as np
import pytest
import torch
from torch import Tensor

import whence
from tests import architectures
from tests.methods.test_relevance import COVERED, ROWS, gap
from whence.errors import InputError, ModelError, NotSupported, UnknownName
from whence.methods.gradient import l1_shares
from whence.methods.ground import Ground, PathBatch
from whence.methods.path import gauss_legendre, gradient_shap, smoothgrad
from whence.models import zoo
from whence.relevance import deeplift
from whence.relevance.rules import RULE_SETS
from whence.run import progress
from whence.run.paths import ground_of, run_paths
from whence.run.plan import Plan
from whence.run.session import Session
from whence.tasks import Target, Term

MASK = architectures.VOCABULARY["[MASK]"]
METHODS = {
    "smoothgrad": {"samples": 3},
    "integrated-gradients": {"steps": 5},
    "gradient-shap": {"samples": 3, "sigma": 0.01},
    "deeplift": {},
    "deeplift-shap": {"samples": 2},
}
TEXTS = ["a charming and often affecting journey", "dull", "too long , and never funny"]


def explainer(name: str, dtype: torch.dtype = torch.float64) -> whence.Explainer:
    return whence.load(architectures.model(name, dtype), architectures.tokenizer())


def logit(ex: whence.Explainer, ids: list[int], target: int) -> float:
    """The plain model's answer, without anything of ours."""
    with torch.no_grad():
        return float(ex.model(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids))).logits[0, target])


def masked(e: whence.Explanation, mask_id: int) -> list[int]:
    return [i if special else mask_id for i, special in zip(e.input_ids, e.special, strict=True)]


def here_of(ex: whence.Explainer, row: dict[str, Any], count: int) -> tuple[PathBatch, Tensor]:
    """All points of one row, seen from outside the runner, and the row's ids `count` times."""
    (encoded,) = ex.session.task.encoder.encode([row])
    ground = ground_of(ex.session)
    ids = torch.tensor([encoded.input_ids] * count)
    free = torch.zeros_like(ids, dtype=torch.bool)
    free[:, list(encoded.free)] = True
    here = PathBatch(ground, [encoded.input_ids] * count, range(count), [count] * count, ground.embed(ids), free)
    return here, ids


# ---- numbers nobody here invented -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("baseline", ["mask", "pad", "zero"])
@pytest.mark.parametrize("which", ["sentiment", "random BERT"])
def test_integrated_gradients_equal_captums(which: str, baseline: str, sentiment: whence.Explainer) -> None:
    if which == "sentiment":
        ex, texts = sentiment, TEXTS
    else:
        ex = whence.load(architectures.build("bert", torch.float32, num_hidden_layers=2), architectures.tokenizer())
        texts = ["a charming journey and a great film", "dull", "too long , and never funny"]
    found = ex.explain(texts, "integrated-gradients", steps=12, baseline=baseline)
    table = ex.model.get_input_embeddings()
    assert ex.tokenizer is not None
    other = {"mask": ex.tokenizer.mask_token_id, "pad": ex.tokenizer.pad_token_id, "zero": None}[baseline]
    reference = captum.attr.IntegratedGradients(lambda x: ex.model(inputs_embeds=x).logits)
    for e in found:
        x = table(torch.tensor([e.input_ids])).detach()
        base = x.clone()
        base[0, ~e.special] = 0.0 if other is None else table.weight[other].detach()
        wanted = reference.attribute(x, base, target=e.target_index, n_steps=12, method="gausslegendre")
        np.testing.assert_allclose(e.scores, wanted.sum(-1)[0].detach(), atol=1e-4)
        assert np.abs(e.scores).max() > 1e-3


def test_integrated_gradients_equal_captums_layer_method(sentiment: whence.Explainer) -> None:
    """As people call captum on text: the embedding layer, ids, and a text of [MASK] as the baseline."""
    e = sentiment.explain(TEXTS[0], "integrated-gradients", steps=20)
    mask_id = sentiment.tokenizer.mask_token_id  # type: ignore[union-attr]
    layer = captum.attr.LayerIntegratedGradients(
        lambda ids: sentiment.model(ids).logits, sentiment.model.get_input_embeddings()
    )
    wanted, delta = layer.attribute(
        torch.tensor([e.input_ids]),
        torch.tensor([masked(e, mask_id)]),
        target=e.target_index,
        n_steps=20,
        method="gausslegendre",
        return_convergence_delta=True,
    )
    np.testing.assert_allclose(e.scores, wanted.sum(-1)[0].detach(), atol=1e-4)
    assert e.options["delta"] == pytest.approx(float(delta), abs=1e-4)


@pytest.mark.parametrize("sigma", [0.0, 0.05])
def test_gradient_shap_equals_captums_on_equal_samples(sigma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    from captum.attr._core.gradient_shap import InputBaselineXGradient

    ex, row, count = explainer("bert"), ROWS[0], 4
    e = ex.explain(row, "gradient-shap", 1, samples=count, sigma=sigma, seed=3)
    here, _ = here_of(ex, row, count)
    leg = gradient_shap(here.ground, samples=count, sigma=sigma, seed=3).leg(here)
    # every sample's point and span tell its baseline, its α and its noisy input
    base = here.baseline("random", here.chance(3))
    end = base + leg.span
    assert bool((end == here.x).all()) is (sigma == 0)
    alpha = ((leg.points - base) * leg.span).sum((1, 2)) / leg.span.square().sum((1, 2))
    assert len(alpha.unique()) == count
    monkeypatch.setattr(np.random, "uniform", lambda low, high, size: alpha.numpy())
    reference = InputBaselineXGradient(lambda x: ex.model(inputs_embeds=x).logits)
    samples = reference.attribute(end.requires_grad_(True), base, target=1).detach().sum(-1)  # (count, n)
    np.testing.assert_allclose(e.scores, samples.mean(0), atol=1e-10)
    np.testing.assert_allclose(e.options["stderr"], samples.std(0) / count**0.5, atol=1e-10)


def test_smoothgrad_is_the_mean_of_simple_over_its_noise() -> None:
    ex, row = explainer("bert"), ROWS[2]
    e = ex.explain(row, "smoothgrad", 1, samples=4, sigma=0.1, seed=5)
    here, ids = here_of(ex, row, 4)
    leg = smoothgrad(here.ground, samples=4, sigma=0.1, seed=5).leg(here)
    spread = float(leg.span.std() / (here.x.max() - here.x.min()))
    assert spread == pytest.approx(0.1, rel=0.05)
    shares = []
    for point in leg.points:
        x = point[None].clone().requires_grad_(True)
        loss = torch.nn.functional.cross_entropy(ex.model(inputs_embeds=x).logits, torch.tensor([1]))
        norms = torch.autograd.grad(loss, x)[0].abs().sum(-1)[0]
        shares.append(norms / norms.sum())
    np.testing.assert_allclose(e.scores, torch.stack(shares).mean(0), atol=1e-12)
    assert e.scores.sum() == pytest.approx(1.0)
    assert ids.shape == (4, len(e))
    still = ex.explain(row, "smoothgrad", 1, sigma=0)
    np.testing.assert_allclose(still.scores, ex.explain(row, "simple", 1).scores, atol=1e-12)
    other = ex.explain(row, "smoothgrad", 1, samples=4, sigma=0.1, seed=6)
    assert gap(other.scores, e.scores) > 1e-4


# ---- completeness ---------------------------------------------------------------------------------------------------------


def test_integrated_gradients_are_complete(architecture: str) -> None:
    ex = explainer(architecture)
    close = 1e-3 if architecture == "distilbert" else 1e-5  # its head has a kink (ReLU), which takes many steps
    for e in ex.explain(ROWS, "integrated-gradients", 1, steps=40):
        change = logit(ex, list(e.input_ids), 1) - logit(ex, masked(e, MASK), 1)
        assert e.scores.sum() == pytest.approx(change, abs=close)
        assert e.options["delta"] == pytest.approx(e.scores.sum() - change, abs=1e-6)
        assert not e.scores[e.special].any()


@pytest.mark.parametrize("of", ["logit", "probability", "loss"])
def test_every_scalar_is_complete(of: str, sentiment: whence.Explainer) -> None:
    value = {"logit": lambda z, i: z[i], "probability": lambda z, i: z.softmax(-1)[i]}
    value["loss"] = lambda z, i: -z.log_softmax(-1)[i]
    mask_id = sentiment.tokenizer.mask_token_id  # type: ignore[union-attr]
    for e in sentiment.explain(TEXTS, "integrated-gradients", of=of):
        with torch.no_grad():
            at = [sentiment.model(torch.tensor([ids])).logits[0].double() for ids in (e.input_ids, masked(e, mask_id))]
        change = float(value[of](at[0], e.target_index) - value[of](at[1], e.target_index))
        assert e.scores.sum() == pytest.approx(change, abs=5e-3)
        assert e.options["delta"] == pytest.approx(e.scores.sum() - change, abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", COVERED)
def test_deeplift_sums_to_the_difference(name: str, dtype: torch.dtype) -> None:
    ex = explainer(name, dtype)
    for e in ex.explain(ROWS, "deeplift", 1):
        change = logit(ex, list(e.input_ids), 1) - logit(ex, masked(e, MASK), 1)
        assert abs(change) > 1e-3
        assert e.scores.sum() == pytest.approx(change, abs=1e-5)
        assert abs(e.options["delta"]) <= 1e-5
        assert not e.scores[e.special].any()


def test_deeplift_sums_to_the_difference_on_a_trained_model(sentiment: whence.Explainer) -> None:
    for baseline in ("mask", "pad", "zero"):
        for e in sentiment.explain(TEXTS, "deeplift", baseline=baseline):
            assert abs(e.options["delta"]) <= 1e-4
            assert np.abs(e.scores).max() > 0.1


def test_deeplift_shap_is_the_mean_over_its_baselines() -> None:
    ex, row, count = explainer("llama"), ROWS[0], 3
    e = ex.explain(row, "deeplift-shap", 1, samples=count, seed=2)
    here, ids = here_of(ex, row, count)
    changes = []
    for k, random in enumerate(here.chance(2)):
        drawn = random.choice(here.ground.words, len(e))
        base = [d if free else i for d, free, i in zip(drawn, here.free[k], ids[k], strict=True)]
        changes.append(logit(ex, list(e.input_ids), 1) - logit(ex, base, 1))
    assert e.scores.sum() == pytest.approx(np.mean(changes), abs=1e-5)
    assert np.std(changes) > 1e-3
    fixed = ex.explain(row, ["deeplift", "deeplift-shap"], 1, baseline="zero")
    np.testing.assert_allclose(fixed["deeplift"].scores, fixed["deeplift-shap"].scores, atol=1e-12)


def test_expected_gradients_come_near_the_difference_with_many_samples() -> None:
    ex = explainer("bert")
    e = ex.explain(ROWS[0], "gradient-shap", 1, samples=400, baseline="mask")
    exact = ex.explain(ROWS[0], "integrated-gradients", 1, baseline="mask")
    assert np.all(np.abs(e.scores - exact.scores) <= 5 * np.array(e.options["stderr"]) + 1e-12)
    few = ex.explain(ROWS[0], "gradient-shap", 1, samples=4, baseline="mask")
    assert np.mean(few.options["stderr"]) > np.mean(e.options["stderr"]) > 0


def test_log_probabilities_are_handed_down_too() -> None:
    """Terms of log p, as continuations of causal language models have, mixed with one of a logit."""
    ex = explainer("bert")
    rows = ex.session.task.encoder.encode(ROWS)
    kinds = ["log-probability", "logit", "log-probability"]
    terms = [Term((0,), (1,), (0,), (2,) if i == 2 else None, of=of) for i, of in enumerate(kinds)]
    targets = [Target("x", 1, (term,)) for term in terms]
    calls = Plan.of(["deeplift"], {}).calls
    found = run_paths(ex.session, rows, targets, calls, batch_tokens=64)["deeplift"]
    for row, part, of, i in zip(rows, found, kinds, range(3), strict=True):
        with torch.no_grad():
            base = [MASK if j in row.free else t for j, t in enumerate(row.input_ids)]
            z = [ex.model(torch.tensor([ids])).logits[0] for ids in (row.input_ids, base)]
        if of == "log-probability":
            z = [v.log_softmax(-1) for v in z]
        values = [float(v[1] - v[2]) if i == 2 else float(v[1]) for v in z]
        assert part.scores.sum() == pytest.approx(values[0] - values[1], abs=1e-10)


@pytest.mark.parametrize(
    ("name", "given", "options"),
    [
        ("qa", {"question": "Who wrote the play ?", "context": "The play was written by Anna Smith ."}, {}),
        ("masked-lm", "the film was [MASK] and long .", {}),
        ("causal-lm", "The film was", {"continuation": " very good"}),
        ("sentiment", "a charming film", {"target": 1, "contrast": 0}),
    ],
)
def test_every_task_sums_to_the_difference(name: str, given: Any, options: dict[str, Any]) -> None:
    found = whence.load(name).explain(given, ["deeplift", "integrated-gradients"], **options)
    exact, near = found["deeplift"], found["integrated-gradients"]
    assert abs(exact.options["delta"]) <= 1e-4
    assert near.scores.sum() - near.options["delta"] == pytest.approx(exact.scores.sum(), abs=1e-3)
    assert abs(exact.scores.sum()) > 1


# ---- steps="auto" ---------------------------------------------------------------------------------------------------------


def test_auto_adds_steps_only_to_rows_that_need_them(sentiment: whence.Explainer) -> None:
    texts = [row["text"] for row in zoo.samples("sentiment")[:6]]
    found = sentiment.explain(texts, "integrated-gradients", steps="auto")
    used = {e.options["steps"] for e in found}
    assert len(used) > 1
    assert used <= {16, 32, 64, 128, 256, 400}
    for e in found:
        change = float(e.scores.sum()) - e.options["delta"]
        assert e.options["steps"] == 400 or abs(e.options["delta"]) <= max(0.01 * abs(change), 1e-5)
        if e.options["steps"] > 16:
            fewer = sentiment.explain(e.text, "integrated-gradients", steps=e.options["steps"] // 2)
            assert abs(fewer.options["delta"]) > 0.0099 * abs(change)
    bounded = sentiment.explain(texts, "integrated-gradients", steps="auto", max_steps=20)
    assert {e.options["steps"] for e in bounded} == {16, 20}


def test_many_steps_take_no_more_memory_than_they_have_points() -> None:
    for steps in (1, 2, 50, 300):
        points, weights = np.polynomial.legendre.leggauss(steps)
        found = gauss_legendre(steps)
        np.testing.assert_allclose(found[0], (points + 1) / 2, atol=1e-14)
        np.testing.assert_allclose(found[1], weights / 2, atol=1e-12)
    tracemalloc.start()
    _, weights = gauss_legendre(3000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert weights.sum() == pytest.approx(1)
    assert peak < 2e6  # a 3,000 × 3,000 matrix is 72 MB


# ---- batches --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2", "llama", "modernbert"])
def test_padding_order_and_batching_change_nothing(name: str) -> None:
    ex = explainer(name)
    for method, options in METHODS.items():
        together = ex.explain(ROWS, method, 1, **options)
        small = ex.explain(ROWS[::-1], method, 1, batch_tokens=20, **options)[::-1]
        for row, a, b in zip(ROWS, together, small, strict=True):
            alone = ex.explain(row, method, 1, **options)
            # RMSNorm runs in float32 whatever the model's dtype
            assert max(gap(a.scores, alone.scores), gap(b.scores, alone.scores)) <= 1e-5, method
            if name == "bert":
                assert max(gap(a.scores, alone.scores), gap(b.scores, alone.scores)) <= 1e-10, method


def test_points_of_many_rows_fill_batches_and_leave_one_open_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 rows of 6 tokens × 30 steps with a budget of 240 tokens: 30 full batches, the 40 texts and their one baseline."""
    from whence.run import paths as runner

    ex = explainer("bert")
    rows = [{"input_ids": [2, 5 + i, 6, 7, 8, 3]} for i in range(40)]
    sizes: list[int] = []
    collate = Session.collate

    def counting(self: Session, part: Any) -> Any:
        sizes.append(len(part))
        return collate(self, part)

    monkeypatch.setattr(Session, "collate", counting)
    (encoded, targets) = ex.session.task.encoder.encode(rows), [Target("x", 1, (Term((0,), (1,), (0,)),))] * 40
    calls = Plan.of(["integrated-gradients"], {"steps": 30}).calls
    (found,) = runner.run_paths(ex.session, encoded, targets, calls, batch_tokens=240).values()
    assert len(found) == 40
    assert sizes == [40, 1] + [40] * 30


def test_short_memory_halves_the_batch_and_loses_no_point(monkeypatch: pytest.MonkeyPatch) -> None:
    ex = explainer("bert")
    wanted = ex.explain(ROWS, list(METHODS), 1)
    collate = Session.collate

    def small(self: Session, part: Any) -> Any:
        if len(part) > 6:
            raise MemoryError
        return collate(self, part)

    monkeypatch.setattr(Session, "collate", small)
    for method, es in ex.explain(ROWS, list(METHODS), 1).items():
        for a, b in zip(es, wanted[method], strict=True):
            np.testing.assert_allclose(a.scores, b.scores, atol=1e-12)


def test_half_precision_runs_and_the_model_stays_as_it_was() -> None:
    model = architectures.build("bert", torch.float32).to(torch.bfloat16)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    ex = whence.load(model, architectures.tokenizer())
    wide = whence.load(architectures.build("bert", torch.float32).to(torch.bfloat16).float(), architectures.tokenizer())
    for method in ("integrated-gradients", "deeplift"):
        for a, b in zip(ex.explain(ROWS, method, 0), wide.explain(ROWS, method, 0), strict=True):
            assert gap(a.scores, b.scores) <= 0.1, method
    assert all(bool((value == before[key]).all()) for key, value in model.state_dict().items())
    assert not model.get_input_embeddings()._forward_hooks


def test_progress_counts_points(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.0)
    with caplog.at_level(logging.INFO, "whence"):
        explainer("bert").explain(ROWS, "integrated-gradients", steps=20, batch_tokens=40)
        said = caplog.text.splitlines()  # as it was said then: a counter counts on
        explainer("bert").explain(ROWS, "integrated-gradients", steps=20, batch_tokens=40, progress=False)
    assert len(said) > 3
    assert f"integrated-gradients: {20 * len(ROWS)} of {20 * len(ROWS)} rows, " in said[-1]
    assert " rows/s" in said[-1]
    assert f" of {20 * len(ROWS)} rows" in said[0]
    assert said[0] != said[-1]
    assert caplog.text.splitlines() == said


@pytest.mark.parametrize(("dtype", "tiny"), [(torch.float32, 1e-35), (torch.float64, 1e-290)])
def test_shares_of_tiny_gradients_and_of_none(dtype: torch.dtype, tiny: float) -> None:
    gradient = torch.tensor([[[1.0, -1.0], [3.0, 3.0]], [[0.0, 0.0], [0.0, 0.0]]], dtype=dtype) * tiny
    torch.testing.assert_close(l1_shares(gradient), torch.tensor([[0.25, 0.75], [0.0, 0.0]], dtype=dtype))


def test_points_lie_on_the_models_device() -> None:
    """Without a GPU: the meta device refuses to mix with others just as CUDA does."""
    asked: list[torch.device] = []

    def embed(ids: Tensor) -> Tensor:
        asked.append(ids.device)
        return torch.zeros(*ids.shape, 4, device="meta")

    ground = Ground(embed, 9, frozenset(), 4, 0)
    x = torch.zeros(2, 3, 4, device="meta")
    here = PathBatch(ground, [(5, 6, 7), (5, 6)], [0, 0], [1, 1], x, torch.ones(2, 3, dtype=torch.bool, device="meta"))
    for name in ("mask", "pad", "zero", "random"):
        assert here.baseline(name, here.chance(0)).device == x.device
    assert here.per_point([0.5, 0.5]).device == x.device
    assert asked == [x.device] * 3


# ---- options and errors ---------------------------------------------------------------------------------------------------


def test_aggregates() -> None:
    ex, row = explainer("bert"), ROWS[0]
    signed, norm, mean = (
        ex.explain(row, "deeplift", 1, aggregate=aggregate).scores for aggregate in ("sum", "l2", "mean")
    )
    assert signed.min() < 0 <= min(norm.min(), mean.min())
    assert np.all(norm <= 32 * mean + 1e-12)  # ‖·‖₂ ≤ ‖·‖₁ = d · mean|·|
    assert np.all(np.abs(signed) <= 32 * mean + 1e-12)
    assert np.all(norm >= 32**0.5 * mean - 1e-12)


def test_the_baseline_is_the_first_that_the_model_has() -> None:
    assert explainer("bert").explain(ROWS[0], "deeplift").options["baseline"] == "mask"
    bare = whence.load(architectures.model("gpt2"))
    assert bare.explain(ROWS[0], "integrated-gradients").options["baseline"] == "pad"
    unpadded = whence.load(architectures.build("gpt2", pad_token_id=None))
    assert unpadded.explain(ROWS[0], "integrated-gradients").options["baseline"] == "zero"
    with pytest.raises(NotSupported, match=r"no mask token; choose baseline= one of pad, zero"):
        bare.explain(ROWS[0], "integrated-gradients", baseline="mask")
    with pytest.raises(NotSupported, match=r"one of zero, random"):
        unpadded.explain(ROWS[0], "gradient-shap", baseline="pad")


@pytest.mark.parametrize(
    ("method", "options", "error", "said"),
    [
        ("integrated-gradients", {"steps": 0}, InputError, "1 or more"),
        ("integrated-gradients", {"steps": 2.5}, InputError, "takes int or str, got float"),
        ("integrated-gradients", {"steps": "many"}, InputError, "'auto'"),
        ("integrated-gradients", {"steps": "auto", "max_steps": 0}, InputError, "max_steps"),
        ("integrated-gradients", {"baseline": "masc"}, UnknownName, "unknown baseline 'masc'.*did you mean 'mask'"),
        ("integrated-gradients", {"baseline": "random"}, UnknownName, "zero"),
        ("integrated-gradients", {"of": "logits"}, UnknownName, "'logit'"),
        ("integrated-gradients", {"aggregate": "max"}, UnknownName, "l2"),
        ("deeplift", {"baseline": None}, InputError, "baseline=None: deeplift takes str"),
        ("deeplift-shap", {"samples": 0}, InputError, "samples=0"),
        ("gradient-shap", {"seed": -1}, InputError, "seed=-1"),
        ("smoothgrad", {"sigma": -0.1}, InputError, "sigma"),
        ("smoothgrad", {"samples": True}, InputError, "samples"),
    ],
)
def test_errors_say_what_to_do(method: str, options: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        explainer("bert").explain("a good film", method, **options)


def test_deeplift_is_no_rule_set_of_relevance_and_names_what_it_lacks() -> None:
    assert "deeplift" not in RULE_SETS
    with pytest.raises(UnknownName, match="deep-taylor"):
        explainer("bert").explain("a good film", "lrp", rules="deeplift")
    with pytest.raises(NotSupported, match=r"no rule for .*'mpnet\."):
        explainer("mpnet").explain("a good film", "deeplift")


def test_regression_has_no_probability() -> None:
    ex = whence.load(architectures.build("bert", num_labels=1), architectures.tokenizer())
    e = ex.explain("a good film", "integrated-gradients")
    assert abs(e.options["delta"]) < 1e-6
    with pytest.raises(NotSupported, match="logit"):
        ex.explain("a good film", "integrated-gradients", of="probability")


def test_several_methods_and_all_targets_in_one_call() -> None:
    ex = explainer("bert")
    found = ex.explain(["a good film", "dull"], ["deeplift", "gradient-shap", "simple"], "all")
    for method, per_row in found.items():
        for text, es in zip(["a good film", "dull"], per_row, strict=True):
            assert [e.target_index for e in es] == [0, 1, 2]
            for e in es:
                assert gap(ex.explain(text, method, e.target_index).scores, e.scores) <= 1e-10


def test_deeplift_bears_a_baseline_of_zeros_under_norms_that_do_not_centre() -> None:
    """Their scale is a thousand times the input's there. LLaMA's own norm computes in float32 whatever the model's dtype."""
    tokenizer = architectures.tokenizer(framed=False)
    tokenizer.mask_token = tokenizer.pad_token = None
    for name in ("llama", "mistral"):
        ex = whence.load(architectures.build(name, task="causal-lm", pad_token_id=None), tokenizer)
        e = ex.explain({"input_ids": [9, 12, 14, 20, 7]}, "deeplift")
        assert e.options["baseline"] == "zero"
        assert abs(e.options["delta"]) < 1e-5 * np.abs(e.scores).max()


def test_deeplift_says_when_it_cannot_be_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    ex = explainer("bert")
    monkeypatch.setattr("whence.relevance.deeplift.scaled_ends", lambda c, scale: (1e3, 1e3 * deeplift.middle(c)))
    with pytest.raises(ModelError, match="misses it by"):
        ex.explain(ROWS[0], "deeplift", 1)


def test_paths_do_not_mind_the_caller_s_inference_mode() -> None:
    ex, methods = explainer("bert"), ["integrated-gradients", "deeplift", "smoothgrad", "gradient-shap"]
    wanted = ex.explain(ROWS[0], methods, 1)
    with torch.inference_mode():
        found = ex.explain(ROWS[0], methods, 1)
    for method in methods:
        np.testing.assert_array_equal(found[method].scores, wanted[method].scores)
