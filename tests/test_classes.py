"""Words per class: sums, rarity, overlap, examples."""

from __future__ import annotations

import math

import pytest

import whence
from tests.render.common import make
from whence.evaluate.classes import Background, class_words
from whence.models import zoo


def of(label: str, scores: list[float], text: str, **more: object) -> whence.Explanation:
    return make(scores, text.split(), text, target=label, **{"prediction": label, **more})  # type: ignore[arg-type]


CORPUS = [
    of("pos", [2.0, 1.0, 0.5], "Good film !"),
    of("pos", [3.0, 1.0], "good plot"),
    of("neg", [4.0, 1.0], "bad film"),
    of("neg", [5.0, -1.0], "dull plot"),
]


def test_scores_are_summed_over_texts_and_weighted_by_rarity() -> None:
    found = class_words(CORPUS)
    good = found.classes["pos"][0]
    assert (good.word, good.total, good.texts) == ("good", 5.0, 2)
    assert good.idf == pytest.approx(math.log(5 / 3))
    assert good.score == pytest.approx(5 * math.log(5 / 3))
    assert good.examples == (1, 0), "the text in which it weighs most comes first"
    assert [w.word for w in found.classes["neg"]] == ["dull", "bad", "film"], "words against the class are left out"
    assert all(w.word != "!" for words in found.classes.values() for w in words)
    assert found.texts == {"pos": 2, "neg": 2}


def test_words_that_are_everywhere_weigh_nothing() -> None:
    everywhere = Background.of_texts(["film good", "Film plot", "a FILM"])
    assert everywhere.idf("film") == 0
    assert "film" not in [w.word for w in class_words(CORPUS, everywhere).classes["neg"]]


def test_overlap_is_the_shared_share_of_the_top_lists() -> None:
    found = class_words(CORPUS, Background("flat", 10, {}))
    tops = {name: [w.word for w in words] for name, words in found.classes.items()}
    assert tops == {"neg": ["dull", "bad", "film"], "pos": ["good", "film", "plot"]}
    assert [found.overlap(k) for k in (1, 2, 3)] == [0, 0, pytest.approx(1 / 3)]
    assert found.overlap_curve() == {"x": [1, 2, 3], "mean": [0, 0, pytest.approx(100 / 3)]}
    third = class_words([*CORPUS, of("mid", [1.0, 0.5, 0.4], "good film plot")], Background("flat", 10, {}))
    assert third.overlap(3) == pytest.approx((1 + 1 + 3) / (3 * 3)), "pairs: neg–pos 1, mid–neg 1, mid–pos 3"


def test_only_predicted_classes_count() -> None:
    other = of("pos", [9.0], "odd", prediction="neg")
    found = class_words([*CORPUS, other])
    assert found.skipped == 1
    assert "odd" not in [w.word for w in found.classes["pos"]]
    with pytest.raises(whence.InputError, match="predicted class"):
        class_words([other])
    with pytest.raises(whence.InputError, match="one method at a time"):
        class_words([CORPUS[0], make([1.0], ["a"], "a", "alti")])


def test_the_built_in_background_knows_common_words() -> None:
    words = Background.of_ranks(zoo.words_by_frequency())
    order = [words.idf(w) for w in ("a", "the", "film", "charming", "zyzzyva")]
    assert order == sorted(order)
    assert order[1] < 0.1 < 2 < order[3]
    assert order[-1] > order[-2]


def test_topics_lean_on_different_words() -> None:
    explainer = whence.load("topics")
    texts = [row["text"] for row in zoo.samples("topics")][:40]
    found = class_words(explainer.explain(texts, "attnlrp"), Background.of_ranks(zoo.words_by_frequency()))
    assert set(found.classes) == set(explainer.labels)
    assert found.overlap(10) < 0.2
    assert found.table(2)[0].keys() == {"class", "word", "score", "texts", "idf"}
