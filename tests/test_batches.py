"""A batch's scalars are named before the model's answer is read: the same explanations, and nobody is waited for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import whence
from tests import architectures
from whence.errors import InputError
from whence.run import batch
from whence.tasks import CausalLM, MaskedLM, SequenceClassification, Vocabulary
from whence.tasks.scalar import PREDICTED, Scalar, Term

TEXTS = ["a charming film", "the plot is slow , dull and never moving", "good"]
MASKED = ["the [MASK] is dull", "a [MASK] film and a [MASK] plot , never boring", "[MASK] good"]
METHODS = ["gradient-x-input", "attcat", "attnlrp", "transatt", "integrated-gradients", "occlusion"]

CASES: dict[str, tuple[str, str, list[Any], dict[str, Any]]] = {
    "what is predicted": ("sequence-classification", "bert", TEXTS, {}),
    "a label": ("sequence-classification", "bert", TEXTS, {"target": 1}),
    "a label each": ("sequence-classification", "bert", TEXTS, {"target": [2, None, 0]}),
    "every label": ("sequence-classification", "bert", TEXTS, {"target": "all"}),
    "every label rather than one": ("sequence-classification", "bert", TEXTS, {"target": "all", "contrast": 1}),
    "contrasts here and there": ("sequence-classification", "bert", TEXTS, {"target": [2, None, 0], "contrast": [0, None, 1]}),
    "a decoder's": ("sequence-classification", "gpt2", TEXTS, {"target": [None, 1, None]}),
    "the next token": ("causal-lm", "gpt2", TEXTS, {}),
    "a next token": ("causal-lm", "llama", TEXTS, {"target": "good"}),
    "a next token rather than another": ("causal-lm", "gpt2", TEXTS, {"target": ["good", None, "bad"], "contrast": "dull"}),
    "a continuation": ("causal-lm", "gpt2", TEXTS, {"continuation": " light and dark"}),
    "its second token": ("causal-lm", "gpt2", TEXTS, {"continuation": "light and dark", "place": 1}),
    "its tokens": ("causal-lm", "gpt2", TEXTS, {"continuation": ["light and dark", "good", "a b c d"], "place": "all"}),
    "a continuation rather than another": ("causal-lm", "gpt2", TEXTS, {"contrast": ("very good", "very bad")}),
    "masks": ("masked-lm", "bert", MASKED, {}),
    "masks apart": ("masked-lm", "bert", MASKED, {"place": "all"}),
    "a mask rather than": ("masked-lm", "bert", MASKED[:1], {"target": "plot", "contrast": "actor"}),
    "masks, some of them given": ("masked-lm", "roberta", MASKED, {"target": ["plot", None, "film"], "place": 0}),
}  # fmt: skip


def loaded(task: str, architecture: str) -> whence.Explainer:
    model = architectures.model(architecture, task=task)
    return whence.load(model, architectures.tokenizer(framed=task != "causal-lm"))


def flat(found: list[Any]) -> list[whence.Explanation]:
    return [e for one in found for e in (one if isinstance(one, list) else [one])]


def unknown(patched: pytest.MonkeyPatch) -> None:
    """No task names scalars beforehand."""
    for task in (SequenceClassification, CausalLM, MaskedLM):
        patched.setattr(task, "early_terms", lambda self, rows, questions: None)


@pytest.mark.parametrize("case", CASES)
def test_explanations_are_those_of_targets_that_were_read_first(case: str) -> None:
    task, architecture, texts, asked = CASES[case]
    explainer = loaded(task, architecture)
    with pytest.MonkeyPatch.context() as patched:
        unknown(patched)
        wanted = explainer.explain(texts, METHODS, steps=4, **asked)
    found = explainer.explain(texts, METHODS, steps=4, **asked)
    for method in METHODS:
        for one, other in zip(flat(found[method]), flat(wanted[method]), strict=True):
            assert np.array_equal(one.scores, other.scores)
            assert one.to_dict() == other.to_dict()


@pytest.mark.parametrize("case", CASES)
def test_the_backward_is_asked_for_before_the_answer(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task, architecture, texts, asked = CASES[case]
    explainer, done = loaded(task, architecture), []
    read, grad = batch.Answers._resolve, torch.autograd.grad
    monkeypatch.setattr(batch.Answers, "_resolve", lambda self, *given: done.append("read") or read(self, *given))
    monkeypatch.setattr(
        torch.autograd, "grad", lambda *given, **named: done.append("backward") or grad(*given, **named)
    )
    explainer.explain(texts, "gradient-x-input", **asked)
    assert done[0] == "backward"
    assert done.count("read") == 1
    assert done[-1] == "read"


def test_an_answer_that_depends_on_more_than_the_largest_logit_is_read_first(monkeypatch: pytest.MonkeyPatch) -> None:
    explainer, done = loaded("question-answering", "bert"), []
    read, grad = batch.Answers._resolve, torch.autograd.grad
    monkeypatch.setattr(batch.Answers, "_resolve", lambda self, *given: done.append("read") or read(self, *given))
    monkeypatch.setattr(
        torch.autograd, "grad", lambda *given, **named: done.append("backward") or grad(*given, **named)
    )
    explainer.explain({"question": "was it good ?", "context": "the film was very good ."}, "gradient-x-input")
    assert done == ["read", "backward", "backward"]  # of the start and of the end


@pytest.mark.parametrize(
    ("task", "architecture", "text"),
    [("sequence-classification", "bert", TEXTS[0]), ("causal-lm", "gpt2", TEXTS[0])],
)
def test_a_contrast_with_what_is_predicted_is_refused(task: str, architecture: str, text: str) -> None:
    explainer = loaded(task, architecture)
    best = explainer.predict(text).index  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"the contrast itself|is the target itself"):
        explainer.explain(text, "gradient-x-input", contrast=best)


def test_the_words_that_might_have_been_are_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty for each text: a sixth of an explanation by a small language model."""
    explainers = loaded("causal-lm", "gpt2"), loaded("masked-lm", "bert")
    said = [explainers[0].predict(TEXTS), explainers[1].predict(MASKED)]
    monkeypatch.setattr(Vocabulary, "alternatives", None)
    for explainer, texts, answers in zip(explainers, (TEXTS, MASKED), said, strict=True):
        found = explainer.explain(texts, "gradient-x-input")
        assert [e.prediction for e in found] == [answer.label for answer in answers]  # type: ignore[union-attr]


def test_open_options_are_settled_by_the_logits() -> None:
    logits = torch.tensor(
        [[[0.0, 3.0, 1.0], [5.0, 0.0, 6.0]], [[9.0, 2.0, 1.0], [0.0, 4.0, 1.0]]]
    )  # (b, places, options)
    device = logits.device
    one = Term((1,), (PREDICTED,), (0,))
    assert Scalar.stack([one, one], device).settled(logits).index.tolist() == [[2], [1]]
    mixed = [Term((0, 1), (2, PREDICTED), (0, 0)), Term((1,), (PREDICTED,), (0,))]
    scalar = Scalar.stack(mixed, device).settled(logits)
    assert not scalar.any_open
    assert scalar.chosen(logits).tolist() == [1.0 + 6.0, 4.0]
    contrasted = [Term((0,), (PREDICTED,), (0,), (0,)), Term((0,), (PREDICTED,), (0,))]
    assert Scalar.stack(contrasted, device).settled(logits).y(logits, None).tolist() == [3.0, 9.0]
    closed = Scalar.stack([Term((0,), (1,), (0,))], device)
    assert closed.settled(logits) is closed
