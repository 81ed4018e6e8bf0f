"""Every option of every method, given numbers that are none, too large, too small or of another kind: a result, or a sentence."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import whence
from tests import architectures
from whence.inputs.numbers import short
from whence.registry import all_methods

HUGE = 10**5000  # more digits than Python writes
FLOATS = (
    float("nan"),
    float("inf"),
    -float("inf"),
    1e-308,
    5e-324,
    1e-162,
    1e-100,
    1e-20,
    -1e-308,
    0.5,
    -1.5,
    1e100,
    1e300,
)
WHOLE = (0, -1, 10**9, 2**31, 2**63, -(2**63), 2**64, 10**30, 10**400, HUGE, -HUGE)
OTHERS = (
    True,
    1j,
    np.float64("nan"),
    np.float32(1e-40),
    np.uint8(2),
    np.array([1, 2]),
    Fraction(1, 3),
    Decimal("0.1"),
    "1e-308",
    b"1",
)
NASTY = (*FLOATS, *WHOLE, *OTHERS)  # fmt: skip
OPTIONS = [(m.name, option) for m in all_methods() for option in m.defaults if option != "lm_head"]


@pytest.fixture(scope="module")
def bert() -> whence.Explainer:
    return whence.load(architectures.model("bert"), architectures.tokenizer())


@pytest.mark.parametrize(("method", "option"), OPTIONS)
def test_numbers_that_no_method_can_use(bert: whence.Explainer, method: str, option: str) -> None:
    for value in NASTY:
        try:
            scores = bert.explain("good film", method, progress=False, **{option: value}).scores
        except whence.WhenceError as error:
            said = str(error)
            assert "\n" not in said, short(value)
            assert len(said) < 1500, short(value)
        else:
            assert np.isfinite(scores).all(), short(value)


@pytest.mark.parametrize("kernel_width", [1e-308, 5e-324, 1e-162, 1e-100, 1e-20, 0.5])
def test_a_kernel_so_narrow_that_nothing_is_fitted(bert: whence.Explainer, kernel_width: float) -> None:
    with pytest.raises(whence.InputError, match=r"so narrow that no sample weighs anything beside the text itself"):
        bert.explain("good film", "lime", kernel_width=kernel_width)


@pytest.mark.parametrize(
    ("method", "option"),
    [("lime", "samples"), ("kernel-shap", "samples"), ("shapley", "permutations"), ("integrated-gradients", "steps"),
     ("integrated-gradients", "max_steps"), ("smoothgrad", "samples"), ("gradient-shap", "samples"), ("deeplift-shap", "samples")],
)  # fmt: skip
@pytest.mark.parametrize("count", [10**7, 10**9, 2**63 - 1])
def test_work_without_end_is_refused(bert: whence.Explainer, method: str, option: str, count: int) -> None:
    more = {"steps": "auto"} if option == "max_steps" else {}
    with pytest.raises(
        whence.InputError, match=rf"{option}={count}: give a whole number, . or more and less than 10000000"
    ):
        bert.explain("good film", method, **{option: count}, **more)


def test_seeds_may_be_long(bert: whence.Explainer) -> None:
    seed: Any = 2**127 + 1
    assert not np.array_equal(
        bert.explain("good film", "random", seed=seed).scores, bert.explain("good film", "random").scores
    )
