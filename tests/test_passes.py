"""Passes of a plan are worked out once, and never mixed up with those of another plan."""

from __future__ import annotations

from typing import Any

import torch

import whence
from tests import architectures
from whence.run.plan import Plan


def passes(names: list[str], dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    return Plan.of(names, options).forwards(dtype)


def test_the_same_plan_has_the_same_passes() -> None:
    (one,) = passes(["gradient"], of="logit")
    assert Plan.of(["gradient"], {"of": "logit"}) is Plan.of(["gradient"], {"of": "logit"})
    assert one.needs == {"embeddings.grad"}
    assert passes(["gradient"])[0].needs == {"embeddings.grad:log-probability"}


def test_plans_that_differ_in_anything_are_told_apart() -> None:
    found = [
        passes(["gradient"], norm=1),
        passes(["gradient"], norm=2),
        passes(["transatt"]),
        passes(["transatt"], torch.bfloat16),
        passes(["transatt", "gradient"]),
        passes(["gradient", "transatt"]),
    ]
    assert len({id(p) for one in found for p in one}) == sum(map(len, found))


def test_equal_values_of_different_types_are_different_options() -> None:
    @whence.method("scaled", needs={"embeddings"})
    def scaled(trace: whence.Trace, *, by: Any = 1) -> torch.Tensor:
        assert type(by) in (int, bool, float)
        return trace.embeddings.norm(dim=-1) * float(by)

    try:
        values = [1, True, 1.0]
        assert [type(passes(["scaled"], by=v)[0].calls[0].options["by"]) for v in values] == [int, bool, float]
    finally:
        whence.registry.METHODS.pop("scaled")


def test_a_method_that_is_registered_anew_is_another_one() -> None:
    scores = []
    explainer = whence.load(architectures.model("bert", torch.float32), architectures.tokenizer())
    try:
        for factor in (1.0, 2.0):

            @whence.method("anew", needs={"embeddings"})
            def anew(trace: whence.Trace, factor: float = factor) -> torch.Tensor:
                return torch.full_like(trace.embeddings[..., 0], factor)

            scores.append(explainer.explain("a charming film", "anew").scores[0])
    finally:
        whence.registry.METHODS.pop("anew")
    assert scores == [1.0, 2.0]


def test_options_that_are_objects_are_kept_by_nobody() -> None:
    """A head mask, a model: they may change, and must not be held."""
    head = object()
    one, other = passes(["decoded-grad-cam"], lm_head=head), passes(["decoded-grad-cam"], lm_head=head)
    assert one[0] is not other[0]
    assert one[0].lm_heads == [head]
