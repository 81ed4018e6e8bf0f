"""Looking closer, in real Chromium: hiding words, layers, comparing, downloads, keyboard."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

import whence
from tests.serve.page.common import SHORT, TEXT, fragment, settled, shown_marks, word, word_marks
from tests.serve.page.conftest import Visits
from whence.render.html import step_class
from whence.render.scale import normalised
from whence.render.spans import percent

Explainers = dict[str, whence.Explainer]


def asked(page: Page, path: str, **body: object) -> dict[str, Any]:
    """What the server answers, asked beside the page (about SHORT, unless another text is given)."""
    answer = page.request.post(f"{page.url.split('#')[0]}api/{path}", data={"text": SHORT, **body})
    assert answer.ok
    return dict(answer.json())


def test_hiding_words_moves_the_probability(visit: Visits) -> None:
    page = visit(fragment(tab="hide", text=TEXT))
    settled(page)
    expect(page.locator("#panel-hide")).to_contain_text("Click a word in the text")
    expect(page.locator("#panel-hide svg.curve")).to_be_visible()
    whole = shown_marks(page)
    word(page, "not").click()
    expect(page.locator("mark.gone")).to_have_text("not")
    number = int(word(page, "not").get_attribute("data-word") or -1)
    now, before = asked(page, "predict", text=TEXT, hidden=[number]), asked(page, "predict", text=TEXT)
    assert percent(now["target_probability"]) != percent(before["target_probability"]), "a word that matters"
    expect(page.locator("#moved")).to_have_text(percent(now["target_probability"]))
    expect(page.locator("#answer")).to_contain_text(f"{percent(now['probability'])} with 1 word hidden")
    expect(page.locator("svg.curve .now")).to_have_count(1)
    expect(page.locator(".bars .was")).to_have_count(2)
    assert shown_marks(page) == whole, "the explanation is that of the whole text"
    word(page, "not").click()
    expect(page.locator("mark.gone")).to_have_count(0)
    expect(page.locator("#panel-hide")).to_contain_text("Click a word in the text")
    expect(page.locator("#answer")).to_contain_text(percent(before["probability"]))


def test_a_contrast_is_named_with_its_share(visit: Visits) -> None:
    """The chance is that of the target among the two, which no bar of the prediction shows."""
    text = "The keys to the old cabinet [MASK] on the table."
    page = visit(fragment(tab="hide", model="masked-lm", text=text, target="were", contrast="was"))
    settled(page)
    share = asked(page, "predict", model="masked-lm", text=text, target="were", contrast="was")["target_probability"]
    expect(page.locator("#panel-hide .game")).to_contain_text(f"were rather than was {percent(share)}")
    expect(page.locator("svg.curve")).to_contain_text("probability of were rather than was")
    expect(page.locator(".curve-key")).not_to_contain_text("the words you hid")
    word(page, "keys").click()
    expect(page.locator(".curve-key")).to_contain_text("the words you hid")


def test_the_strongest_words_go_first_and_all_come_back(visit: Visits) -> None:
    page = visit(fragment(tab="hide", text=SHORT, method="attcat"))
    settled(page)
    order = [str(number) for number in asked(page, "evaluate-text", method="attcat")["order"]]
    following = page.get_by_role("button", name="Hide the next strongest word")
    for count in (1, 2, 3):
        following.click()
        expect(page.locator("mark.gone")).to_have_count(count)
        expect(page.locator("#panel-hide")).to_contain_text(f"{count} of {len(order)} words hidden")
    gone = page.locator("mark.gone").evaluate_all("all => all.map(m => m.dataset.word)")
    assert sorted(gone) == sorted(order[:3])
    page.get_by_role("button", name="Show all words").click()
    expect(page.locator("mark.gone")).to_have_count(0)


def test_the_curve_is_the_games(visit: Visits) -> None:
    page = visit(fragment(tab="hide", text=SHORT, method="attcat"))
    settled(page)
    game = asked(page, "evaluate-text", method="attcat")
    page.get_by_text("The numbers").click()

    def column(number: int) -> list[str]:
        return page.locator(f".numbers tbody tr td:nth-of-type({number})").all_text_contents()

    method, random = game["method"], game["random"]
    assert column(2) == [percent(p) for p in method["hiding"]]
    assert column(3) == [percent(p) for p in random["hiding"]]
    points = page.locator("svg.curve polyline.method").get_attribute("points") or ""
    assert len(points.split()) == len(game["fractions"])
    heights = [float(p.split(",")[1]) for p in points.split()]
    assert np.corrcoef(heights, method["hiding"])[0, 1] < -0.999, "more probable is higher up"
    page.get_by_label("Show strongest first").check()
    expect(page.locator("svg.curve")).to_have_attribute("aria-label", re.compile("words shown"))
    assert column(2) == [percent(p) for p in method["revealing"]]


@pytest.mark.parametrize("method", ["random", "attnlrp"])
def test_the_verdict_is_the_tests(visit: Visits, method: str) -> None:
    page = visit(fragment(tab="hide", text=TEXT, method=method))
    settled(page)
    game = asked(page, "evaluate-text", text=TEXT, method=method)["method"]
    says = {"better than chance": "Better than chance: ", "cannot tell": "Cannot tell: ", "worse": "Worse: "}
    expect(page.locator("#panel-hide .note")).to_contain_text(says[game["hiding_verdict"]])
    page.get_by_label("Show strongest first").check()
    expect(page.locator("#panel-hide .note")).to_contain_text(says[game["revealing_verdict"]])


def test_layers(visit: Visits, embedded: Explainers) -> None:
    page, e = visit(fragment(text=TEXT, method="attcat")), embedded["sentiment"].explain(TEXT, "attcat")
    settled(page)
    assert e.layers is not None
    slider = page.get_by_label("Show in the text")
    slider.focus()
    for layer in reversed(range(6)):
        page.keyboard.press("ArrowLeft")
        expect(page.locator("output")).to_have_text(f"layer {layer + 1} of 6")
        expect(page.get_by_label("Show in the text")).to_be_focused()
        assert shown_marks(page) == word_marks(e, layer)
    page.get_by_role("button", name="sum").click()
    expect(page.locator("output")).to_have_text("all layers")
    assert shown_marks(page) == word_marks(e)
    grid = normalised(np.stack([e.layers[:, list(w.tokens)].sum(1) for w in e.words()], axis=1))
    for layer in range(6):
        drawn = page.locator(f"tr[data-layer='{layer}'] td").evaluate_all("all => all.map(c => c.className)")
        assert drawn == [step_class(float(s), True) for s in grid[layer]]
    minus = page.locator(".heat td", has_text="−").count()
    assert minus > 0


def test_methods_without_layers_name_those_that_have_them(visit: Visits) -> None:
    page = visit(fragment(text=TEXT, method="gradient"))
    settled(page)
    expect(page.locator("#panel-layers")).to_contain_text("gradient gives one score per token")
    page.locator("#panel-layers").get_by_role("button", name="attcat", exact=True).click()
    expect(page.locator(".heat")).to_be_visible()
    expect(page.get_by_label("Method")).to_have_value("attcat")


def test_compare_up_to_six(visit: Visits, embedded: Explainers) -> None:
    page = visit(fragment(text=TEXT, tab="compare", compare="attnlrp,alti"))
    settled(page)
    expect(page.locator(".compared tr")).to_have_count(2)
    page.locator("#panel-compare summary").click()
    more = ["gae", "rollout", "attcat", "gradient"]
    for name in more:
        page.locator(f".choice input[value={name}]").check()
    expect(page.locator(".compared tr")).to_have_count(6)
    expect(page.locator(".choice input[value=cat]")).to_be_disabled()
    names = ["attnlrp", "alti", *more]
    found = embedded["sentiment"].explain(TEXT, names)
    for i, name in enumerate(names):
        row = f".compared tr:nth-child({i + 1})"
        expect(page.locator(f"{row} th")).to_have_text(name)
        assert shown_marks(page, row) == word_marks(found[name])
    page.locator(".choice input[value=gae]").uncheck()
    expect(page.locator(".compared tr")).to_have_count(5)
    expect(page.locator(".choice input[value=cat]")).to_be_enabled()
    page.locator(".compared").get_by_role("button", name="alti").click()
    expect(page.get_by_label("Method")).to_have_value("alti")
    expect(page.locator("#head")).to_contain_text("alti")


@pytest.mark.parametrize("tab", ["hide", "layers", "compare"])
def test_downloads(visit: Visits, embedded: Explainers, tab: str, tmp_path: Path) -> None:
    page = visit(fragment(text=SHORT, method="attcat", tab=tab, compare="attcat,alti"), color_scheme="dark")
    settled(page)
    saved = {}
    for name in ("PNG", "SVG", "HTML", "JSON"):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=name, exact=True).click()
        file = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(file)
        assert file.suffix == f".{name.lower()}"
        saved[name] = file.read_bytes()
    assert saved["PNG"].startswith(b"\x89PNG\r\n")
    assert b"<svg" in saved["SVG"]
    assert "charming" in saved["HTML"].decode()
    found = json.loads(saved["JSON"])
    e = embedded["sentiment"].explain(SHORT, ["attcat", "alti"])
    stored = found["attcat"] if tab == "compare" else found
    assert whence.Explanation.from_dict(stored).tokens == e["attcat"].tokens
    assert np.allclose(stored["scores"], e["attcat"].scores, atol=1e-6)


def test_everything_by_keyboard(visit: Visits) -> None:
    page = visit(fragment(text=TEXT))
    settled(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the explanation")).to_be_focused()
    page.keyboard.press("Enter")
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "MARK":
            break
    marks = page.locator("#highlight mark")
    expect(marks.nth(0)).to_be_focused()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "focus can be seen"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(marks.nth(2)).to_be_focused()
    page.keyboard.press("Enter")
    expect(marks.nth(2)).to_have_attribute("aria-pressed", "true")
    expect(marks.nth(2)).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.press(" ")
    expect(page.locator("mark.gone")).to_have_count(2)
    page.keyboard.press("Home")
    expect(marks.nth(0)).to_be_focused()
    page.get_by_role("tab", name="Layers").focus()
    page.keyboard.press("End")
    expect(page.get_by_role("tabpanel", name="Compare")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("tab", name="Layers")).to_be_focused()
    expect(page.get_by_role("tabpanel", name="Layers")).to_be_visible()
