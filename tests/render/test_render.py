"""Renderers: the right token on the right colour, everything escaped, plain text where colour is not wanted."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import whence
from whence.render import scale
from whence.render.spans import spans
from whence.render.terminal import STRONG_AGAINST, STRONG_FOR, background

HOSTILE = "<script>alert(1)</script> & \"quotes\" 'x' \x1b[31mred\x1b[0m \x07 end"


def make(scores: list[float], tokens: list[str], text: str | None = None) -> whence.Explanation:
    n = len(tokens)
    offsets, at = [], 0
    for token in tokens:
        start = text.index(token, at) if text else 0
        at = start + len(token) if text else 0
        offsets.append((start, at))
    return whence.Explanation(
        tokens=tuple(tokens),
        input_ids=tuple(range(n)),
        scores=np.array(scores, dtype=np.float32),
        special=np.zeros(n, dtype=bool),
        offsets=tuple(offsets),
        word_ids=tuple(range(n)),
        segments=(0,) * n,
        target="positive",
        target_index=1,
        probability=0.5,
        method="attcat",
        text=text,
    )


def test_strength_is_the_share_of_the_strongest_own_token() -> None:
    assert scale.strengths([100.0, 1.0, -4.0], [True, False, False]).tolist() == [0, 0.25, -1]
    assert scale.strengths([0.0, 0.0], [False, False]).tolist() == [0, 0]


def test_every_background_keeps_its_ink_readable() -> None:
    for s in np.linspace(-1, 1, 41):
        assert scale.contrast((255, 255, 255), background(float(s))) >= 4.5
        on_paper = scale.mix((255, 255, 255), scale.FOR if s > 0 else scale.AGAINST, abs(float(s)))
        assert scale.contrast(scale.ink_on(on_paper), on_paper) >= 4.5


def test_terminal_colours() -> None:
    text = make([1.0, -1.0, 0.0], ["for", "against", "none"], "for against none").to_text(color=True)
    assert "48;2;{};{};{}m".format(*STRONG_FOR) in text
    assert "48;2;{};{};{}m".format(*STRONG_AGAINST) in text
    assert re.search(r"(?<![\x1b\[\dm;])none", re.sub(r"\x1b\[0m", "", text))


def test_plain_text_without_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    e = make([1.0, -1.0], ["for", "against"], "for against")
    plain = e.to_text()  # not a terminal
    assert "\x1b" not in plain
    assert "for against" in plain
    assert "+1" in plain
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in e.to_text()


def test_special_tokens_are_dim(sentiment: whence.Explainer) -> None:
    text = sentiment.explain("a charming film").to_text(color=True)
    assert "\x1b[2m[CLS]" in text


def test_hostile_text_reaches_neither_terminal_nor_page(sentiment: whence.Explainer) -> None:
    e = sentiment.explain(HOSTILE)
    plain, colored = e.to_text(color=False), e.to_text(color=True)
    assert "\x1b" not in plain
    assert "\x07" not in colored
    assert "␛[31m" in plain
    assert "<script" not in e.to_html()
    assert "&lt;" in e.to_html()
    assert "<script" not in make([1.0], ["<script>"], "<script>").to_html()


class Balance(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_is_whole_and_keeps_the_text(sentiment: whence.Explainer) -> None:
    source = "a “charming”  film,\nfull of 🎬 and فيلم جميل !"
    page = sentiment.explain(source)._repr_html_()
    parser = Balance()
    parser.feed(page)
    assert parser.open == []
    assert source in parser.text
    assert "http" not in page
    assert 'dir="auto"' in page
    assert "rank 1" in page


def test_spans_rebuild_the_text(sentiment: whence.Explainer) -> None:
    source = "Unbelievably  good — isn't it?"
    e = sentiment.explain(source)
    joined = "".join(s.text for s in spans(e))
    assert source in joined
    assert "##" not in joined
    assert any(s.text.startswith("##") for s in spans(sentiment.explain("an unwatchable hodgepodge"), pieces=True))
    pair = sentiment.explain(("good film", "bad plot"))
    assert "".join(s.text for s in spans(pair)) == "[CLS] good film [SEP] bad plot [SEP]"


@pytest.mark.parametrize("method", ["attcat", "gradient"])
def test_figure(sentiment: whence.Explainer, method: str) -> None:
    e = sentiment.explain("a charming and often affecting journey", method)
    figure = e.figure()
    labels = [t.get_text() for t in figure.axes[0].get_xticklabels()]
    assert labels == [w.text for w in e.words()]
