"""Odd and hostile texts through the page: a right answer or a sentence, never a broken page, and texts stay texts."""

from __future__ import annotations

import random
import re
import unicodedata
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import whence
from tests.render.common import HOSTILE
from tests.serve.page.common import shown_marks, word_marks
from tests.serve.page.conftest import Visits
from tests.test_bad_input import BAD_TEXTS, ODD_TEXTS
from whence.apps.serve.app import STATIC

Explainers = dict[str, whence.Explainer]

TYPED = [
    *ODD_TEXTS,
    HOSTILE,
    "<img src=x onerror=document.title='owned'> good </script><script>document.title='owned'</script>",
    "good \u202eright to left override\u202c and \u2066isolated\u2069",
    "javascript:alert(1) {{constructor}} ${7*7} %00 ..\\..\\",
    "line one\r\nline two\u2028line three\ttab",
    "e" + "\u0301" * 200,
    " ".join(f"word{i}" for i in range(800)),
]


def type_in(page: Page, text: str) -> str:
    """Put a text into the field as a script would, and wait for what the page makes of it; the text as the page has it."""
    with page.expect_response("**/api/explain"):
        page.locator("#input-text").evaluate(
            "(area, text) => { area.value = text; area.dispatchEvent(new Event('input')); }", text
        )
    expect(page.locator("#explanation")).to_have_attribute("aria-busy", "false")
    return str(page.locator("#input-text").input_value())


@pytest.mark.filterwarnings("ignore:.*were longer than")
def test_odd_texts_get_a_right_answer(visit: Visits, embedded: Explainers) -> None:
    page = visit("#tab=layers")
    expect(page.locator("#input-text")).to_be_visible()
    for text in TYPED:
        given = type_in(page, text)
        expect(page.locator("#explanation")).to_be_visible()
        expected = word_marks(embedded["sentiment"].explain(given, on_long="truncate", progress=False))
        assert [m for m in shown_marks(page) if m[0]] == expected, ascii(text[:80])
        assert page.title() == "whence"
        assert page.locator("#highlight :not(div, mark, bdi, span)").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), ascii(text[:80])


def test_bad_texts_get_a_sentence(visit: Visits) -> None:
    visit.refusals.add(422)
    page = visit("#tab=layers")
    expect(page.locator("#input-text")).to_be_visible()
    for text, says in BAD_TEXTS:
        page.locator("#input-text").evaluate(
            "(area, text) => { area.value = text; area.dispatchEvent(new Event('input')); }", text
        )
        if text.strip(" \n\t"):
            expect(page.get_by_role("alert")).to_contain_text(re.compile(says))
        else:
            expect(page.locator("#empty")).to_be_visible()
        type_in(page, "good")
        expect(page.get_by_role("alert")).to_be_hidden()


@pytest.mark.filterwarnings("ignore:.*were longer than")
def test_a_thousand_random_characters_at_a_time(visit: Visits) -> None:
    """Any characters at all, from all planes, with halves of pairs among them."""
    visit.refusals.add(422)
    page, rng = visit("#tab=layers"), random.Random(11)
    expect(page.locator("#input-text")).to_be_visible()
    for _ in range(8):
        type_in(page, "".join(map(odd_character, [rng] * rng.choice([1, 5, 60, 1000]))))
        shown = page.locator("#explanation").is_visible(), page.get_by_role("alert").is_visible()
        assert any(shown)
        if shown[1]:
            assert re.search(r"empty|surrogate|nothing to explain", page.get_by_role("alert").text_content() or "")


def odd_character(rng: random.Random) -> str:
    character = chr(rng.choice([rng.randrange(128), rng.randrange(0x3000), rng.randrange(0x11_0000)]))
    return character if unicodedata.category(character) != "Cs" or rng.random() < 0.02 else " "


@pytest.mark.parametrize("file", sorted(STATIC.iterdir()), ids=lambda file: file.name)
def test_files_hold_no_inline_code_and_load_nothing_from_elsewhere(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
    assert not re.search(r"(?<!xmlns=\")(?<!SVG = \")https?://", text)
    if file.suffix == ".html":
        assert not re.search(r"\sstyle=|\son\w+=|<style|<script(?![^>]*\ssrc=)", text)
