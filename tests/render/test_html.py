"""Pages: whole, escaped, coloured by the shared scale, readable in both directions and on both backgrounds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser

import numpy as np
import pytest

import whence
from tests.render.common import HOSTILE, make
from whence.evaluate.classes import class_words
from whence.render.classes import classes_html, classes_text
from whence.render.html import compare_html, page, style_sheet
from whence.render.report import report_html
from whence.render.scale import DARK, LIGHT, css

VOID = {"meta", "input", "br"}


class Balance(HTMLParser):
    """Checks that what opens closes, and gathers the text that people see."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.text = ""
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.text += data


def read(text: str) -> Balance:
    parser = Balance()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return parser


def hostile() -> whence.Explanation:
    names = {"target": "<script>t", "prediction": "<script>p", "model": "<script>m", "contrast": "<script>c"}
    return make([1.0, -1.0], ["<script>", "alert(1)"], "<script>alert(1)</script>", **names)  # type: ignore[arg-type]


RENDERERS: dict[str, Callable[[whence.Explanation], str]] = {
    "one": lambda e: e.to_html(),
    "pieces": lambda e: e.to_html(pieces=True),
    "compare": lambda e: compare_html({"<script>n": e, "other": e}, delta=True),
    "report": lambda e: report_html([e], title="<script>", labels=["<script>l"]),
    "classes": lambda e: classes_html(
        class_words([whence.Explanation.from_dict({**e.to_dict(), "prediction": None})]), [e], title="<script>"
    ),
}


@pytest.mark.parametrize("name", RENDERERS)
def test_a_script_never_reaches_a_page(name: str) -> None:
    text = RENDERERS[name](hostile())
    parser = read(text)
    scripts = [attrs for tag, attrs in parser.tags if tag == "script"]
    assert scripts == ([{"type": "application/json", "id": "rows"}, {}] if name == "report" else [])
    assert "<script>" in parser.text or "<script>alert(1)</script>" in str(parser.tags) or name == "report"
    assert not re.search(r"<script>[a-z]", text.replace("<script>//", ""))


def test_a_script_reaches_neither_terminal_markup_nor_latex(sentiment: whence.Explainer) -> None:
    e = sentiment.explain(HOSTILE)
    assert "&lt;" in e.to_html()
    assert HOSTILE.split("\x1b")[0] in read(e.to_html()).text


def test_html_is_whole_and_keeps_the_text(sentiment: whence.Explainer) -> None:
    source = "a “charming”  film,\nfull of 🎬 and فيلم جميل !"
    text = sentiment.explain(source)._repr_html_()
    parser = read(text)
    assert source in parser.text
    for outside in ("http", "src=", "url(", "@import", "<script", "<link"):
        assert outside not in text
    assert re.search(r'title="[+-][\d.e-]+, rank 1 of \d+', text)


def test_colours_of_both_backgrounds() -> None:
    text = make([1.0, -1.0, 0.5, 0.0], ["yes", "no", "half", "none"], "yes no half none").to_html()
    assert '<mark class="f20" title="+1, rank 1 of 4">yes</mark>' in text
    assert '<mark class="a20" title="-1, rank 2 of 4">no</mark>' in text
    assert 'class="f10"' in text
    assert "<mark title=" in text, "nothing is coloured without a weight"
    rule = re.search(r"\.whence \.a20\{(.*?)\}", text)
    assert rule
    assert f"light-dark({css(LIGHT.against[1])},{css(DARK.against[1])})" in rule[1]
    assert "underline" in rule[1]
    assert ".f3{" not in text, "a fragment carries the rules it uses"
    assert ".f3{" in style_sheet()
    weights = make([1.0, 0.1], ["yes", "no"], "yes no", "alti").to_html()
    assert 'class="w20"' in weights
    assert "less" in weights


def test_theme_can_be_told() -> None:
    e = make([1.0], ["a"], "a")
    assert '<div class="whence dark">' in e.to_html(theme="dark")
    with pytest.raises(whence.UnknownName, match="theme"):
        e.to_html(theme="sepia")


def test_right_to_left(sentiment: whence.Explainer) -> None:
    """The direction comes from the text itself: special tokens are isolated, so that '[CLS]' does not make it Latin."""
    text = sentiment.explain("فيلم جميل جدا").to_html(pieces=True)
    assert 'class="text" dir="auto"' in text
    assert '<bdi class="special">[CLS]</bdi>' in text
    assert "[CLS]" not in sentiment.explain("فيلم جميل جدا").to_html()


def test_words_of_several_pieces_tell_their_sum(sentiment: whence.Explainer) -> None:
    e = sentiment.explain("an unwatchable film")
    assert f"(the word unwatchable: {e.words()[1].score:+.4g})" in e.to_html()
    assert "##" not in e.to_html()


def test_pairs_are_labelled() -> None:
    text = whence.load("nli").explain(("A man sleeps.", "Nobody is awake.")).to_html()
    assert '<div class="part">premise</div>' in text
    assert '<div class="part">hypothesis</div>' in text


def test_compare_has_a_row_per_method() -> None:
    one, two = make([2.0, -1.0], ["a", "b"], "a b"), make([0.0, 4.0], ["a", "b"], "a b", "alti")
    parser = read(page("x", compare_html({"attcat": one, "alti": two}, delta=True)))
    assert [tag for tag, _ in parser.tags].count("tr") == 3
    assert "Δ attcat − alti" in parser.text


def test_report_carries_its_rows() -> None:
    found = [make([1.0, -0.5], ["good", "film"], "good film", prediction="positive"), make([0.2], ["b"], "b", "alti")]
    text = report_html(found, labels=["positive", "negative"])
    match = re.search(r'id="rows">(.*?)</script>', text, flags=re.DOTALL)
    assert match
    first, second = json.loads(match[1])
    assert first["parts"] == [[None, "good", 20, 1.0, " ", "film", -10, -0.5]]
    assert (first["wrong"], second["wrong"], first["signed"], second["signed"]) == (False, True, True, False)
    assert "default-src 'none'" in text
    assert not re.search(r"https?://", text)
    with pytest.raises(whence.InputError, match="2 labels for 1"):
        report_html(found[:1], labels=["a", "b"])
    with pytest.raises(whence.InputError, match="nothing to report"):
        report_html([])


def test_classes_page_and_text() -> None:
    good = make([2.0, 0.5], ["good", "film"], "good film", target="positive", prediction="positive")
    bad = make([3.0, 0.5], ["bad", "film"], "bad film", target="negative", prediction="negative")
    found = class_words([good, bad])
    text = classes_html(found, [good, bad])
    parser = read(text)
    assert "good" in parser.text
    assert [tag for tag, _ in parser.tags].count("details") == len(found.classes["positive"]) + len(
        found.classes["negative"]
    )
    plain = classes_text(found, [good, bad], color=False)
    assert re.search(r"negative  1 text\n +bad ", plain)
    assert "bad film" in plain


def test_scores_that_are_all_zero_stay_plain() -> None:
    e = make([0.0, 0.0], ["a", "b"], "a b", layers=np.zeros((2, 2)))
    assert "<mark class" not in e.to_html()
    assert "48;2" not in e.to_text(color=True).split("\n")[1]
