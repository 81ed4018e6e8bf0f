"""The result: words, top, round trips."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle

import numpy as np
import pytest

import whence
from tests import architectures


@pytest.fixture(scope="module")
def explainer() -> whence.Explainer:
    return whence.load(architectures.model("bert"), architectures.tokenizer())


def test_words_sum_their_pieces(explainer: whence.Explainer) -> None:
    e = explainer.explain("Slowly, the actors never moved!", "attcat")
    words = e.words()
    assert [w.text for w in words] == ["Slowly", ",", "the", "actors", "never", "moved", "!"]
    actors = words[3]
    assert [e.tokens[i] for i in actors.tokens] == ["actor", "##s"]
    assert actors.score == pytest.approx(float(e.scores[list(actors.tokens)].sum()))
    assert e.text[actors.start : actors.end] == "actors"
    content = e.scores[~e.special].sum()
    assert sum(w.score for w in words) == pytest.approx(float(content))


def test_words_of_ids_are_glued_from_pieces(explainer: whence.Explainer) -> None:
    ids = explainer.explain("the actors", "attcat").input_ids
    assert [w.text for w in explainer.explain({"input_ids": ids}, "attcat").words()] == ["the", "actors"]


def test_top_is_sorted_by_weight_whatever_the_sign(explainer: whence.Explainer) -> None:
    e = explainer.explain("the film was not charming , but funny !", "attcat")
    top = e.top(4)
    assert len(top) == 4
    assert [abs(w.score) for w in top] == sorted((abs(w.score) for w in e.words()), reverse=True)[:4]
    assert any(w.score < 0 for w in e.words())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_round_trip_through_json(dtype: str) -> None:
    explainer = whence.load("sentiment", dtype=dtype)
    for name in ("attcat", "gradient"):
        e = explainer.explain(("a “charming” film", "ünïcode 🎬 <b>"), name)
        back = whence.Explanation.from_dict(json.loads(json.dumps(e.to_dict(), allow_nan=False)))
        assert back == e
        assert back.scores.dtype == e.scores.dtype == dtype
        assert back.scores.tobytes() == e.scores.tobytes()
        assert (back.layers is None) == (e.layers is None)


def test_from_dict_says_what_is_missing() -> None:
    with pytest.raises(whence.InputError, match="lacks input_ids, method"):
        whence.Explanation.from_dict({"tokens": [], "scores": [], "target": "", "target_index": 0})


def test_repr_names_the_target_and_the_top_words(sentiment: whence.Explainer) -> None:
    assert repr(sentiment.explain("a charming journey")).startswith("<Explanation of 'positive' (p=")


def test_tables_print_themselves() -> None:
    assert "attcat" in repr(whence.methods())
    assert "<td>attcat</td>" in whence.methods()._repr_html_()
    assert "sentiment" in repr(whence.models())


def test_an_explanation_is_an_ordinary_dataclass(explainer: whence.Explainer) -> None:
    def fresh() -> whence.Explanation:
        found: whence.Explanation = explainer.explain("the actors moved", "gradient")
        return found

    looked_at = fresh()
    assert len(looked_at.tokens) == len(looked_at) == len(looked_at.special)
    for made in (
        pickle.loads(pickle.dumps(fresh())),
        copy.deepcopy(fresh()),
        copy.copy(fresh()),
        dataclasses.replace(fresh()),
        whence.Explanation.from_dict(fresh().to_dict()),
    ):
        assert made == looked_at
    assert dataclasses.asdict(fresh())["tokens"] == looked_at.tokens
    assert repr(fresh()) == repr(looked_at)
    with pytest.raises(AttributeError, match="nothing"):
        fresh().nothing  # noqa: B018


def test_every_explanation_has_a_mask_of_its_own(explainer: whence.Explainer) -> None:
    found = explainer.explain("the actors moved", ["gradient", "gae"])
    found["gradient"].special[:] = False
    assert found["gae"].special.any()
    assert found["gae"].special.dtype == np.bool_
