"""Question answering: the authors' numbers, targets, given answers, windows."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import whence
from tests import architectures
from whence.tasks.question_answering import MAX_ANSWER, best_span

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = json.loads(gzip.decompress((GOLDEN / "qa.json.gz").read_bytes()))
ITEM = {"question": "is it good ?", "context": "the film was a charming journey and the music is lovely ."}
BOOK = {
    "question": "Who wrote the book?",
    "context": "The book was written by Anna Smith in 1932, while she lived in Paris.",
}


@cache
def golden_model(name: str) -> whence.Explainer:
    return whence.load(GOLDEN / "models" / name, dtype="float64")


@pytest.fixture(scope="module")
def qa() -> whence.Explainer:
    return whence.load("qa")


@pytest.fixture(scope="module")
def tiny() -> whence.Explainer:
    return whence.load(architectures.model("bert", task="question-answering"), architectures.tokenizer())


def is_padded(case: dict[str, Any]) -> bool:
    """Whether the row ends with hidden padding; others hide [CLS] and [SEP]."""
    padding = 1 if case["model"] == "roberta_qa" else 0
    return not case["row"]["attention_mask"][-1] and case["row"]["input_ids"][-1] == padding


def test_attcat_of_a_padded_row_is_that_of_the_row_without_padding() -> None:
    cases = [c for c in CASES if is_padded(c)]
    assert {c["model"] for c in cases} == {"bert_qa", "distilbert_qa", "roberta_qa"}
    for case in cases:
        ex, target = golden_model(case["model"]), case["target"]
        length = sum(case["row"]["attention_mask"])
        real = {key: value[:length] for key, value in case["row"].items()}
        found, right = (ex.explain(row, "attcat", target=target, variant="released") for row in (case["row"], real))
        np.testing.assert_allclose(found.scores[:length], right.scores, rtol=1e-9, atol=1e-12)
        assert not found.scores[length:].any()


@pytest.mark.parametrize("model", sorted({c["model"] for c in CASES}))
def test_attcat_is_the_authors(model: str) -> None:
    cases = [c for c in CASES if c["model"] == model]
    together = golden_model(model).explain(
        [c["row"] for c in cases], "attcat", target=[c["target"] for c in cases], variant="released"
    )
    for case, e in zip(cases, together, strict=True):
        alone = golden_model(model).explain(case["row"], "attcat", target=case["target"], variant="released")
        if is_padded(case):  # the released code averages over padding too
            continue
        scale = np.abs(case["scores"]).max()
        for found in (e, alone):
            np.testing.assert_allclose(found.scores, case["scores"], rtol=0, atol=2e-5 * scale)


def test_a_span_is_its_start_and_its_end(tiny: whence.Explainer) -> None:
    methods = ["attcat", "transatt", "alti", "gae", "gradient-x-input", "rollout"]
    for name, (span, start, end) in tiny.explain(ITEM, methods, target="all").items():
        np.testing.assert_allclose(span.scores, start.scores + end.scores, rtol=1e-9, atol=1e-12, err_msg=name)
        assert start.target == f"start of {span.target!r}"
        assert start.probability * end.probability == pytest.approx(span.probability)


def test_relevance_starts_at_the_answer_only(tiny: whence.Explainer) -> None:
    e = tiny.explain(ITEM, "lrp", target="start", rules="deep-taylor")
    top = np.abs(e.layers[-1])
    assert top.argmax() == e.target_index
    assert top.sum() == pytest.approx(top[e.target_index])
    assert e.options["relevance_kept"] == pytest.approx(1)


def test_the_answer_is_predicted_in_the_context_or_given(qa: whence.Explainer) -> None:
    answer = qa.predict(BOOK)
    assert answer.label == "Anna Smith"
    e = qa.explain(BOOK, "attnlrp")
    assert (e.target, e.prediction, e.task) == ("Anna Smith", "Anna Smith", "question-answering")
    assert e.probability == pytest.approx(answer.probability)
    assert {w.text for w in e.top(3)} & {"Who", "Anna", "Smith"}
    assert [e.pair[a:b] for (a, b), s in zip(e.offsets, e.segments, strict=True) if s == 1][:2] == ["The", "book"]
    other = qa.explain({**BOOK, "answer": "Paris"}, "attnlrp")
    assert (other.target, other.prediction) == ("Paris", "Anna Smith")
    assert other.probability < 0.01
    twice = {"question": "Where?", "context": "Paris is not Paris."}
    first, second = (qa.explain({**twice, "answer": "Paris", "answer_start": at}, "attnlrp") for at in (0, 13))
    assert first.target_index < second.target_index
    assert qa.explain((BOOK["question"], BOOK["context"]), "attnlrp") == e


def test_no_answer_is_a_target(qa: whence.Explainer) -> None:
    e = qa.explain(BOOK, "attnlrp", target="unanswerable")
    assert (e.target, e.target_index) == ("no-answer", 0)
    contrast = qa.explain(BOOK, "attnlrp", contrast="no-answer")
    assert contrast.probability > 0.99
    assert contrast.contrast == "no-answer"
    plain = qa.explain(BOOK, "attnlrp")
    np.testing.assert_allclose(contrast.scores, plain.scores - e.scores, atol=1e-4)


def test_why_this_answer_and_not_that(qa: whence.Explainer) -> None:
    pair = qa.explain(BOOK, "attnlrp", contrast=("1932", "Paris"))
    given = qa.explain({**BOOK, "answer": "1932"}, "attnlrp", contrast="Paris")
    assert pair == given
    assert (pair.target, pair.contrast, pair.prediction) == ("1932", "Paris", "Anna Smith")
    this, that = (qa.explain({**BOOK, "answer": a}, "attnlrp") for a in ("1932", "Paris"))
    np.testing.assert_allclose(pair.scores, this.scores - that.scores, atol=1e-4)
    none = qa.explain(BOOK, "attnlrp", contrast=("no-answer", "Paris"))
    assert (none.target, none.contrast) == ("no-answer", "Paris")
    with pytest.raises(whence.InputError, match="leave 'answer' out"):
        qa.explain({**BOOK, "answer": "1932"}, "attnlrp", contrast=("1932", "Paris"))
    with pytest.raises(whence.InputError, match="a row of ids has no text"):
        qa.explain({"input_ids": pair.input_ids}, "attnlrp", contrast=("1932", "Paris"))


def test_the_best_span_is_the_best_of_all(tiny: whence.Explainer) -> None:
    """Against a loop over every start and end in the context, of answers up to 30 tokens."""
    context = "the film was a charming journey , " * 6
    (row,) = tiny.session.task._windows({"question": "is it ?", "context": context}, None, "", "error")
    inside = [i for i, s in enumerate(row.segments) if s == 1]
    assert len(inside) > MAX_ANSWER
    for seed in range(20):
        logits = torch.randn(2, len(row) + 3, generator=torch.Generator().manual_seed(seed))
        every = [(s, e) for s in inside for e in inside if 0 <= e - s < MAX_ANSWER]
        best = max(every, key=lambda pair: float(logits[0, pair[0]] + logits[1, pair[1]]))
        start, end, score = best_span(row, logits)
        assert (start, end) == best
        assert score == pytest.approx(float(logits[0, start] + logits[1, end]))


def test_a_long_context_is_read_in_windows(qa: whence.Explainer) -> None:
    filler = "Nothing of interest happened in the village that year. " * 480
    context = filler + BOOK["context"] + " " + filler
    assert len(qa.tokenizer(context)["input_ids"]) > 5000
    e = qa.explain({"question": BOOK["question"], "context": context}, ["gradient-x-input", "attnlrp"])
    for found in e.values():
        assert found.target == "Anna Smith"
        assert found.truncated
        assert len(found) <= qa.session.task.encoder.max_length
        where = [a for (a, _), s in zip(found.offsets, found.segments, strict=True) if s == 1]
        assert where[0] <= context.index("Anna") <= where[-1]  # offsets are those of the whole context
        assert {w.text for w in found.top(4)} & {"Who", "Anna", "Smith", "written"}
    given = qa.explain({"question": BOOK["question"], "context": context, "answer": "Paris"}, "attnlrp")
    assert given.target == "Paris"
    with pytest.raises(whence.InputError, match="on_long='truncate'"):
        qa.explain({"question": "Who?", "context": context}, "attnlrp", on_long="error")


@pytest.mark.parametrize(
    ("item", "asked", "message"),
    [
        ("who ?", {}, "a question needs its context"),
        ({"question": "who ?"}, {}, "a question needs its context"),
        ({"question": " ", "context": "a film"}, {}, "the question is empty"),
        ({"question": "who ?", "context": ""}, {}, "the context is empty"),
        ({**ITEM, "answers": ["film"]}, {}, "unknown keys"),
        ({**ITEM, "answer": "table"}, {}, "does not stand in the context"),
        ({**ITEM, "answer": "film", "answer_start": 7}, {}, "does not stand in the context at 7"),
        ({"input_ids": [2, 8, 9, 3], "answer": (2, 9)}, {}, "pair of token positions"),
        (ITEM, {"target": "spam"}, "did you mean 'span'"),
        (ITEM, {"contrast": "table"}, "does not stand in the context"),
        (ITEM, {"continuation": "x"}, "causal language models"),
        ({"question": "film " * 70, "context": "a film " * 40}, {}, "leaves no room"),
    ],
)
def test_errors_say_what_to_do(tiny: whence.Explainer, item: Any, asked: dict[str, Any], message: str) -> None:
    with pytest.raises((whence.InputError, whence.UnknownName), match=message):
        tiny.explain(item, "attcat", **asked)


def test_what_adds_up_over_start_and_end_and_what_does_not(tiny: whence.Explainer) -> None:
    """Scores are the sum of both terms', also with norms in them; matrices are of the text, shares of all that was started."""
    for method, options in (
        ("smoothgrad", {"samples": 2}),
        ("integrated-gradients", {"aggregate": "l2", "steps": 3}),
        ("gradient-shap", {"aggregate": "mean", "samples": 2}),
        ("deeplift", {"aggregate": "l2"}),
    ):
        span, start, end = tiny.explain(ITEM, method, target="all", **options)
        np.testing.assert_allclose(span.scores, start.scores + end.scores, rtol=1e-6, err_msg=method)
    span, start, end = tiny.explain(ITEM, "integrated-gradients", target="all", aggregate="l2", steps=3)
    assert span.options["delta"] == pytest.approx(start.options["delta"] + end.options["delta"])
    still, plain = tiny.explain(ITEM, "smoothgrad", sigma=0.0), tiny.explain(ITEM, "simple")
    np.testing.assert_allclose(still.scores, plain.scores, rtol=1e-6)
    for name, matrix in (tiny.explain(ITEM, "alti", matrices=True).matrices or {}).items():
        np.testing.assert_allclose(matrix.sum(-1), 1, rtol=1e-6, err_msg=name)
    span, start, end = tiny.explain(ITEM, "lrp", target="all", rules="attnlrp")
    y = [e.scores.sum() / e.options["relevance_kept"] for e in (start, end)]
    assert span.options["relevance_kept"] == pytest.approx(span.scores.sum() / sum(y))
    json.dumps(span.to_dict())
