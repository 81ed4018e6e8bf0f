"""Every rule against a loop-by-loop transcription of its formula, and the mode's promise never to guess."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode, _pop_mode
from transformers.activations import NewGELUActivation

import whence
from tests import architectures
from whence.errors import NotSupported, UnknownName
from whence.fast.halves import pays, storages
from whence.relevance import rules
from whence.relevance.gates import masked_keeping_sum
from whence.relevance.pass_through import RelevanceMode, relevance_ready
from whence.relevance.rules import RULE_SETS, Made, rule_set

TINY = 1e-9


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def divide(a: float, b: float) -> float:
    return 0.0 if b == 0 else a / (b + TINY)


@pytest.fixture
def layer() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """x (3, 5), W (4, 5), b (4,), z (3, 4), R (3, 4)."""
    x, weight, bias = draw(3, 5), draw(4, 5, seed=1), draw(4, seed=2)
    return x, weight, bias, x @ weight.T + bias, draw(3, 4, seed=3)


def test_linear_with_one_denominator(layer: tuple[Tensor, ...]) -> None:
    x, weight, bias, z, r = layer
    expected = np.zeros((3, 5))
    for t in range(3):
        for i in range(4):
            positive = [max(float(x[t, j] * weight[i, j]), 0.0) for j in range(5)]
            for j in range(5):
                expected[t, j] += positive[j] * divide(float(r[t, i]), sum(positive))
    found = rules.linear_common(x, weight, z, bias, r, Made())
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_linear_with_one_denominator_where_nothing_is_positive() -> None:
    x, weight, r = torch.tensor([[1.0, 2.0]]), torch.tensor([[-0.3, -0.7], [0.1, -0.2]]), torch.tensor([[5.0, 1.0]])
    found = rules.linear_common(x, weight, x @ weight.T, None, r, Made())
    np.testing.assert_allclose(found, [[1.0, 0.0]], atol=1e-6)


def test_linear_with_separate_denominators(layer: tuple[Tensor, ...]) -> None:
    x, weight, bias, z, r = layer
    expected = np.zeros((3, 5))
    for t in range(3):
        for i in range(4):
            for sign in (1, -1):
                half = [
                    float(x[t, j] * weight[i, j]) if x[t, j] * sign > 0 and weight[i, j] * sign > 0 else 0.0
                    for j in range(5)
                ]
                for j in range(5):
                    expected[t, j] += half[j] * divide(float(r[t, i]), sum(half))
    np.testing.assert_allclose(rules.linear_separate(x, weight, z, bias, r, Made()), expected, atol=1e-12)


def test_linear_epsilon(layer: tuple[Tensor, ...]) -> None:
    x, weight, bias, z, r = layer
    expected = np.zeros((3, 5))
    for t in range(3):
        for i in range(4):
            total = float(z[t, i])
            total += rules.EPSILON if total >= 0 else -rules.EPSILON
            for j in range(5):
                expected[t, j] += float(x[t, j] * weight[i, j] * r[t, i]) / total
    np.testing.assert_allclose(rules.linear_epsilon(x, weight, z, bias, r, Made()), expected, atol=1e-12)


@pytest.mark.parametrize("rule", [rules.product, rules.product_epsilon])
def test_product(rule: object) -> None:
    a, b, r = draw(2, 3), draw(3, 4, seed=1), draw(2, 4, seed=2)
    z = a @ b
    left, right = np.zeros((2, 3)), np.zeros((3, 4))
    for i in range(2):
        for k in range(4):
            total = float(z[i, k])
            total += TINY if rule is rules.product else rules.EPSILON * (1 if total >= 0 else -1)
            for j in range(3):
                share = float(a[i, j] * b[j, k] * r[i, k]) / total / 2
                left[i, j] += share
                right[j, k] += share
    found = rule(a, b, z, r)  # type: ignore[operator]
    np.testing.assert_allclose(found[0], left, atol=1e-12)
    np.testing.assert_allclose(found[1], right, atol=1e-12)


@pytest.mark.parametrize("rule", [rules.product, rules.product_epsilon, rules.product_coefficient])
def test_the_shares_of_a_product_by_themselves_and_with_keys_transposed(rule: rules.Product) -> None:
    q, k, r = draw(2, 3, 4), draw(2, 5, 4, seed=1), draw(2, 3, 5, seed=2)
    z = q @ k.mT
    first, second = rule(q, k.mT, z, r)
    laid_out = rule(q, k.mT.contiguous(), z, r)
    np.testing.assert_allclose(first, laid_out[0], atol=1e-12)
    np.testing.assert_allclose(second, laid_out[1], atol=1e-12)
    np.testing.assert_array_equal(rule.first(q, k.mT, rule.ratio(r, z)), first)
    if rule is not rules.product_coefficient:
        assert second.mT.is_contiguous()  # as the keys lie


def test_products_in_halves_are_of_models_in_bfloat16_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that divide run in float32; that bfloat16 holds a weight exactly is known of a model that is in it."""
    seen: list[Tensor] = []

    def in_halves(x: Tensor, matrix: Tensor) -> Tensor:
        seen.append(matrix)
        return x @ matrix

    monkeypatch.setattr(rules, "pays", lambda x, matrix: True)
    monkeypatch.setattr(rules, "product_in_halves", in_halves)

    def found(dtype: torch.dtype, head: torch.dtype, method: str = "transatt") -> np.ndarray:
        seen.clear()
        model = architectures.build("bert", torch.float32).to(torch.bfloat16).to(dtype)
        model.classifier.to(head)
        return whence.load(model, architectures.tokenizer()).explain("good film", method).scores  # type: ignore[no-any-return]

    plain = found(torch.float32, torch.float32)
    assert not seen
    np.testing.assert_allclose(found(torch.bfloat16, torch.bfloat16), plain, atol=1e-5)
    weights = {m.weight.shape for m in architectures.build("bert").modules() if isinstance(m, nn.Linear)}
    assert {t.shape for t in seen} >= set(weights) | {w[::-1] for w in weights}  # both ways
    assert all(torch.equal(t, t.bfloat16().float()) for t in seen)
    found(torch.bfloat16, torch.bfloat16, "lrp")  # in float64
    assert not seen


