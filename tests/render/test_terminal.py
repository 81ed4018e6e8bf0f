"""Terminals: colours, wrapping, comparisons, layers, and plain text where colour is not wanted."""

from __future__ import annotations

import re

import numpy as np
import pytest
from rich.cells import cell_len

import whence
from tests.render.common import HOSTILE, make, sentence
from whence.render.difference import difference
from whence.render.scale import TERMINAL
from whence.render.spans import parts
from whence.render.terminal import compare_text, explanation_text

ANSI = re.compile(r"\x1b\[[\d;]*m")


def ground(color: tuple[int, int, int]) -> str:
    return "48;2;{};{};{}m".format(*color)


def test_colours_and_legend() -> None:
    text = make([1.0, -1.0, 0.0], ["yes", "no", "none"], "yes no none").to_text(color=True)
    assert ground(TERMINAL.speaks_for[1]) in text
    assert re.search(r"\x1b\[[\d;]*\b4;[\d;]*" + re.escape(ground(TERMINAL.against[1])) + "no", text), (
        "against is underlined"
    )
    assert "against" in ANSI.sub("", text)
    weights = make([1.0, 0.5], ["yes", "no"], "yes no", "alti").to_text(color=True)
    assert ground(TERMINAL.weight[1]) in weights
    assert "less" in weights
    assert "against" not in weights


def test_plain_text_without_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    e = make([1.0, -1.0], ["for", "against"], "for against")
    plain = e.to_text()  # not a terminal
    assert "\x1b" not in plain
    assert "for against" in plain
    assert "+1" in plain
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in e.to_text()
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" in e.to_text()


@pytest.mark.parametrize("color", [True, False])
def test_long_texts_wrap(color: bool) -> None:
    e = sentence(120)
    for text in (e.to_text(color=color, width=60), compare_text({"one": e, "two": e}, color=color, width=60)):
        assert max(cell_len(line) for line in ANSI.sub("", text).split("\n")) <= 60
    whole = ANSI.sub("", e.to_text(color=True, width=60)).split()
    assert [t for t in whole if t in set(e.tokens)] == list(e.tokens), "no word is broken or lost"


def test_special_tokens_and_pieces_only_when_asked(sentiment: whence.Explainer) -> None:
    e = sentiment.explain("an unwatchable hodgepodge")
    for shown in (e.to_text(color=True), e.to_text(color=False)):
        assert "[CLS]" not in shown
        assert "##" not in shown
    pieces = e.to_text(color=True, pieces=True)
    assert "\x1b[2m[CLS]" in pieces
    assert "##" in pieces


def test_pairs_are_labelled(sentiment: whence.Explainer) -> None:
    e = whence.load("nli").explain(("A man sleeps.", "Nobody is awake."))
    text = e.to_text(color=False)
    assert "premise: A man sleeps." in text
    assert "hypothesis: Nobody is awake." in text
    assert "question: " in make_pair("question-answering").to_text(color=False)
    assert "continuation: " in make_pair("causal-lm").to_text(color=False)


def make_pair(task: str) -> whence.Explanation:
    return make([1.0, 2.0], ["who", "he"], "who he", segments=(0, 1), pair="who he", task=task)


def test_rather_than() -> None:
    e = make([1.0], ["a"], "a", contrast="were", prediction="are")
    assert e.to_text(color=False).startswith("positive rather than were 50.0% (predicted: are)")


def test_spans_rebuild_the_text(sentiment: whence.Explainer) -> None:
    source = "Unbelievably  good — isn't it? 🎬 "
    assert "".join(s.text for s in parts(sentiment.explain(source))[0].spans) == source
    first, second = parts(sentiment.explain(("good film", "bad plot")))
    assert ("".join(s.text for s in first.spans), "".join(s.text for s in second.spans)) == ("good film", "bad plot")


def test_what_was_cut_off_is_marked(sentiment: whence.Explainer) -> None:
    with pytest.warns(UserWarning, match="were cut"):
        e = sentiment.explain("good film " * 1000)
    last = parts(e)[0].spans[-1]
    assert last.cut
    assert last.text.endswith("…")
    assert "cut to what the model reads" in e.to_text(color=False)
    assert 'class="cut"' in e.to_html()


