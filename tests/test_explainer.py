"""The explainer: targets, order, batches, passes, memory, threads, and a model given back as it was found."""

from __future__ import annotations

import threading
import warnings
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

import whence
from tests import architectures
from whence.explainer import Explainer
from whence.models import lock_of
from whence.tasks import Scalar, SequenceClassification

METHODS = [m["name"] for m in whence.methods() if m["family"] in architectures.SINGLE_PASS]
TEXTS = ["a charming film", "dull", "the plot is slow , dull and never moving", "not bad !"]


@pytest.fixture
def explainer() -> whence.Explainer:
    return whence.load(architectures.build("bert"), architectures.tokenizer())


def test_one_input_gives_one_explanation_and_a_list_gives_a_list_in_order(explainer: whence.Explainer) -> None:
    one = explainer.explain(TEXTS[0], "attcat")
    assert isinstance(one, whence.Explanation)
    many = explainer.explain(TEXTS, "attcat", batch_tokens=8)
    assert [e.text for e in many] == TEXTS
    assert explainer.explain([], "attcat") == []
    both = explainer.explain(TEXTS, ["attcat", "gae"])
    assert list(both) == ["attcat", "gae"]
    assert [e.text for e in both["gae"]] == TEXTS
    assert isinstance(explainer.explain(TEXTS[0], ["attcat"])["attcat"], whence.Explanation)


def test_targets(explainer: whence.Explainer) -> None:
    predicted = explainer.predict(TEXTS[0])
    by_default = explainer.explain(TEXTS[0])
    assert by_default.target == predicted.label == by_default.prediction
    assert by_default.probability == pytest.approx(predicted.probability)
    assert explainer.explain(TEXTS[0], target="LABEL_2") == explainer.explain(TEXTS[0], target=2)
    assert explainer.explain(TEXTS[0], target="label_2").target == "LABEL_2"
    assert explainer.explain(TEXTS[0], target=np.int64(2)).target_index == 2
    mixed = explainer.explain(TEXTS, target=[0, "LABEL_1", None, "all"])
    assert [e.target_index for e in mixed[:2]] == [0, 1]
    assert mixed[2].target_index == explainer.predict(TEXTS[2]).index
    assert [e.target_index for e in mixed[3]] == [0, 1, 2]
    every = explainer.explain(TEXTS, ["attcat", "rollout"], target="all")
    for i, text in enumerate(TEXTS):
        for label in range(3):
            alone = explainer.explain(text, "attcat", label)
            np.testing.assert_allclose(every["attcat"][i][label].scores, alone.scores, rtol=1e-8, atol=1e-12)
    assert sum(e.probability for e in every["rollout"][0]) == pytest.approx(1)


def test_predictions(explainer: whence.Explainer) -> None:
    answers = explainer.predict(TEXTS, batch_tokens=8)
    assert [a.label for a in answers] == [explainer.predict(t).label for t in TEXTS]
    assert sum(answers[0].probabilities) == pytest.approx(1)
    assert answers[0].probabilities[answers[0].index] == answers[0].probability == max(answers[0].probabilities)


def test_options_go_to_the_methods_that_take_them(explainer: whence.Explainer) -> None:
    found = explainer.explain(TEXTS[0], ["attcat", "gradient", "rollout"], variant="paper", norm=1)
    assert found["attcat"].options == {"variant": "paper"}
    assert found["gradient"].options == {"norm": 1, "of": "probability"}
    assert found["rollout"].options == {}
    with pytest.raises(whence.UnknownName, match="did you mean 'variant'"):
        explainer.explain(TEXTS[0], "attcat", varaint="paper")


