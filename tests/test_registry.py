"""Methods of one's own: the decorator, the options, the entry points."""

from __future__ import annotations

from importlib import metadata

import pytest
import torch

import whence
from tests import architectures
from whence import registry


@pytest.fixture(autouse=True)
def clean() -> None:
    before = dict(registry._METHODS)
    yield
    registry._METHODS.clear()
    registry._METHODS.update(before)


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
    registry._load_plugins.cache_clear()
    explainer = whence.load(architectures.model("bert"), architectures.tokenizer())
    assert len(explainer.explain("a charming film", "from-a-plugin")) == 5
    registry._load_plugins.cache_clear()
