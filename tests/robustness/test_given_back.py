"""A live model is given back as it was found, wherever an explanation is broken off: at any call of any function on the way,
in the forward, in the backward, in a hook of the user's own, in a method; by an error or by Ctrl-C."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import CO_GENERATOR
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch

import whence
from tests import architectures
from tests.test_explainer import assert_same_state, state
from whence.trace.attention import _tape

TEXT = "the film was not charming , but funny !"
# one of every way of running a model; together they use every seam
GROUPS = {
    "traced": ["attcat", "gae", "gradient", "simple"],
    "relevance": ["attnlrp", "transatt", "mask-lrp"],
    "mixing": ["alti", "value-zeroing"],
    "paths": ["integrated-gradients", "deeplift"],
    "perturbations": ["occlusion", "kernel-shap"],
}
OPTIONS: dict[str, dict[str, Any]] = {"paths": {"steps": 4}, "relevance": {"head_mask": [[1, 0, 1, 1]] * 3}}
OURS = str(Path(whence.__file__).parent)
POINTS = 24  # calls at which each group is broken off


class Broken(Exception):
    """An error of nobody's."""


class CtrlC(KeyboardInterrupt):
    """The user's."""


def is_work(frame: FrameType) -> bool:
    """A call on the way to the answer and back. A generator that goes on may be one that is being closed, where Python itself
    swallows errors."""
    goes_on = frame.f_code.co_flags & CO_GENERATOR and frame.f_lasti > 0
    file = frame.f_code.co_filename  # a checkout may itself be called whence
    return not goes_on and (file.startswith(OURS) or any(part in file for part in ("/transformers/", "/torch/nn/")))


@contextmanager
def broken_off(at: int | None, kind: type[BaseException]) -> Iterator[list[int]]:
    """Raise at the `at`-th call inside the block; None only counts."""
    seen = [0]

    def watch(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and is_work(frame):
            seen[0] += 1
            if seen[0] == at:
                sys.setprofile(None)
                raise kind

    sys.setprofile(watch)
    try:
        yield seen
    finally:
        sys.setprofile(None)


def calls(run: Callable[[], object]) -> int:
    with broken_off(None, Broken) as seen:
        run()
    return seen[0]


def training_model() -> torch.nn.Module:
    """A model in the midst of training: modes and gradients differ from part to part."""
    model = architectures.build("bert", torch.float32)
    model.train()
    model.bert.encoder.layer[0].eval()
    for i, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(i % 3 > 0)
        parameter.grad = torch.full_like(parameter, 0.5) if i % 3 == 1 else None
    return model


def plain_state(model: torch.nn.Module) -> dict[str, Any]:
    """As in test_explainer, with the gradients' values: tensors do not compare by ==."""
    found = state(model)
    found["grad"] = [None if p.grad is None else float(p.grad.sum()) for p in model.parameters()]
    found["pre hooks"] = [
        (list(m._forward_pre_hooks_with_kwargs), list(m._forward_hooks_with_kwargs)) for m in model.modules()
    ]
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_broken_off_at_any_call(group: str) -> None:
    model = training_model()
    explainer = whence.load(model, architectures.tokenizer())

    def run() -> Any:
        return explainer.explain(TEXT, GROUPS[group], **OPTIONS.get(group, {}))

    expected = run()  # what is imported and cached at the first call is not counted
    before = plain_state(model)
    total = calls(run)
    assert total > 100
    for i, at in enumerate(sorted(random.Random(0).sample(range(1, total), POINTS))):
        kind = (Broken, CtrlC)[i % 2]
        with pytest.raises(kind), broken_off(at, kind):
            run()
        assert_same_state(dict(before), plain_state(model))
        assert torch.is_grad_enabled()
        assert _tape.get() is None
        assert not torch.overrides._get_current_function_mode_stack()
        assert torch._C._is_torch_function_enabled()
    for name, e in run().items():
        assert np.array_equal(e.scores, expected[name].scores), name


@pytest.mark.parametrize("kind", [Broken, CtrlC])
def test_an_error_in_the_backward(kind: type[BaseException]) -> None:
    model = training_model()
    explainer = whence.load(model, architectures.tokenizer())
    hooked = model.bert.encoder.layer[1]

    def fail(gradient: torch.Tensor) -> None:
        raise kind

    def on_output(module: torch.nn.Module, args: Any, output: Any) -> None:
        tensor = output[0] if isinstance(output, tuple) else output
        if tensor.requires_grad:
            tensor.register_hook(fail)

    handle = hooked.register_forward_hook(on_output)
    before = plain_state(model)
    for group, names in GROUPS.items():
        if group in ("mixing", "perturbations"):  # no backward
            continue
        with pytest.raises(kind):
            explainer.explain(TEXT, names, **OPTIONS.get(group, {}))
        assert_same_state(dict(before), plain_state(model))
    handle.remove()
    assert np.isfinite(explainer.explain(TEXT, "gae").scores).all()


def test_an_error_while_generating() -> None:
    model = architectures.build("gpt2", torch.float32, task="causal-lm")
    explainer = whence.load(model, architectures.tokenizer(framed=False))

    def run() -> Any:
        return explainer.generate("the film", "gradient", max_new_tokens=2)

    run()  # what is imported and cached at the first call is not counted
    before = plain_state(model)
    total = calls(run)
    for at in (total // 5, total // 2, total - 5):
        with pytest.raises(CtrlC), broken_off(at, CtrlC):
            run()
        assert_same_state(dict(before), plain_state(model))
