"""What counts as equal follows what torch is told of float32: a model in tf32 must not be taken for another one."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from tests import architectures
from whence.errors import WhenceError
from whence.models.rounding import close, rounding
from whence.trace.blocks import check_block

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    ("told", "on_cpu", "on_cuda"),
    [("highest", 2.0**-23, 2.0**-23), ("high", 2.0**-10, 2.0**-10), ("medium", 2.0**-7, 2.0**-10)],
)
def test_rounding_by_what_torch_is_told(precision: None, told: str, on_cpu: float, on_cuda: float) -> None:
    torch.set_float32_matmul_precision(told)
    assert rounding(torch.float32, CPU) == on_cpu
    assert rounding(torch.float32, CUDA) == on_cuda
    assert rounding(torch.float64, CUDA) == 2.0**-52
    assert rounding(torch.bfloat16, CUDA) == 2.0**-7


def test_tf32_is_heeded_however_it_is_switched_on() -> None:
    switch = torch.backends.cuda.matmul
    before = switch.fp32_precision
    try:
        switch.fp32_precision = "tf32"
        assert rounding(torch.float32, CUDA) == 2.0**-10
    finally:
        switch.fp32_precision = before


def test_close_allows_what_products_are_rounded_to(precision: None) -> None:
    wanted = torch.tensor([1.0, -2.0, 3.0])
    found = wanted + 1e-3
    assert not close(found, wanted)
    assert close(wanted + 1e-4, wanted)
    torch.set_float32_matmul_precision("high")
    assert close(found, wanted)
    assert not close(wanted + 0.3, wanted)
    assert not close(found.double(), wanted.double())
    assert not close(wanted, wanted * torch.nan)
    assert not close(None, wanted)


def test_blocks_rebuilt_with_tf32_are_not_refused_and_wrong_ones_are(precision: None) -> None:
    """On an H200 with tf32 the attention of a trained model's layer 6 was off by 1.4e-4, and ALTI refused."""
    model, y = architectures.build("bert", torch.float32), torch.ones(1, 3, 4)

    def off_by(share: float) -> None:
        block = SimpleNamespace(sums=lambda: y * (1 + share), normed=lambda s: s, y=y, finish=lambda y: y, output=y)
        check_block(block, torch.ones(1, 3, dtype=torch.bool), 6, model)  # type: ignore[arg-type]

    off_by(1e-5)
    with pytest.raises(WhenceError, match="the attention block of layer 6"):
        off_by(1e-3)
    torch.set_float32_matmul_precision("high")
    off_by(1e-3)
    with pytest.raises(WhenceError, match="the attention block of layer 6"):
        off_by(0.1)
