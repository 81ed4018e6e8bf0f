"""The head of a language model run at the places that are read: the same answers, and nobody's hooks misled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whence
from tests import architectures
from whence.explainer import Explainer
from whence.fast import asked_places
from whence.fast.asked_places import asked_places_only, head_of
from whence.inputs import Batch
from whence.models import Lent, untouched
from whence.run.perturb import score_rows
from whence.tasks import Term
from whence.tasks.masked_lm import MaskedLM
from whence.trace import recorder

MASKED = ["bert", "roberta", "distilbert", "albert", "electra", "mpnet", "deberta-v2", "modernbert"]
CAUSAL = list(architectures.DECODERS)
LANGUAGE_MODELS = [("masked-lm", name) for name in MASKED] + [("causal-lm", name) for name in CAUSAL]
TEXTS = {
    "masked-lm": ["the [MASK] is dull", "a [MASK] film and a [MASK] plot , never boring"],
    "causal-lm": ["the film is very", "a charming journey and"],
}
METHODS = ["gradient-x-input", "simple", "integrated-gradients", "occlusion", "attcat"]


def loaded(task: str, name: str, **options: Any) -> whence.Explainer:
    model = architectures.build(name, torch.float64, task=task)
    return whence.load(model, architectures.tokenizer(framed=task != "causal-lm"), **options)


@contextmanager
def rows_of_head(model: Any) -> Iterator[list[int]]:
    """How many tokens the head is given, told by a listener that is not a hook."""
    seen: list[int] = []
    head = model.get_output_embeddings()
    run = head.forward

    def forward(states: Tensor) -> Tensor:
        seen.append(states.shape[1])
        return run(states)  # type: ignore[no-any-return]

    head.forward = forward
    yield seen
    del head.forward


def whole(patched: pytest.MonkeyPatch) -> None:
    """No head is cut."""
    patched.setattr(recorder, "asked_places_only", lambda model, lent, batch: nullcontext())


@pytest.mark.parametrize(("task", "name"), LANGUAGE_MODELS)
def test_scores_are_the_same(task: str, name: str) -> None:
    explainer = loaded(task, name)
    options = {"continuation": "light and dark"} if task == "causal-lm" else {}
    with pytest.MonkeyPatch.context() as patched:
        whole(patched)
        wanted = [explainer.explain(TEXTS[task], METHODS, steps=4, **given) for given in ({}, options)]
    with rows_of_head(explainer.model) as seen:
        found = [explainer.explain(TEXTS[task], METHODS, steps=4, **given) for given in ({}, options)]
    assert max(seen) <= 4  # as many as there are masks, or tokens of the continuation; the try has four
    for one, other in zip(found, wanted, strict=True):
        for method in METHODS:
            for a, b in zip(one[method], other[method], strict=True):
                np.testing.assert_allclose(a.scores, b.scores, rtol=1e-6, atol=1e-9, err_msg=method)
                assert (a.target, a.prediction) == (b.target, b.prediction)
                assert a.probability == pytest.approx(b.probability)


@pytest.mark.parametrize(("task", "name"), [("masked-lm", "bert"), ("causal-lm", "gpt2"), ("causal-lm", "llama")])
@pytest.mark.parametrize("method", ["attnlrp", "lrp", "transatt", "deeplift", "alti", "decoded-grad-cam"])
def test_relevance_mixing_and_decoding_are_the_same(task: str, name: str, method: str) -> None:
    explainer = loaded(task, name)
    with pytest.MonkeyPatch.context() as patched:
        whole(patched)
        wanted = explainer.explain(TEXTS[task], method)
    with rows_of_head(explainer.model) as seen:
        found = explainer.explain(TEXTS[task], method)
    assert method == "decoded-grad-cam" or max(seen) <= 4
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.scores, b.scores, rtol=1e-6, atol=1e-9)


def test_predictions_and_perturbed_rows() -> None:
    explainer = loaded("causal-lm", "gpt2")
    rows = explainer.rows(TEXTS["causal-lm"], [explainer.ask()] * 2, "error", 8192)
    terms = [Term((0,), (9,), row.places) for row in rows]
    with pytest.MonkeyPatch.context() as patched:
        whole(patched)
        wanted = score_rows(explainer.session, rows, terms, batch_tokens=64)
        said = explainer.predict(TEXTS["causal-lm"])
    with rows_of_head(explainer.model) as seen:
        found = score_rows(explainer.session, rows, terms, batch_tokens=64)
        again = explainer.predict(TEXTS["causal-lm"])
    assert set(seen[-2:]) == {1}
    assert found.log_probability is not None
    assert wanted.log_probability is not None
    np.testing.assert_allclose(found.y, wanted.y)
    np.testing.assert_allclose(found.log_probability, wanted.log_probability)
    assert [p.label for p in again] == [p.label for p in said]


def test_whoever_listens_to_the_model_hears_every_token() -> None:
    explainer, seen = loaded("causal-lm", "gpt2"), []
    explainer.explain("the film is very", "gradient-x-input")
    model: Any = explainer.model
    handle = model.lm_head.register_forward_hook(lambda module, args, output: seen.append(output.shape[1]))
    heard = explainer.explain("the film is very", "gradient-x-input")
    assert seen == [4]
    handle.remove()
    np.testing.assert_allclose(heard.scores, explainer.explain("the film is very", "gradient-x-input").scores)


def test_a_head_that_looks_at_all_tokens_does_not_qualify() -> None:
    class Centred(nn.Module):
        def __init__(self, head: nn.Module) -> None:
            super().__init__()
            self.head = head

        def forward(self, states: Tensor) -> Tensor:
            return self.head(states - states.mean(1, keepdim=True))  # type: ignore[no-any-return]

    explainer = loaded("causal-lm", "gpt2")
    explainer.explain("the film is very", "gradient-x-input")
    model: Any = explainer.model
    assert head_of(model) is model.lm_head
    model.lm_head = Centred(model.lm_head)
    assert head_of(model) is None
    with pytest.MonkeyPatch.context() as patched:
        whole(patched)
        wanted = explainer.explain("the film is very", "gradient-x-input").scores
    np.testing.assert_allclose(explainer.explain("the film is very", "gradient-x-input").scores, wanted)


def test_a_task_that_reads_logits_in_its_own_way_gets_those_of_every_token() -> None:
    class FirstPlace(MaskedLM):
        def logits(self, output: Any, batch: Batch) -> Tensor:
            assert output.logits.shape[1] == batch.input_ids.shape[1]
            return output.logits[torch.arange(len(batch.places)), batch.places[:, 0]][:, None]  # type: ignore[no-any-return]

    explainer = loaded("masked-lm", "bert")
    wanted = explainer.explain(TEXTS["masked-lm"][0], "gradient-x-input").scores
    task: Any = explainer.session.task
    own = Explainer(explainer.model, explainer.tokenizer, FirstPlace(task.encoder, task.vocabulary))
    np.testing.assert_allclose(own.explain(TEXTS["masked-lm"][0], "gradient-x-input").scores, wanted)
    assert len(own.explain(TEXTS["masked-lm"][0], "occlusion").scores) == len(wanted)


def test_a_head_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[Any] = []
    survives = asked_places.survives
    monkeypatch.setattr(asked_places, "survives", lambda model, head: tries.append(head) or survives(model, head))
    explainer = loaded("masked-lm", "bert")
    for _ in range(3):
        explainer.explain(TEXTS["masked-lm"], "gradient-x-input")
    assert len(tries) == 1


def test_classifiers_and_batches_that_ask_everywhere_are_left_alone() -> None:
    classifier = whence.load(architectures.model("bert"), architectures.tokenizer())
    batch = classifier.session.collate(classifier.rows(["a film"], [classifier.ask()], "error", 8192))
    with untouched(classifier.model) as lent:
        assert isinstance(asked_places_only(classifier.model, lent, batch), nullcontext)
    explainer = loaded("causal-lm", "gpt2")
    one = explainer.rows([{"input_ids": [7]}], [explainer.ask()], "error", 8192)
    assert isinstance(
        asked_places_only(explainer.model, Lent.of(explainer.model), explainer.session.collate(one)), nullcontext
    )
    assert explainer.predict({"input_ids": [7]}).label