def test_products_in_halves_wait_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = torch.ones(2, 4096), torch.ones(4096, 4096)
    assert not pays(weight, weight)
    made = Made(exact=storages([weight]))
    assert not made.in_halves(x, weight.T, weight)
    monkeypatch.setattr(rules, "pays", lambda x, matrix: True)
    assert made.in_halves(x, weight.T, weight)
    assert made.in_halves(x, weight[:2].T, weight[:2])  # a part of it lies there too
    assert not made.in_halves(x, weight.T, weight.clone())
    assert not Made().in_halves(x, weight.T, weight)


def test_what_cancels_by_the_rounding_of_halves_counts_as_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, r = torch.tensor([[1.0, 1.0]]), torch.tensor([[-1.0, -1.0]]), torch.tensor([[1.0]])
    z, real = x @ weight.T + 1e-5, rules.shares  # 2⁻¹⁷ of what cancels
    found: list[Tensor] = []

    def shares(*given: Any) -> Tensor:
        found.append(real(*given))
        return found[-1]

    monkeypatch.setattr(rules, "shares", shares)
    monkeypatch.setattr(rules, "product_in_halves", torch.matmul)
    for paid in (True, False):
        monkeypatch.setattr(rules, "pays", lambda x, matrix, paid=paid: paid)
        rules.linear_common(x, weight, z, None, r, Made(exact=storages([weight])))
    assert found[0].item() == 0
    assert found[1].item() > 1e4


