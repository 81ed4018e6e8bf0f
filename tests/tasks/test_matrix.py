"""Task × method × architecture: everything runs that is not excluded, and what is excluded says why and what to use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import whence
from tests import architectures
from tests.tasks import matrix

PAIRS = [(t, a) for t in matrix.TASKS for a in architectures.NAMES if matrix.has_head(t, a)]


@pytest.mark.parametrize(("task", "architecture"), PAIRS)
def test_every_combination(task: str, architecture: str) -> None:
    ex = matrix.explainer(task, architecture)
    runs = [m for m in matrix.METHODS if not matrix.excluded(task, m, architecture)]
    for method, found in matrix.explain(ex, task, runs).items():
        assert len(found) == 2, method
        for e in found:
            assert matrix.is_sound(e), (method, e.scores)
    for method in matrix.METHODS:
        if matrix.excluded(task, method, architecture):
            with pytest.raises(whence.NotSupported, match=r"still work|use |lm_head="):
                matrix.explain(ex, task, [method])


# task → (this, that), and how each of them is asked for alone
CONTRASTS: dict[str, tuple[Any, Any]] = {
    "single": (0, 1),
    "pair": ("LABEL_2", "LABEL_0"),
    "question answering": ("a charming journey", "music"),
    "masked LM": ("are", "is"),
    "causal LM": ("good", "bad"),
    "continuation": ("charming journey", "dull journey"),
    "token": (2, 1),
}
LINEAR = ["cat", "attcat", "gradient-x-input", "integrated-gradients", "deeplift", "occlusion", "shapley"]


@pytest.mark.parametrize(("task", "architecture"), [pair for pair in PAIRS if pair[1] in ("bert", "gpt2")])
def test_every_task_explains_this_rather_than_that(task: str, architecture: str) -> None:
    """Methods that are linear in the scalar give the difference of what they give for each alone."""
    ex = matrix.explainer(task, architecture)
    item = matrix.TASKS[task][1][0]
    asked: dict[str, Any] = {"place": 3} if task == "token" else {}
    options = {**asked, "aggregate": "sum", "steps": 3, "progress": False}
    if task in ("causal LM", "continuation"):  # orders are drawn from the whole row, and the continuation is part of it
        options["permutations"] = "all"

    def alone(which: Any) -> dict[str, whence.Explanation]:
        if task == "question answering":
            return ex.explain({**item, "answer": which}, LINEAR, **options)
        if task == "continuation":
            return ex.explain(item, LINEAR, continuation=which, **{**options, "place": 0})
        return ex.explain(item, LINEAR, target=which, **options)

    this, that = map(alone, CONTRASTS[task])
    for name, e in ex.explain(item, LINEAR, contrast=CONTRASTS[task], **options).items():
        if name == "attcat" and architecture == "gpt2" and task in ("causal LM", "continuation"):
            continue  # its mean over queries counts those of the continuation, which is another in each call
        difference = this[name].scores - that[name].scores
        np.testing.assert_allclose(e.scores[: len(difference)], difference, rtol=1e-6, atol=1e-9, err_msg=name)
        assert not e.scores[len(difference) :].any()
        assert np.abs(e.scores).max() > 1e-6
        assert e.contrast is not None


def test_the_page_says_what_the_test_does() -> None:
    assert matrix.PAGE.read_text(encoding="utf-8") == matrix.page(), "run: python -m tests.tasks.matrix"
