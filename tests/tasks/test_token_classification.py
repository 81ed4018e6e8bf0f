"""Token classification: which word, which label, and why not another."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import whence
from tests import architectures

TEXT = "the films was a charming journey"
LABELS = {0: "O", 1: "PER", 2: "LOC"}


@pytest.fixture(scope="module")
def ner() -> whence.Explainer:
    model = architectures.build(
        "bert", task="token-classification", id2label=LABELS, label2id={v: k for k, v in LABELS.items()}
    )
    return whence.load(model, architectures.tokenizer())


def test_every_word_is_labelled_at_its_first_piece(ner: whence.Explainer) -> None:
    ids = ner.tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        p = ner.model(**ids).logits[0].softmax(-1)
    answer = ner.predict(TEXT)
    assert [w for w, _, _ in answer.words] == TEXT.split()
    first = [1, 2, 4, 5, 6, 7]  # "films" is film ##s
    assert [label for _, label, _ in answer.words] == [LABELS[int(p[i].argmax())] for i in first]
    np.testing.assert_allclose([c for _, _, c in answer.words], [float(p[i].max()) for i in first], rtol=1e-6)


def test_the_word_that_is_explained(ner: whence.Explainer) -> None:
    by_word = ner.explain(TEXT, "raw-attention", place="charming")
    by_position = ner.explain(TEXT, "raw-attention", place=6)
    assert by_word == by_position
    assert ner.explain(TEXT, "raw-attention", place=1).scores.tolist() != by_word.scores.tolist()
    assert by_word.scores.sum() == pytest.approx(1)  # the attention of that token
    surest = ner.explain(TEXT, "attcat")
    words = {w: p for w, label, p in ner.predict(TEXT).words if label != "O"}
    if words:
        assert surest.target != "O"
        assert surest.probability == pytest.approx(max(words.values()))


def test_labels_and_contrasts(ner: whence.Explainer) -> None:
    every = ner.explain(TEXT, "cat", target="all", place="journey")
    assert [e.target for e in every] == ["O", "PER", "LOC"]
    contrast = ner.explain(TEXT, "cat", target="PER", contrast="LOC", place="journey")
    np.testing.assert_allclose(contrast.scores, every[1].scores - every[2].scores, rtol=1e-7, atol=1e-12)
    assert contrast.probability == pytest.approx(every[1].probability / (every[1].probability + every[2].probability))
    with pytest.raises(whence.UnknownName, match="did you mean 'journey'"):
        ner.explain(TEXT, "cat", place="jorney")
    with pytest.raises(whence.InputError, match="give 0 to 8"):
        ner.explain(TEXT, "cat", place=20)
    with pytest.raises(whence.InputError, match="the target itself"):
        ner.explain(TEXT, "cat", target="PER", contrast="PER", place="journey")


def test_classifiers_take_contrasts_too(sentiment: whence.Explainer) -> None:
    text = "a charming journey"
    both = sentiment.explain(text, "gradient-x-input", target="all", aggregate="sum")
    why = sentiment.explain(text, "gradient-x-input", contrast="negative", aggregate="sum")
    assert (why.target, why.contrast) == ("positive", "negative")
    np.testing.assert_allclose(why.scores, both[1].scores - both[0].scores, atol=1e-5)
    assert why.probability == pytest.approx(both[1].probability, abs=1e-6)  # two labels: the same choice
    with pytest.raises(whence.InputError, match="is the contrast itself"):
        sentiment.explain(text, contrast="positive")
    with pytest.raises(whence.InputError, match="this is a sequence-classification model"):
        sentiment.explain(text, place=1)