def test_addition_and_its_rescaling_run_per_example() -> None:
    a, b, r = draw(2, 3, 4), draw(2, 3, 4, seed=1), draw(2, 3, 4, seed=2)
    plain, rescaled = rules.addition(a, b, a + b, r), rules.addition_rescaled(a, b, a + b, r)
    for e in range(2):
        ra, rb = np.zeros((3, 4)), np.zeros((3, 4))
        for t in range(3):
            for j in range(4):
                s = divide(float(r[e, t, j]), float(a[e, t, j] + b[e, t, j]))
                ra[t, j], rb[t, j] = float(a[e, t, j]) * s, float(b[e, t, j]) * s
        np.testing.assert_allclose(plain[0][e], ra, atol=1e-12)
        np.testing.assert_allclose(plain[1][e], rb, atol=1e-12)
        total, both = float(r[e].sum()), abs(ra.sum()) + abs(rb.sum())
        np.testing.assert_allclose(
            rescaled[0][e], ra * divide(divide(abs(ra.sum()), both) * total, ra.sum()), atol=1e-12
        )
        np.testing.assert_allclose(
            rescaled[1][e], rb * divide(divide(abs(rb.sum()), both) * total, rb.sum()), atol=1e-12
        )


def test_addition_epsilon() -> None:
    a, b, r = draw(2, 3), draw(2, 3, seed=1), draw(2, 3, seed=2)
    ra, rb = rules.addition_epsilon(a, b, a + b, r)
    for t in range(2):
        for j in range(3):
            total = float(a[t, j] + b[t, j])
            total += rules.EPSILON if total >= 0 else -rules.EPSILON
            assert float(ra[t, j]) == pytest.approx(float(a[t, j] * r[t, j]) / total)
            assert float(rb[t, j]) == pytest.approx(float(b[t, j] * r[t, j]) / total)


def test_gates_share_evenly() -> None:
    a, b, r = draw(2, 3), draw(2, 3, seed=1), draw(2, 3, seed=2)
    for found, x in zip(rules.gate(a, b, a * b, r), (a, b), strict=True):
        np.testing.assert_allclose(found, r / 2)
        del x
    # coefficients are relevance divided by the value
    for found, x in zip(rules.gate_coefficient(a, b, a * b, r / (a * b)), (a, b), strict=True):
        np.testing.assert_allclose(found * x, r / 2, atol=1e-12)


def test_coefficients_of_products_elementwise_functions_and_norms() -> None:
    a, b, c = draw(2, 3), draw(3, 4, seed=1), draw(2, 4, seed=2)
    left, right = rules.product_coefficient(a, b, a @ b, c)
    relevance = rules.product(a, b, a @ b, c * (a @ b))
    np.testing.assert_allclose(left * a, relevance[0], atol=1e-7)
    np.testing.assert_allclose(right * b, relevance[1], atol=1e-7)
    y = torch.tanh(a)
    np.testing.assert_allclose(rules.identity_coefficient(a, y, c[:, :3]) * a, c[:, :3] * y, atol=1e-12)
    gamma, eps = draw(3, seed=4), 1e-5
    rsigma = (a.var(-1, correction=0, keepdim=True) + eps).rsqrt()
    found = rules.layer_norm_coefficient(a, rsigma, c[:, :3], gamma, Made())
    for t in range(2):
        mean = sum(float(v) for v in a[t]) / 3
        sigma = (sum((float(v) - mean) ** 2 for v in a[t]) / 3 + eps) ** 0.5
        for j in range(3):  # d/dx_j of Σ_i c_i γ_i (x_i − mean x)/σ, σ a constant
            parts = [float(c[t, i] * gamma[i]) / sigma * ((i == j) - 1 / 3) for i in range(3)]
            assert float(found[t, j]) == pytest.approx(sum(parts))


def test_masked_heads_keep_the_sum_by_the_papers_two_equations() -> None:
    r = draw(3, 4, 2, 2).abs()  # sums of one sign: the equations as printed
    parts = torch.tensor([[1.0, 0, 2, 0], [0, 0, 1, 0]], dtype=torch.float64)
    found = masked_keeping_sum(r, parts)
    for e in range(3):
        masked = [r[e] * part[:, None, None] for part in parts]  # R_synt, R_pos
        whole = sum(float(m.sum()) for m in masked)
        printed = sum(m * abs(float(m.sum())) / abs(whole) * float(r[e].sum()) / float(m.sum()) for m in masked)
        np.testing.assert_allclose(found[e], printed, atol=1e-12)
    mixed = draw(3, 4, 2, 2, seed=5)
    np.testing.assert_allclose(masked_keeping_sum(mixed, parts).sum((1, 2, 3)), mixed.sum((1, 2, 3)), atol=1e-12)
    np.testing.assert_array_equal(masked_keeping_sum(mixed, torch.zeros(2, 4, dtype=torch.float64)), mixed)


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Identity()

    def forward(self, x: Tensor, how: str) -> Tensor:
        if how == "erf":
            return torch.erf(self.part(x))
        if how == "in place":
            x = x * 1.0
            x += 1.0
            return x
        return x / x.sum()