class Passes:
    """Counts forwards and backwards."""

    def __init__(self, model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
        self.forwards = self.backwards = 0
        plain, grad = model.forward, torch.autograd.grad

        def forward(*args: Any, **kwargs: Any) -> Any:
            self.forwards += 1
            return plain(*args, **kwargs)

        forward.__signature__ = __import__("inspect").signature(plain)  # type: ignore[attr-defined]

        def backward(*args: Any, **kwargs: Any) -> Any:
            self.backwards += 1
            return grad(*args, **kwargs)

        monkeypatch.setattr(model, "forward", forward)
        monkeypatch.setattr(torch.autograd, "grad", backward)


SAME_SCALAR = [name for name in METHODS if name not in ("simple", "gradient")]


@pytest.mark.parametrize(
    ("methods", "options", "passes"),
    [
        (["raw-attention", "rollout", "attention-flow"], {}, (1, 0)),
        (SAME_SCALAR, {}, (1, 1)),
        ([*SAME_SCALAR, "gradient"], {"of": "logit"}, (1, 1)),
        ([*SAME_SCALAR, "simple"], {}, (1, 2)),
        # log p serves both the loss and the probability: ∂p = p·∂log p
        (METHODS, {}, (1, 2)),
    ],
)
def test_all_methods_share_one_pass(
    methods: list[str], options: dict[str, Any], passes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    explainer = whence.load(architectures.build("bert"), architectures.tokenizer())
    explainer.predict(TEXTS)  # the first look at a model tries out what its head reads
    count = Passes(explainer.model, monkeypatch)
    explainer.explain(TEXTS, methods, **options)
    assert (count.forwards, count.backwards) == passes


def test_rule_sets_share_one_forward_and_say_what_they_say_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    explainer = whence.load(architectures.build("bert", torch.float64), architectures.tokenizer())
    methods = ["attnlrp", "transatt", "gae", "gradient-x-input"]
    alone = {name: explainer.explain(TEXTS, name) for name in methods}
    count = Passes(explainer.model, monkeypatch)
    together = explainer.explain(TEXTS, methods)
    assert count.forwards == 1
    for name in methods:
        for a, b in zip(together[name], alone[name], strict=True):
            np.testing.assert_allclose(a.scores, b.scores, rtol=0, atol=1e-12 * np.abs(b.scores).max())


def test_half_precision_keeps_what_does_not_divide_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """transatt divides and so runs in float32; attnlrp does not, and stays in the model's own precision."""
    explainer = whence.load(architectures.build("bert", torch.bfloat16), architectures.tokenizer())
    explainer.predict(TEXTS)
    count = Passes(explainer.model, monkeypatch)
    explainer.explain(TEXTS, ["attnlrp", "transatt"])
    assert count.forwards == 2


def test_a_task_built_on_classification_keeps_its_own_targets() -> None:
    """`early_terms` names scalars before the answer is known; a task that explains something else must not inherit them."""

    class Second(SequenceClassification):
        def _target(self, row: Any, index: int, contrast: int | None) -> Any:
            return super()._target(row, (index + 1) % len(self.labels), contrast)

    model, tokenizer = architectures.build("bert", torch.float64), architectures.tokenizer()
    plain = whence.load(model, tokenizer)
    task = plain.session.task
    changed = Explainer(model, tokenizer, Second(**{f.name: getattr(task, f.name) for f in fields(task)}))
    best = plain.explain(TEXTS[0], "gradient-x-input").target_index
    expected = plain.explain(TEXTS[0], "gradient-x-input", (best + 1) % len(task.labels))
    np.testing.assert_allclose(changed.explain(TEXTS[0], "gradient-x-input").scores, expected.scores)


def test_the_fallback_for_other_attention_code_is_one_pass_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mpnet", "deberta-v2"):
        explainer = whence.load(architectures.build(name), architectures.tokenizer())
        count = Passes(explainer.model, monkeypatch)
        explainer.explain(TEXTS, SAME_SCALAR)
        assert (count.forwards, count.backwards) == (1, 1)
        monkeypatch.undo()


def test_the_fast_attention_stays_on_when_no_method_needs_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    explainer = whence.load(architectures.build("bert"), architectures.tokenizer())
    seen = []
    plain = explainer.model.forward

    def forward(**kwargs: Any) -> Any:
        seen.append(explainer.model.config._attn_implementation)
        return plain(**kwargs)

    monkeypatch.setattr(explainer.model, "forward", forward)
    explainer.explain(TEXTS, ["gradient", "cat", "grad-cam"])
    explainer.explain(TEXTS, ["gradient", "attcat"])
    assert seen == ["sdpa", "whence"]


def state(model: torch.nn.Module) -> dict[str, Any]:
    """Everything about a live model that a caller could notice."""
    return {
        "training": [m.training for m in model.modules()],
        "requires_grad": [p.requires_grad for p in model.parameters()],
        "grad": [p.grad for p in model.parameters()],
        "config": model.config.to_dict(),
        "attention": model.config._attn_implementation,
        "hooks": [
            (list(m._forward_hooks), list(m._forward_pre_hooks), list(m._backward_hooks)) for m in model.modules()
        ],
        "attributes": [sorted(m.__dict__) for m in model.modules()],
        "weights": {k: v.clone() for k, v in model.state_dict().items()},
    }


def assert_same_state(before: dict[str, Any], after: dict[str, Any]) -> None:
    weights = before.pop("weights"), after.pop("weights")
    assert before == after
    assert all(torch.equal(weights[0][k], weights[1][k]) for k in weights[0])


def test_a_live_model_is_given_back_as_it_was(architecture: str) -> None:
    @whence.method("test-raises", needs={"attention", "attention.grad", "hidden", "hidden.grad", "embeddings.grad"})
    def raises(trace: whence.Trace) -> torch.Tensor:
        """A method with a mistake in it."""
        raise ZeroDivisionError("a mistake")

    model = architectures.build(architecture, torch.float32)
    model.train()
    next(model.parameters()).requires_grad_(False)
    model.config.pad_token_id = 0
    explainer = whence.load(model, architectures.tokenizer())
    before = state(model)
    explainer.explain(TEXTS, METHODS)
    explainer.predict(TEXTS)
    assert_same_state(before, state(model))
    before = state(model)
    with pytest.raises(ZeroDivisionError):
        explainer.explain(TEXTS, ["attcat", "test-raises"])
    assert_same_state(before, state(model))


def test_the_callers_grad_mode_does_not_matter(explainer: whence.Explainer) -> None:
    plain = explainer.explain(TEXTS[0], METHODS)
    with torch.no_grad():
        without = explainer.explain(TEXTS[0], METHODS)
    with torch.inference_mode():
        inference = explainer.explain(TEXTS[0], METHODS)
    for name in METHODS:
        assert np.array_equal(plain[name].scores, without[name].scores)
        assert np.array_equal(plain[name].scores, inference[name].scores)


def test_a_batch_that_does_not_fit_is_halved(explainer: whence.Explainer, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, sizes = explainer.model.forward, []
    expected = explainer.explain(TEXTS, "attcat")

    def forward(**kwargs: Any) -> Any:
        sizes.append(len(kwargs["input_ids"]))
        if sizes[-1] > 1:
            raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 1 bytes.")
        return plain(**kwargs)

    monkeypatch.setattr(explainer.model, "forward", forward)
    found = explainer.explain(TEXTS, "attcat")
    assert sizes[:2] == [4, 2]
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(a.scores, b.scores, rtol=1e-9, atol=1e-12)

    def never(**kwargs: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(explainer.model, "forward", never)
    with pytest.raises(whence.ModelError, match="not enough memory for one text of 5 tokens"):
        explainer.explain(TEXTS[0], "attcat")


def test_other_errors_of_the_model_are_not_swallowed(
    explainer: whence.Explainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**kwargs: Any) -> Any:
        raise RuntimeError("something else")

    monkeypatch.setattr(explainer.model, "forward", broken)
    with pytest.raises(RuntimeError, match="something else"):
        explainer.explain(TEXTS, "attcat")


def test_one_explainer_from_many_threads(explainer: whence.Explainer) -> None:
    expected = [explainer.explain(t, ["attcat", "gradient"]) for t in TEXTS]
    found: dict[int, Any] = {}

    def work(i: int) -> None:
        found[i] = explainer.explain(TEXTS[i % 4], ["attcat", "gradient"])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i in range(16):
        for name in ("attcat", "gradient"):
            np.testing.assert_allclose(found[i][name].scores, expected[i % 4][name].scores, rtol=1e-9, atol=1e-13)


def test_the_lock_belongs_to_the_model() -> None:
    model = architectures.model("bert")
    assert lock_of(model) is lock_of(model)


def test_a_decoder_without_a_padding_token_runs_in_batches() -> None:
    model = architectures.build("gpt2", pad_token_id=None)
    explainer = whence.load(model, architectures.tokenizer())
    together = explainer.explain(TEXTS, METHODS)
    for i, text in enumerate(TEXTS):
        alone = explainer.explain(text, METHODS)
        for name in METHODS:
            np.testing.assert_allclose(together[name][i].scores, alone[name].scores, rtol=1e-8, atol=1e-13)
    assert model.config.pad_token_id is None


def test_multi_label_and_regression_heads() -> None:
    several = whence.load(
        architectures.build("bert", problem_type="multi_label_classification"), architectures.tokenizer()
    )
    logits = several.model(**architectures.tokenizer()(TEXTS[0], return_tensors="pt")).logits[0]
    answer = several.predict(TEXTS[0])
    np.testing.assert_allclose(answer.probabilities, logits.sigmoid().detach().numpy(), rtol=1e-9)
    assert several.explain(TEXTS[0], "gradient").probability == pytest.approx(answer.probability)

    number = whence.load(architectures.build("bert", num_labels=1), architectures.tokenizer())
    answer = number.predict(TEXTS[0])
    assert answer.probability is None
    assert number.explain(TEXTS[0], "attcat").probability is None
    with pytest.raises(whence.NotSupported, match="of='logit'"):
        number.explain(TEXTS[0], "gradient")
    assert number.explain(TEXTS[0], "gradient", of="logit").scores.max() > 0


def test_pairs_keep_their_segments(explainer: whence.Explainer) -> None:
    e = explainer.explain(("a charming film", "the plot is dull"), "attcat")
    assert e.segments == (None, 0, 0, 0, None, 1, 1, 1, 1, None)
    assert [w.segment for w in e.words()] == [0, 0, 0, 1, 1, 1, 1]
    assert [w.text for w in e.words()] == ["a", "charming", "film", "the", "plot", "is", "dull"]
    swapped = explainer.explain({"input_ids": e.input_ids, "token_type_ids": [0] * 10}, "attcat")
    assert not np.allclose(swapped.scores, e.scores)


def test_long_texts_are_cut_aloud_or_refused(explainer: whence.Explainer) -> None:
    text = "good film " * 10_000
    with pytest.warns(UserWarning, match="1 of 2 texts were longer than the 64 tokens"):
        found = explainer.explain([text, "good"], "attcat")
    assert found[0].truncated
    assert not found[1].truncated
    assert len(found[0]) == 64
    assert found[0].tokens[-1] == "[SEP]"
    with pytest.raises(whence.InputError, match="20002 tokens, but the model reads at most 64"):
        explainer.explain(text, "attcat", on_long="error")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explainer.explain("short", "attcat")


def test_roberta_positions_start_after_the_padding_id() -> None:
    explainer = whence.load(architectures.build("roberta", pad_token_id=1), architectures.tokenizer())
    with pytest.warns(UserWarning, match="62 tokens"):
        assert len(explainer.explain("good " * 100)) == 62


def test_the_default_method_falls_back_where_relevance_has_no_rules() -> None:
    assert whence.load(architectures.build("bert"), architectures.tokenizer()).explain(TEXTS[0]).method == "attnlrp"
    assert whence.load(architectures.build("mpnet"), architectures.tokenizer()).explain(TEXTS[0]).method == "gae"


def test_of_equal_logits_the_answer_is_the_one_that_was_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU may take another of two equal logits for the largest than the host does: what it took is what is explained."""
    model = architectures.build("bert", torch.float32)
    with torch.no_grad():
        model.classifier.weight[:] = model.classifier.weight[:1]
        model.classifier.bias[:] = 0
    ex = whence.load(model, architectures.tokenizer())
    settled = Scalar.settled

    def last(self: Scalar, logits: torch.Tensor) -> Scalar:
        assert self.any_open
        return replace(settled(self, logits), index=torch.full_like(self.index, len(ex.labels) - 1))

    monkeypatch.setattr(Scalar, "settled", last)
    found = ex.explain(["good", "a slow film"], "gradient-x-input")
    assert [e.target for e in found] == [ex.labels[-1]] * 2
