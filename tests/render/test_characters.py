"""Characters that drive what shows them are visible in every rendering; those that letters need stay as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

import whence
from tests.render.common import make, texts_of
from whence.evaluate.classes import class_words
from whence.render.characters import as_json, visible
from whence.render.classes import classes_html, classes_text
from whence.render.highlight import text_figure
from whence.render.html import compare_html, page
from whence.render.report import report_html
from whence.render.terminal import compare_text

CONTROLS = [chr(c) for c in (*range(0x20), *range(0x7F, 0xA0)) if chr(c) not in "\t\n"]
TURNS = list("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# Persian with a zero-width non-joiner, a family of joined figures, an accent of its own, a right-to-left mark, a soft hyphen
NEEDED = ["می\u200cخواهم", "👩\u200d👧", "nai\u0308ve", "\u200fשלום", "co\u00adoperate"]


def explained(words: list[str]) -> whence.Explanation:
    names = {name: f"{name}{words[0]}" for name in ("target", "model", "contrast", "prediction")}
    scores = [1.0 - 0.01 * i for i in range(len(words))]
    return make(scores, words, " ".join(words), **names)  # type: ignore[arg-type]


def of_classes(e: whence.Explanation) -> whence.Explanation:
    return whence.Explanation.from_dict({**e.to_dict(), "prediction": None})


RENDERERS: dict[str, Callable[[whence.Explanation], str]] = {
    "text": lambda e: e.to_text(color=False),
    "compare": lambda e: compare_text({e.target: e, "b": e}, color=False, delta=True),
    "html": lambda e: page(e.target, e.to_html()),
    "pieces": lambda e: e.to_html(pieces=True),
    "compare page": lambda e: compare_html({e.target: e, "b": e}, delta=True),
    "report": lambda e: report_html([e], title=e.target, labels=[e.target]),
    "classes": lambda e: classes_text(class_words([of_classes(e)]), [of_classes(e)], color=False),
    "classes page": lambda e: classes_html(class_words([of_classes(e)]), [of_classes(e)], title=e.target),
    "figure": lambda e: "\n".join(texts_of(text_figure({e.target: e}))),
    "bars": lambda e: "\n".join(texts_of(e.figure("bars"))),
    "latex": lambda e: e.to_latex(),
}


def shown(text: str) -> str:
    """What a reader gets: also what a report's script reads out of JSON."""
    rows = re.search(r'id="rows">(.*?)</script>', text, flags=re.DOTALL)
    return text if rows is None else text + json.dumps(json.loads(rows[1]), ensure_ascii=False).replace("\\u", "\\\\u")


@pytest.mark.parametrize("name", RENDERERS)
def test_nothing_drives_what_shows_it(name: str) -> None:
    for odd in (*CONTROLS, *TURNS):
        rendered = shown(RENDERERS[name](explained([f"good{odd}film", "end"])))
        assert odd not in rendered, f"{name} lets {odd!r} through"
        assert f"\\u{ord(odd):04x}" not in rendered, f"{name} hides {odd!r} in JSON"
        if name != "latex":  # where it vanishes: control characters have no pictures there
            assert re.search("good.film", rendered)


@pytest.mark.parametrize("word", NEEDED)
@pytest.mark.parametrize("name", [n for n in RENDERERS if n not in ("figure", "bars", "latex")])
def test_what_letters_need_stays(name: str, word: str) -> None:
    assert word in shown(RENDERERS[name](explained([word, "end"])))


def test_a_text_keeps_its_direction() -> None:
    """What stands for a mark must not be a Latin letter: the first letter says from where a line is read."""
    e = make([1.0, 0.5], ["\u202bفيلم", "جميل\u202c"], "\u202bفيلم جميل\u202c")
    assert re.search(r'dir="auto"><mark[^>]*>⇄فيلم</mark> <mark[^>]*>جميل⇄</mark>', e.to_html())
    places = {t.get_text(): t.get_position()[0] for t in e.figure("text").axes[0].texts}
    assert places["⇄فيلم"] > places["جميل⇄"]


def test_line_ends_of_windows_are_line_ends() -> None:
    assert visible("one\r\ntwo\rthree") == "one\ntwo␍three"


def test_json_is_what_it_was() -> None:
    text = "".join([*CONTROLS, *TURNS, "é🎬\ud800"])
    assert json.loads(as_json({"text": text})) == json.loads(as_json({"text": text}, ascii=True)) == {"text": text}
    assert not set(CONTROLS + TURNS + ["\ud800"]) & set(as_json(text))
    assert as_json(text, ascii=True).isascii()
    with pytest.raises(ValueError, match="JSON compliant"):
        as_json(float("nan"))