@pytest.mark.parametrize(("how", "named"), [("erf", "erf"), ("in place", "add_"), ("two traced", "sum")])
@pytest.mark.parametrize("name", RULE_SETS)
def test_an_operation_without_a_rule_is_an_error_that_names_it(how: str, named: str, name: str) -> None:
    model, x = Odd(), draw(2, 3).requires_grad_(True)
    with relevance_ready(model, list(model.modules()), name, 2), pytest.raises(NotSupported, match=named) as caught:
        model(x, how)
    assert "Odd" in str(caught.value)
    assert name in str(caught.value)


def test_an_error_inside_a_composite_module_leaves_nothing_behind() -> None:
    """The rules see nothing of what a composite is made of; an error inside must not leave them blind."""

    class Fails(NewGELUActivation):
        def forward(self, input: Tensor) -> Tensor:
            raise KeyError("inside")

    Fails.__module__ = NewGELUActivation.__module__
    model, x = nn.Sequential(nn.Linear(3, 3), Fails()).double(), draw(2, 3)
    model.requires_grad_(False)
    with pytest.raises(KeyError, match="inside"), relevance_ready(model, list(model.modules()), "attnlrp", 2):
        model(x.clone().requires_grad_(True))
    odd = Odd()
    with relevance_ready(odd, list(odd.modules()), "attnlrp", 2), pytest.raises(NotSupported, match="erf"):
        odd(x.clone().requires_grad_(True), "erf")


def test_operands_given_by_name_follow_their_rule() -> None:
    x, y = draw(2, 3).requires_grad_(True), draw(2, 3, seed=1).requires_grad_(True)
    with relevance_ready(nn.Identity(), [], "deep-taylor", 2) as run:
        z = torch.add(input=torch.mul(input=x, other=y), other=x)
    with run.carrying(None):
        rx, ry = torch.autograd.grad(z.sum(), [x, y])
    np.testing.assert_allclose((rx + ry).sum(1), [3.0, 3.0], atol=1e-6)


def test_unknown_rule_set() -> None:
    with pytest.raises(UnknownName, match="deep-taylor"):
        rule_set("deep-tailor")


@pytest.mark.parametrize("name", ["mpnet", "deberta-v2"])
def test_an_architecture_with_uncovered_operations_names_the_module(name: str) -> None:
    import whence

    explainer = whence.load(architectures.model(name), architectures.tokenizer())
    with pytest.raises(NotSupported, match=r"no rule for .*'(mpnet|deberta)\."):
        explainer.explain("a good film", "transatt")


def test_masked_softmax_is_the_z_rule_of_adding_the_mask() -> None:
    """R·x/(x + 1e-9) per score, 0 where the score is 0."""
    torch.manual_seed(0)
    x, r = torch.randn(2, 3, 4, 4, dtype=torch.float64), torch.randn(2, 3, 4, 4, dtype=torch.float64)
    x[0, 0, 0, 0] = 0.0
    expected = torch.zeros_like(x)
    for index in itertools.product(*map(range, x.shape)):
        if x[index] != 0:
            expected[index] = x[index] * r[index] / (x[index] + 1e-9)
    assert torch.allclose(rules.masked_softmax(x, x.softmax(-1), r), expected, rtol=1e-14, atol=0)


def test_a_mode_that_is_off_already_takes_nobody_elses_off() -> None:
    """torch takes a mode off while it runs: a Ctrl-C there was answered with an error of torch's, or cost a mode of the user's."""

    class Other(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    model = architectures.model("bert")
    for around in (nullcontext(), Other()):
        with around as other:
            with relevance_ready(model, list(model.modules()), "deep-taylor", 1):
                assert isinstance(_pop_mode(), RelevanceMode)
            assert _get_current_function_mode() is other
