"""Every rule of DeepLIFT: the multipliers hand the difference down, become the gradient at x̄ = x, and stay finite."""

from __future__ import annotations

from collections.abc import Callable

import captum.attr
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whence.errors import NotSupported
from whence.relevance import deeplift
from whence.relevance.deeplift import DEEPLIFT
from whence.relevance.pass_through import relevance_ready

Function = Callable[[Tensor], Tensor]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def multipliers(f: Function, x: Tensor, start: Tensor) -> Tensor:
    """m at the inputs (b, …), for multipliers `start` (b, …) at the output; x holds inputs, then baselines."""
    x = x.clone().requires_grad_(True)
    with relevance_ready(nn.Identity(), [], DEEPLIFT, len(x)) as run:
        y = f(x)
    with run.carrying(None):
        (m,) = torch.autograd.grad(y, x, deeplift.for_inputs(start))
    assert not m[len(start) :].any()
    return m[: len(start)]


GAMMA, BETA, W = draw(6), draw(6, seed=1), draw(6, 6, seed=2)
FUNCTIONS: dict[str, Function] = {
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "relu": torch.relu,
    "layer norm": lambda x: F.layer_norm(x, (6,), GAMMA, BETA, 1e-5),
    "rms norm": lambda x: F.rms_norm(x, (6,), GAMMA, 1e-5),
    "rms norm written out": lambda x: GAMMA * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)),
    "softmax": lambda x: torch.softmax(x, -1),
    "product": lambda x: torch.matmul(F.linear(x, W), x.transpose(-1, -2)),
    "gate": lambda x: F.silu(x) * F.linear(x, W),
    "attention": lambda x: torch.matmul(torch.softmax(torch.matmul(x, x.transpose(-1, -2)) * 2.0, -1), F.linear(x, W)),
    "skip": lambda x: F.layer_norm(x + F.gelu(F.linear(x, W)), (6,), GAMMA, BETA, 1e-5),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-7, 30.0])
def test_the_difference_is_handed_down(name: str, scale: float) -> None:
    f, near = FUNCTIONS[name], draw(3, 4, 6)
    x = torch.cat([near + scale * draw(3, 4, 6, seed=1), near])
    dy = deeplift.change(f(x))
    start = draw(*dy.shape, seed=3)
    m = multipliers(f, x, start)
    found, wanted = (m * deeplift.change(x)).sum((1, 2)), (start * dy).sum((1, 2))
    np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-13 * max(1.0, scale))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_without_a_difference_it_is_the_gradient(name: str) -> None:
    f, x = FUNCTIONS[name], draw(3, 4, 6)
    start = draw(*f(x).shape, seed=3)
    inner = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(f(inner), inner, start)
    np.testing.assert_allclose(multipliers(f, torch.cat([x, x]), start), gradient, atol=1e-12)


def test_softmax_with_masks_and_extremes_in_float32() -> None:
    smallest = torch.finfo(torch.float32).min
    x = torch.tensor(
        [
            [[0.0, 90.0, smallest, 3.0], [1.0, 2.0, -torch.inf, 0.5], [80.0, 0.0, 1.0, -torch.inf]],
            [[95.0, 0.0, smallest, 2.0], [1.0, 2.0, -torch.inf, 0.5], [0.0, 80.0, 1.0, -torch.inf]],
        ]
    ).flatten(0, 1)
    start = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    m = multipliers(lambda t: torch.softmax(t, -1), x, start)
    assert bool(torch.isfinite(m).all())
    np.testing.assert_allclose(m.sum(-1), 0.0, atol=1e-6)  # a constant added to x changes nothing
    dx = deeplift.change(x).nan_to_num(nan=0.0)
    np.testing.assert_allclose((m * dx).sum(-1), (start * deeplift.change(x.softmax(-1))).sum(-1), atol=1e-5)


def test_a_kink_is_divided_over_however_near() -> None:
    x = torch.tensor([[1e-8, 1e-8], [-3e-8, 5e-9]], dtype=torch.float64)  # x, then x̄
    m = multipliers(torch.relu, x, torch.ones(1, 2, dtype=torch.float64))
    np.testing.assert_allclose(m, [[0.25, 1.0]])


@pytest.mark.filterwarnings("ignore::UserWarning")  # captum announces its hooks
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Softplus])
def test_captum_agrees_where_it_has_rules(activation: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), activation(), nn.Linear(8, 8), activation(), nn.Linear(8, 2)).double()
    x, base = draw(5, 6), draw(5, 6, seed=1)
    wanted = captum.attr.DeepLift(model).attribute(x, base, target=1)
    start = torch.tensor([[0.0, 1.0]], dtype=torch.float64).expand(5, 2)
    model.requires_grad_(False)
    found = multipliers(model, torch.cat([x, base]), start) * (x - base)
    np.testing.assert_allclose(found, wanted.detach(), atol=1e-9)


def test_log_softmax() -> None:
    x, m = draw(6, 2, 5), draw(3, 2, 5, seed=1)
    found = (deeplift.log_softmax(x, m) * deeplift.change(x)).sum((1, 2))
    np.testing.assert_allclose(found, (m * deeplift.change(x.log_softmax(-1))).sum((1, 2)), atol=1e-12)


def test_only_what_has_a_rule_runs() -> None:
    for f in (lambda x: torch.softmax(x, 0), torch.erf, lambda x: x / x.sum()):
        with pytest.raises(NotSupported, match="deeplift"):
            multipliers(f, draw(2, 6), draw(1, 6))
