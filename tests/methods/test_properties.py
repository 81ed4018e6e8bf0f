"""What must hold for every method on every architecture, whatever the texts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import whence
from tests import architectures

METHODS = [m["name"] for m in whence.methods() if m["family"] in architectures.SINGLE_PASS]
SETTINGS = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
CONTENT = st.integers(5, len(architectures.VOCABULARY) - 1)
ROWS = st.lists(st.lists(CONTENT, min_size=1, max_size=14), min_size=2, max_size=4)
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def flat(per_row: list[list[whence.Explanation]]) -> list[whence.Explanation]:
    return [e for row in per_row for e in row]


def framed(words: list[int]) -> dict[str, list[int]]:
    return {"input_ids": [2, *words, 3]}


def assert_same(
    one: list[whence.Explanation], other: list[whence.Explanation], tolerance: float, unclipped: float = 0.0
) -> None:
    """Equal to `tolerance` of the largest score, or of the largest before a ReLU left only a small one."""
    largest = max(unclipped, *(float(np.abs(e.scores).max()) for e in one))
    for a, b in zip(one, other, strict=True):
        assert np.abs(a.scores - b.scores).max() <= tolerance * largest, a.method
        if a.layers is not None:
            assert np.abs(a.layers - b.layers).max() <= tolerance * max(largest, np.abs(a.layers).max()), a.method


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@SETTINGS
@given(rows=ROWS, mate=st.integers(15, 40))
def test_a_row_does_not_depend_on_its_batch(
    architecture: str, dtype: torch.dtype, rows: list[list[int]], mate: int
) -> None:
    explainer = whence.load(architectures.model(architecture, dtype), architectures.tokenizer())
    inputs = [framed(row) for row in rows]
    together = explainer.explain(inputs, METHODS, "all")
    backwards = explainer.explain(inputs[::-1], METHODS, "all")
    # a long batch mate adds padding to every other row
    padded = explainer.explain([*inputs, framed([7] * mate)], METHODS, "all", batch_tokens=10**6)
    alone = explainer.explain(inputs, METHODS, "all", batch_tokens=1)
    activations = max(float(np.abs(e.layers).max()) for e in flat(together["cat"]))
    for name in METHODS:
        unclipped = activations if name == "grad-cam" else 0.0
        for other in (backwards[name][::-1], padded[name][:-1], alone[name]):
            assert_same(flat(together[name]), flat(other), TOLERANCE[dtype], unclipped)


def test_the_tokenizers_padding_side_does_not_matter(architecture: str) -> None:
    texts = ["a charming film", "the plot is slow , dull and never moving"]
    explainer = whence.load(architectures.model(architecture), architectures.tokenizer())
    right = explainer.explain(texts, METHODS)
    explainer.tokenizer.padding_side = "left" if explainer.tokenizer.padding_side == "right" else "right"
    left = explainer.explain(texts, METHODS)
    for name in METHODS:
        assert_same(right[name], left[name], 0.0)


def test_the_same_call_twice_gives_the_same_bits(architecture: str) -> None:
    explainer = whence.load(architectures.model(architecture, torch.float32), architectures.tokenizer())
    texts = ["the film was not charming , but funny !", "good", "a very long and slow story"]
    first, second = (explainer.explain(texts, METHODS) for _ in range(2))
    for name in METHODS:
        for a, b in zip(first[name], second[name], strict=True):
            assert a.scores.tobytes() == b.scores.tobytes(), name
            assert a.scores.dtype == np.float32


def test_ranges(architecture: str) -> None:
    explainer = whence.load(architectures.model(architecture), architectures.tokenizer())
    found = explainer.explain(["the film was not charming , but funny !", "good"], METHODS)
    for e in found["rollout"] + found["raw-attention"]:
        assert e.scores.min() >= 0
        np.testing.assert_allclose(e.layers.sum(1), 1, rtol=1e-10)
    for name in ("gae", "attgrads", "grads", "attention-gradcam", "grad-cam", "simple", "gradient", "attention-flow"):
        assert all(e.scores.min() >= 0 for e in found[name]), name
    for e in found["simple"]:
        assert e.scores.sum() == pytest.approx(1)
    for e in found["attention-flow"]:
        assert e.scores.max() <= 1 + 1e-12  # no more can leave the readout than its row holds


def test_random_scores_are_drawn_from_seed_and_tokens() -> None:
    explainer = whence.load(architectures.model("bert"), architectures.tokenizer())
    row = framed([7, 9, 12])
    for options, seed in (({}, 0), ({"seed": 5}, 5)):
        drawn = np.random.default_rng([seed, *row["input_ids"]]).random(5)
        np.testing.assert_array_equal(explainer.explain(row, "random", **options).scores, drawn)


def test_class_agnostic_methods_do_not_move_with_the_target(architecture: str) -> None:
    explainer = whence.load(architectures.model(architecture), architectures.tokenizer())
    one, other = (explainer.explain("a charming film", METHODS, target) for target in (0, 2))
    for name in ("random", "raw-attention", "rollout", "attention-flow"):
        assert np.array_equal(one[name].scores, other[name].scores), name
    for name in ("attcat", "cat", "gae", "attgrads", "simple", "gradient", "gradient-x-input"):
        assert not np.allclose(one[name].scores, other[name].scores), name


LAYERED = {
    "attgrads": lambda layers: layers.mean(0),
    "cat": lambda layers: layers.sum(0),
    "attcat": lambda layers: layers.sum(0),
    "rollout": lambda layers: layers[-1],
    "norms": lambda layers: layers[-1],
    "globenc": lambda layers: layers[-1],
    "alti": lambda layers: layers[-1],
}


@pytest.mark.parametrize("method", LAYERED)
def test_scores_follow_from_the_layers(method: str) -> None:
    explainer = whence.load(architectures.model("bert"), architectures.tokenizer())
    e = explainer.explain("the plot is slow but quite funny", method)
    assert e.layers is not None
    assert e.layers.shape == (3, len(e))
    np.testing.assert_allclose(LAYERED[method](e.layers), e.scores, rtol=1e-9, atol=1e-12)