def test_hostile_text_does_not_drive_the_terminal(sentiment: whence.Explainer) -> None:
    found = sentiment.explain(HOSTILE, ["attcat", "alti"])
    for plain in (
        found["attcat"].to_text(color=False),
        compare_text(found, color=False, delta=True),
    ):
        assert "\x1b" not in plain
        assert "␛" in plain
    layers = make([1.0], ["\x1b[31m"], "\x1b[31m", layers=np.ones((2, 1)))
    assert "␛[31m" in layers.to_text(color=False, layers=True)
    colored = found["attcat"].to_text(color=True) + compare_text(found, color=True)
    assert "\x07" not in colored
    assert "\x1b[31m" not in colored


def test_bars_follow_the_scores() -> None:
    e = make([2.0, -1.0, 0.0], ["two", "one", "none"], "two one none")
    lines = explanation_text(e, color=False, top=3).split("\n")[-3:]
    assert [line.count("█") for line in lines] == [24, 12, 0]
    wide = make([1.0], ["映画" * 20], "映画" * 20)
    assert cell_len(explanation_text(wide, color=False, top=1).split("\n")[-1].split("+1")[0]) <= 30


def test_bars_stand_under_each_other_whatever_the_script() -> None:
    words = ["charming", "映画", "はとても", "🎬", "good"]
    e = make([0.3791, -0.008994, 0.02, 6.785e-05, 2.0], words, " ".join(words))
    lines = explanation_text(e, color=False, top=5).split("\n")[-5:]
    assert {cell_len(line.partition("█")[0]) for line in lines} == {2 + 8 + 2 + 12}


def test_compare_has_a_row_per_method_and_deltas() -> None:
    one, two = make([2.0, -1.0], ["a", "b"], "a b"), make([0.0, 4.0], ["a", "b"], "a b", "alti")
    text = compare_text({"attcat": one, "alti": two}, color=False, delta=True)
    assert re.search(r"attcat +a \+2, b -1", text)
    assert re.search(r"Δ attcat − alti +b -1.5, a \+1", text)
    colored = compare_text({"attcat": one, "alti": two}, color=True, delta=True)
    assert ground(TERMINAL.weight[1]) in colored
    assert ground(TERMINAL.against[1]) in colored
    agreeing = difference(one, make([2.0, -0.9], ["a", "b"], "a b"))
    assert ground(TERMINAL.speaks_for[1]) not in agreeing.to_text(color=True).split("\n")[1], "agreement stays pale"
    with pytest.raises(whence.InputError, match="nothing to compare"):
        compare_text({})
    with pytest.raises(whence.InputError, match="same tokens"):
        difference(one, make([1.0], ["a"], "a"))


def test_layers_are_blocks() -> None:
    layers = np.array([[1.0, -1.0], [0.0, 0.5]], dtype=np.float32)
    e = make([1.0, -0.5], ["good", "bad"], "good bad", layers=layers)
    lines = e.to_text(color=False, layers=True).split("\n")
    assert lines[1].split()[:3] == ["1", "2", "sum"]
    assert lines[2] == "good   ██ ··   ██"
    assert lines[3] == "bad   -██ ▒▒  -▒▒"
    assert ground(TERMINAL.speaks_for[1]) in e.to_text(color=True, layers=True)
    with pytest.raises(whence.InputError, match="no layers"):
        make([1.0], ["a"], "a", "gradient").to_text(layers=True)


def test_layers_are_counted_as_people_do(sentiment: whence.Explainer) -> None:
    found = sentiment.explain("a charming film", ["attcat", "attnlrp"])
    assert found["attcat"].to_text(color=False, layers=True).split("\n")[1].split()[:7] == [*"123456", "sum"]
    assert found["attnlrp"].to_text(color=False, layers=True).split("\n")[1].split()[:8] == [*"0123456", "score"]
