"""Bad input: a right answer, or a whence error that says what to do. Never a wrong answer, never a traceback of ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import whence
from tests import architectures

METHODS = ["attcat", "rollout", "gradient", "attention-flow"]

# texts that must be refused, with what is said (the page and the interface of whence serve are tried with them too)
BAD_TEXTS = [
    ("", "is empty.*give at least one word"),
    ("   \n\t ", "is empty"),
    ("\x00", "nothing to explain"),
    ("a \ud800 film", "lone surrogate\\) at position 2.*encode"),
]
# texts that must get a right answer
ODD_TEXTS = [
    "good",
    "🎬🍿 charming 👩‍👩‍👧",
    "فيلم جميل جدا",
    "a good\x00 film\x07",
    "[CLS] [SEP] [MASK] [PAD] good",
    "ﬁ̈lm" * 3,
    "a" * 5000,
]


@pytest.fixture(params=["bert", "gpt2"])
def explainer(request: pytest.FixtureRequest) -> whence.Explainer:
    return whence.load(architectures.model(request.param), architectures.tokenizer())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        *BAD_TEXTS,
        (("", ""), "is empty"),
        (("fine", "bad \udfff"), "lone surrogate"),
        (5, "expected a text.*got int"),
        (None, "got NoneType"),
        (b"bytes", "got bytes"),
        (("a", "b", "c"), "pair of two texts.*as a list"),
        (("a", 3), "pair of two texts"),
        ({"text": "a"}, "needs 'input_ids'"),
        ({"input_ids": []}, "is empty"),
        ({"input_ids": "2 5 3"}, "list of whole numbers"),
        ({"input_ids": [2, 5.0, 3]}, "whole numbers"),
        ({"input_ids": [[2, 5, 3]]}, "one flat list"),
        ({"input_ids": [2, True, 3]}, "whole numbers"),
        ({"input_ids": [2, 3]}, "special tokens only"),
        ({"input_ids": [2, 9999, 3]}, "token id 9999 is outside"),
        ({"input_ids": [2, -1, 3]}, "token id -1 is outside"),
        ({"input_ids": [2, *[5] * 100, 3]}, "102 tokens.*at most 64.*never cuts"),
        ({"input_ids": [2, 5, 3], "token_type_ids": [0, 0]}, "2 entries for 3"),
        ({"input_ids": [2, 5, 3], "token_type_ids": [0, 7, 0]}, "token_type_ids must be below"),
        ({"input_ids": [2, 5, 3], "attention_mask": [0, 0, 0]}, "0 and 1, with at least one 1"),
        ({"input_ids": [2, 5, 3], "attention_mask": [1, 2, 1]}, "0 and 1"),
        ({"input_ids": [2, 5, 3], "position_ids": [0, 1, 2]}, "unknown keys"),
    ],
)
def test_bad_inputs_are_refused_in_a_sentence(explainer: whence.Explainer, given: Any, says: str) -> None:
    with pytest.raises(whence.InputError, match=says):
        explainer.explain(given, METHODS)
    with pytest.raises(whence.InputError, match="input 1: "):
        explainer.explain(["good film", given], METHODS)


@pytest.mark.parametrize(
    "given",
    [
        *ODD_TEXTS,
        {"input_ids": [7]},
        {"input_ids": np.array([2, 7, 3])},
        {"input_ids": torch.tensor([2, 7, 3])},
    ],
)
def test_odd_inputs_get_a_right_answer(explainer: whence.Explainer, given: Any) -> None:
    found = explainer.explain(given, METHODS)
    for e in found.values():
        assert np.isfinite(e.scores).all()
        assert len(e.scores) == len(e.tokens) == len(e.input_ids)
        assert e.to_text(color=True)
        assert e.to_html()
        assert whence.Explanation.from_dict(e.to_dict()) == e
    plain = explainer.model(torch.tensor([found["attcat"].input_ids])).logits.softmax(-1)[0]
    assert found["attcat"].probability == pytest.approx(plain.max().item())


@pytest.mark.parametrize(
    ("target", "error", "says"),
    [
        ("LABEL_9", whence.UnknownName, "unknown label 'LABEL_9'.*LABEL_0, LABEL_1, LABEL_2"),
        (3, whence.InputError, "target 3 is out of range.*0 to 2"),
        (-1, whence.InputError, "out of range"),
        (1.0, whence.InputError, "target must be a label.*got float"),
        (True, whence.InputError, "got bool"),
        ([0], whence.InputError, "a list of targets goes with a list of inputs"),
        ({}, whence.InputError, "got dict"),
    ],
)
def test_bad_targets(explainer: whence.Explainer, target: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        explainer.explain("good film", "attcat", target)


def test_as_many_targets_as_inputs(explainer: whence.Explainer) -> None:
    with pytest.raises(whence.InputError, match="1 targets for 2 inputs"):
        explainer.explain(["good", "bad"], "attcat", [0])


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        ({"method": "atcat"}, whence.UnknownName, "did you mean 'attcat'"),
        ({"method": [3]}, whence.InputError, "given by its name"),
        ({"method": []}, whence.InputError, "no method given"),
        (
            {"method": "attcat", "variant": "printed"},
            whence.UnknownName,
            "unknown variant 'printed'.*Known: paper, released",
        ),
        ({"method": "attention-gradcam", "variant": "x"}, whence.UnknownName, "unknown variant 'x'.*paper, released"),
        ({"method": "cat", "layer": 9}, whence.InputError, "layers 0 \\(the embeddings\\) to 3"),
        ({"method": "grad-cam", "layer": "last"}, whence.InputError, "layer='last'"),
        ({"method": "gradient", "of": "odds"}, whence.UnknownName, "odds"),
        ({"method": "gradient", "norm": 3}, whence.UnknownName, "unknown norm '3'.*1, 2"),
        ({"method": "gradient-x-input", "aggregate": "max"}, whence.UnknownName, "aggregate 'max'.*l2, mean, sum"),
        ({"method": "attcat", "batch_tokens": 0}, whence.InputError, "batch_tokens=0"),
        ({"method": "attcat", "on_long": "cut"}, whence.InputError, "'truncate' .* or 'error'"),
        ({"method": "attention-flow", "max_tokens": 2}, whence.InputError, "use rollout"),
    ],
)
def test_bad_options(explainer: whence.Explainer, call: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        explainer.explain("good film", **call)


def test_nan_weights_are_named() -> None:
    model = architectures.build("bert")
    with torch.no_grad():
        model.bert.encoder.layer[1].attention.self.query.weight[0, 0] = float("nan")
    explainer = whence.load(model, architectures.tokenizer())
    for call in (explainer.predict, explainer.explain):
        with pytest.raises(whence.ModelError, match=r"encoder\.layer\.1\.attention\.self\.query\.weight"):
            call("good film")


def test_text_without_a_tokenizer() -> None:
    explainer = whence.load(architectures.model("gpt2"))
    with pytest.raises(whence.InputError, match=r"no tokenizer.*input_ids"):
        explainer.explain("good film")
    assert explainer.explain({"input_ids": [7, 8]}).tokens == ("7", "8")


@pytest.mark.parametrize("given", [0, -1, "8", 1.5, True, None])
def test_batch_tokens_that_are_no_count(sentiment: whence.Explainer, given: Any) -> None:
    for call in (sentiment.explain, sentiment.predict):
        with pytest.raises(whence.InputError, match="give a whole number of tokens, 1 or more"):
            call("a good film", batch_tokens=given)


def test_numbers_of_numpy_are_numbers(sentiment: whence.Explainer) -> None:
    assert sentiment.explain("a good film", "attcat", batch_tokens=np.int32(64)).target == "positive"
