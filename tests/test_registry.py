"""Methods of one's own: the decorator, the options, the entry points."""

from __future__ import annotations

import json
from importlib import metadata
from typing import Any

import numpy as np
import pytest
import torch

import whence
from tests import architectures
from whence import registry


@pytest.fixture(autouse=True)
def clean() -> None:
    before = dict(registry.METHODS)
    yield
    registry.METHODS.clear()
    registry.METHODS.update(before)


def test_a_method_in_a_few_lines() -> None:
    @whence.method("mine", needs={"attention", "embeddings"}, family="test")
    def mine(trace: whence.Trace, *, power: float = 1.0) -> torch.Tensor:
        """Embedding norm times attention received."""
        return trace.mean_tokens(trace.mean_attention[-1], dim=1) * trace.embeddings.norm(dim=-1) ** power

    explainer = whence.load(architectures.model("bert"), architectures.tokenizer())
    e = explainer.explain("a charming film", "mine", power=2.0)
    assert e.options == {"power": 2.0}
    assert len(e.scores) == 5
    row = next(r for r in whence.methods() if r["name"] == "mine")
    assert row["summary"] == "Embedding norm times attention received."
    assert row["cost"] == "1 forward"


def test_a_need_that_was_not_declared() -> None:
    @whence.method("forgetful", needs={"attention"})
    def forgetful(trace: whence.Trace) -> torch.Tensor:
        return trace.hidden[0].norm(dim=-1)

    explainer = whence.load(architectures.model("bert"), architectures.tokenizer())
    with pytest.raises(whence.WhenceError, match=r"reads 'hidden'.*add it to needs"):
        explainer.explain("a charming film", "forgetful")


def test_unknown_needs_and_taken_names() -> None:
    with pytest.raises(whence.UnknownName, match="did you mean 'attention'"):
        whence.method("x", needs={"atention"})(lambda trace: None)
    with pytest.raises(whence.InputError, match="exists already"):
        whence.method("attcat")(lambda trace: None)


def test_scores_that_are_not_finite_are_refused() -> None:
    @whence.method("broken", needs={"embeddings"})
    def broken(trace: whence.Trace) -> torch.Tensor:
        return trace.embeddings.sum(-1) / 0.0

    explainer = whence.load(architectures.model("bert"), architectures.tokenizer())
    with pytest.raises(whence.ModelError, match="broken gave scores that are not finite"):
        explainer.explain("a charming film", "broken")


def test_entry_points_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        def load(self) -> None:
            whence.method("from-a-plugin", needs={"embeddings"})(lambda trace: trace.embeddings.sum(-1))

    monkeypatch.setattr(metadata, "entry_points", lambda group: [Entry()] if group == "whence.methods" else [])
    registry.load_plugins.cache_clear()
    explainer = whence.load(architectures.model("bert"), architectures.tokenizer())
    assert len(explainer.explain("a charming film", "from-a-plugin")) == 5
    registry.load_plugins.cache_clear()


SHAPES: dict[str, Any] = {
    "one score too few": lambda b, n: torch.zeros(b, n - 1),
    "features too": lambda b, n: torch.zeros(b, n, 2),
    "one text": lambda b, n: torch.zeros(n),
    "complex": lambda b, n: torch.zeros(b, n, dtype=torch.complex64),
    "nothing": lambda b, n: None,
    "numpy": lambda b, n: np.zeros((b, n)),
    "layers": lambda b, n: whence.Attribution(torch.zeros(b, n), torch.zeros(b, n)),
    "matrices": lambda b, n: whence.Attribution(torch.zeros(b, n), matrices={"C": torch.zeros(b, 1, n)}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_no_score_per_token_is_refused(shape: str) -> None:
    @whence.method("odd")
    def odd(trace: whence.Trace) -> Any:
        return SHAPES[shape](*trace.input_ids.shape)

    explainer = whence.load(architectures.model("bert"), architectures.tokenizer())
    with pytest.raises(whence.InputError, match="'odd' returned what is no score per token"):
        explainer.explain(["a charming film", "dull"], "odd")


def test_a_decorator_without_a_name_and_needs_that_are_no_set() -> None:
    for nameless in (lambda: whence.method(lambda trace: None), lambda: whence.metric(""), lambda: whence.method(3)):
        with pytest.raises(whence.InputError, match="given a name first"):
            nameless()
    for needs in (None, "attention"):
        with pytest.raises(whence.InputError, match="takes a set of words"):
            whence.method("x", needs=needs)(lambda trace: None)


def test_numbers_of_numpy_are_options_like_any_other() -> None:
    explainer = whence.load(architectures.model("bert"), architectures.tokenizer())
    found = explainer.explain("a charming film", ["random", "cat"], seed=np.int64(3), layer=np.int64(1))
    assert json.loads(json.dumps(found["random"].to_dict()))["options"] == {"seed": 3}
    assert found["cat"] == explainer.explain("a charming film", "cat", layer=1)


def test_labels_that_are_alike_or_miscounted() -> None:
    explainer = whence.load(architectures.build("bert", id2label={0: "a", 1: "a", 2: "b"}), architectures.tokenizer())
    with pytest.raises(whence.InputError, match="labels 0 and 1 are called so"):
        explainer.explain("a charming film", "grads", target="a")
    assert explainer.explain("a charming film", "grads", target=1).target_index == 1
    model = architectures.build("bert")
    model.config.id2label = {1: "a", 2: "b", 3: "c"}
    with pytest.raises(whence.InputError, match="must number its labels 0 to 2"):
        whence.load(model, architectures.tokenizer())
