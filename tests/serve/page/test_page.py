"""The page in real Chromium: asking, seeing, switching. A console error or a request to anywhere else fails any of these."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Route, expect

import whence
from tests.serve.page.common import TEXT, fragment, no_sideways_scroll, piece_marks, settled, shown_marks, word_marks
from tests.serve.page.conftest import TOKEN, Visits
from whence.render.spans import percent

Explainers = dict[str, whence.Explainer]


def test_the_prediction_comes_when_typing_stops(visit: Visits, embedded: Explainers) -> None:
    page = visit(fragment())
    expect(page.locator("#empty")).to_contain_text("start from one of the examples")
    page.clock.install(time=0)
    page.clock.pause_at(1000)  # time stands still: a slow machine types no slower
    page.get_by_label("Text", exact=True).press_sequentially("a charming journey")
    page.clock.run_for(290)
    assert not [url for url in visit.requests if "/api/predict" in url], "not while typing"
    page.clock.run_for(20)
    page.clock.resume()
    expect(page.locator("#answer")).to_contain_text("positive")
    settled(page)
    predicted = embedded["sentiment"].predict("a charming journey")
    expect(page.locator("#answer")).to_contain_text(percent(predicted.probability))
    assert sum("/api/predict" in url for url in visit.requests) == 1
    page.get_by_label("Text", exact=True).fill("")
    expect(page.locator("#empty")).to_be_visible()
    expect(page.locator("#explanation")).to_be_hidden()


def test_stale_answers_are_dropped(visit: Visits) -> None:
    page = visit(fragment())
    held: list[Route] = []

    def hold_the_first(route: Route) -> None:
        if "dull" in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    page.route("**/api/predict", hold_the_first)
    field = page.get_by_label("Text", exact=True)
    with page.expect_request("**/api/predict"):
        field.fill("dull, and far too long")
    field.fill("a charming journey")
    expect(page.locator("#answer")).to_contain_text("positive")
    assert len(held) == 1
    old = {"label": "negative", "probability": 1.0, "probabilities": [["negative", 1.0]], "truncated": False}
    held[0].fulfill(json=old)
    page.wait_for_timeout(200)
    expect(page.locator("#answer")).to_contain_text("positive")


def test_a_stale_curve_is_never_drawn_with_a_newer_text(visit: Visits) -> None:
    page = visit(fragment(tab="hide"))
    held: dict[str, list[Route]] = {"evaluate-text": [], "explain": []}

    def hold(route: Route) -> None:
        name, old = route.request.url.rsplit("/", 1)[1], "dull" in (route.request.post_data or "")
        if old == (name == "evaluate-text"):  # the old text's curve, the new text's explanation
            held[name].append(route)
        else:
            route.continue_()

    page.route(re.compile("api/(evaluate-text|explain)$"), hold)
    field = page.get_by_label("Text", exact=True)
    with page.expect_request("**/api/evaluate-text"):
        field.fill("dull, and far too long")
    with page.expect_request("**/api/explain"):
        field.fill("a charming journey")
    curve = {"hiding": [1.0, 0.0], "revealing": [0.0, 1.0], "hiding_auc": 0.5, "revealing_auc": 0.5}
    band = {name: [0.0, 1.0] for name in ("low", "high", "revealing_low", "revealing_high")}
    old = {"target": "stale", "fractions": [0.0, 1.0], "counts": [0, 5], "order": [0], "method": curve}
    held["evaluate-text"][0].fulfill(json={**old, "random": {**curve, **band, "draws": 1}})
    page.wait_for_timeout(200)
    held["explain"][0].continue_()
    expect(page.locator("svg.curve")).to_have_attribute("aria-label", re.compile("probability of positive"))


def test_examples_fill_the_form(visit: Visits) -> None:
    page = visit(fragment())
    page.get_by_role("group", name="Examples").get_by_role("button").first.click()
    settled(page)
    assert page.get_by_label("Text", exact=True).input_value().startswith("Despite a slow start")
    assert shown_marks(page)


@pytest.mark.parametrize("method", ["attnlrp", "alti", "gradient"])
def test_words_and_pieces_are_coloured_as_everywhere(visit: Visits, embedded: Explainers, method: str) -> None:
    page = visit(fragment(text=TEXT, method=method))
    settled(page)
    e = embedded["sentiment"].explain(TEXT, method)
    assert shown_marks(page) == word_marks(e)
    assert page.locator("#highlight .text").text_content() == TEXT
    expect(page.locator("#legend")).to_contain_text("against" if method == "attnlrp" else "more")
    page.get_by_label("Pieces", exact=True).check()
    assert shown_marks(page) == piece_marks(e)
    expect(page.locator("#highlight .special").first).to_have_text("[CLS]")
    page.get_by_label("Words", exact=True).check()
    assert shown_marks(page) == word_marks(e)


def test_colours_are_those_of_the_scale(visit: Visits) -> None:
    colour = "getComputedStyle(document.querySelector('#highlight .a20')).backgroundColor"
    for scheme, against in (("light", "rgb(178, 24, 43)"), ("dark", "rgb(255, 116, 116)")):
        page = visit(fragment(text=TEXT), color_scheme=scheme)
        settled(page)
        assert page.evaluate(colour) == against
    line = page.evaluate("getComputedStyle(document.querySelector('#highlight .a20')).textDecorationLine")
    assert line == "underline"


def test_method_target_and_contrast_switch(visit: Visits, embedded: Explainers) -> None:
    page, model = visit(fragment(text=TEXT)), embedded["sentiment"]
    settled(page)
    page.get_by_label("Method").select_option("attcat")
    expect(page.locator("#head")).to_contain_text("attcat")
    assert shown_marks(page) == word_marks(model.explain(TEXT, "attcat"))
    page.get_by_label("Target").select_option("positive")
    expect(page.locator("#head")).to_contain_text("positive 23.3% (predicted: negative)")
    assert shown_marks(page) == word_marks(model.explain(TEXT, "attcat", "positive"))
    page.get_by_label("Rather than").select_option("negative")
    expect(page.locator("#head")).to_contain_text("positive rather than negative")
    assert shown_marks(page) == word_marks(model.explain(TEXT, "attcat", "positive", contrast="negative"))


def test_a_word_tells_its_score_and_rank(visit: Visits, embedded: Explainers) -> None:
    page = visit(fragment(text=TEXT))
    settled(page)
    best = embedded["sentiment"].explain(TEXT).top(1)[0]
    mark = page.locator("#highlight mark").filter(has_text=re.compile(f"^{best.text}$"))
    mark.hover()
    expect(page.locator("#detail")).to_contain_text(f"{best.text} ")
    expect(page.locator("#detail")).to_contain_text("rank 1 of 24")
    assert "rank 1 of 24" in (mark.get_attribute("aria-label") or "")


@pytest.mark.parametrize(
    ("model", "fields", "item"),
    [
        ("nli", {"Premise": "A man is sleeping on a bench.", "Hypothesis": "Nobody is awake."}, None),
        (
            "qa",
            {"Question": "Who wrote it?", "Context": "It was written by Anna Smith in Rome."},
            {"question": "Who wrote it?", "context": "It was written by Anna Smith in Rome."},
        ),
        ("masked-lm", {"Sentence with [MASK]": "The keys to the old cabinet [MASK] on the table."}, None),
        ("causal-lm", {"Prompt": "He opened the"}, None),
    ],
)
def test_every_task(visit: Visits, embedded: Explainers, model: str, fields: dict[str, str], item: object) -> None:
    page = visit(fragment(tab="hide"))
    page.get_by_label("Model").select_option(model)
    for label, text in fields.items():
        page.get_by_label(label, exact=True).fill(text)
    settled(page)
    texts = tuple(fields.values())
    e = embedded[model].explain(item or (texts if len(texts) > 1 else texts[0]))
    expect(page.locator("#answer .label")).to_have_text((e.prediction or "").strip().removeprefix("##"))
    assert shown_marks(page) == word_marks(e)
    assert [t.text_content() for t in page.locator("#highlight .text").all()] == list(texts)
    expect(page.locator("#panel-hide svg.curve .line")).to_have_count(2)


def test_two_texts_for_models_that_may_read_two(visit: Visits) -> None:
    page = visit(fragment(text="a charming journey"))
    page.get_by_role("button", name="Add a second text").click()
    page.get_by_label("Second text").fill("dull, and far too long")
    expect(page.locator("#highlight .part")).to_have_text(["first", "second"])


def test_masks_words_and_continuations(visit: Visits, embedded: Explainers) -> None:
    page = visit(fragment(model="masked-lm"))
    page.get_by_label("Sentence with [MASK]").fill("The keys to the old cabinet on the table.")
    page.get_by_label("Sentence with [MASK]").evaluate("area => area.setSelectionRange(28, 28)")
    visit.refusals.add(422)  # no [MASK] yet
    expect(page.get_by_role("alert")).to_contain_text("[MASK]")
    page.get_by_role("button", name="Insert [MASK]").click()
    settled(page)
    page.get_by_label("Target").fill("were")
    page.get_by_label("Rather than").fill("was")
    page.get_by_label("Rather than").press("Enter")
    expect(page.locator("#head")).to_contain_text("were rather than was")
    page.get_by_label("Model").select_option("causal-lm")
    page.get_by_label("Prompt").fill("He opened the")
    page.get_by_label("Continuation").fill(" old door")
    expect(page.locator("#head")).to_contain_text("old door")
    expect(page.get_by_label("Target")).to_be_hidden()
    e = embedded["causal-lm"].explain("He opened the", continuation=" old door")
    assert shown_marks(page) == word_marks(e)


def test_a_link_restores_everything_and_the_text_stays_out_of_requests(visit: Visits) -> None:
    page = visit(fragment())
    page.get_by_label("Text", exact=True).fill(TEXT)
    settled(page)
    page.get_by_label("Method").select_option("attcat")
    page.get_by_label("Target").select_option("positive")
    page.get_by_label("Pieces", exact=True).check()
    page.get_by_role("tab", name="Layers").click()
    page.locator("tr[data-layer='3'] th button").click()
    page.locator("#highlight mark").filter(has_text="silly").click()
    expect(page.locator("#answer")).to_contain_text("1 word hidden")
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator("#said")).to_contain_text("Link copied")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.url
    settled(page)  # the prediction may come before the explanation
    before = shown_marks(page)

    again = visit(link.removeprefix(visit.site + "/"))
    settled(again)
    expect(again.locator("#answer")).to_contain_text("1 word hidden")
    assert again.get_by_label("Text", exact=True).input_value() == TEXT
    assert again.get_by_label("Method").input_value() == "attcat"
    assert again.get_by_label("Target").input_value() == "positive"
    expect(again.get_by_role("tab", name="Layers")).to_have_attribute("aria-selected", "true")
    expect(again.locator("output")).to_have_text("layer 4 of 6")
    expect(again.locator("mark.gone")).to_have_text("silly")
    assert shown_marks(again) == before
    assert not [url for url in visit.requests if "courtroom" in url.split("#")[0]]


def test_links_with_nonsense_are_read_as_far_as_they_go(visit: Visits) -> None:
    visit.refusals.add(422)  # word 999 cannot be hidden
    page = visit("#text=a+charming+journey&model=none&method=none&tab=x&view=y&layer=99&hidden=999,a,-1&compare=no,,no")
    settled(page)
    expect(page.locator("#answer")).to_contain_text("positive")
    expect(page.locator("mark.gone")).to_have_count(0)
    page.get_by_role("tab", name="Compare").click()
    expect(page.locator("#panel-compare summary")).to_contain_text("0 of at most 6")


def test_light_and_dark_follow_the_system_until_chosen(visit: Visits) -> None:
    ground = "getComputedStyle(document.querySelector('.ask')).backgroundColor"
    light, dark = "rgb(255, 255, 255)", "rgb(22, 24, 29)"
    page = visit(color_scheme="dark")
    assert page.evaluate(ground) == dark
    page.emulate_media(color_scheme="light")
    assert page.evaluate(ground) == light
    button = page.locator("#theme")
    button.click()
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(ground) == light, "chosen: light"
    button.click()
    page.emulate_media(color_scheme="light")
    assert page.evaluate(ground) == dark, "chosen: dark"
    page.reload()
    assert page.evaluate(ground) == dark, "kept"
    expect(button).to_have_attribute("aria-label", re.compile("Colours: dark"))
    button.click()
    assert page.evaluate(ground) == light, "as the system again"


def test_right_to_left(visit: Visits, embedded: Explainers) -> None:
    text = "هذا الفيلم رائع وقد أحببته <b>كثيرا</b> charming !"
    page = visit(fragment(text=text))
    settled(page)
    assert page.evaluate("getComputedStyle(document.querySelector('#highlight .text')).direction") == "rtl"
    assert shown_marks(page) == word_marks(embedded["sentiment"].explain(text))
    marks = page.locator("#highlight mark")
    marks.first.focus()
    page.keyboard.press("ArrowLeft")
    expect(marks.nth(1)).to_be_focused()
    assert marks.nth(0).bounding_box()["x"] > marks.nth(1).bounding_box()["x"]  # type: ignore[index]


def test_a_phone(visit: Visits) -> None:
    page = visit(fragment(text=TEXT + " " + "w" * 300, method="attcat", hidden="2"), phone=True, has_touch=True)
    settled(page)
    assert no_sideways_scroll(page)
    for tab in ("Layers", "Compare", "Hide words"):
        page.get_by_role("tab", name=tab).tap()
        expect(page.locator(".panel:visible svg, .panel:visible table").first).to_be_visible()
        assert no_sideways_scroll(page), tab
    page.locator("#highlight mark").filter(has_text="silly").tap()
    expect(page.locator("#moved")).to_be_visible()
    expect(page.locator("#panel-hide .switch label").nth(1)).to_be_visible()
    # Found and measured in one step of the page: its panel is drawn anew when an answer comes, and what a locator found before
    # that has left the page, and has no place in it, by the time it is measured.
    choices = page.evaluate(
        "[...document.querySelectorAll('#panel-hide .switch label')].map((half) => half.getBoundingClientRect().y)"
    )
    assert len(choices) == 2, "both are drawn"
    assert len(set(choices)) == 1, "a switch is one thing: its halves stay side by side"
    model = page.get_by_label("Model").bounding_box()
    assert model is not None
    assert model["width"] > 200, "names of models can be read"


def test_nothing_to_choose_before_the_models_are_known(visit: Visits) -> None:
    page = visit(fragment())
    held: list[Route] = []
    page.route("**/api/models", lambda route: held.append(route))
    with page.expect_request("**/api/models"):
        page.reload()
    expect(page.locator("#about")).to_contain_text("waking up")
    for control in ("#model", "#method", "#examples", "#answer"):
        expect(page.locator(control)).to_be_hidden()
    held[0].continue_()
    for control in ("#model", "#method", "#examples", "#empty"):
        expect(page.locator(control)).to_be_visible()


def test_the_server_away_and_back(visit: Visits) -> None:
    page = visit(fragment())
    expect(page.locator("#about")).not_to_contain_text("waking")
    page.route("**/api/*", lambda route: route.abort())
    visit.problems.clear()
    page.get_by_label("Text", exact=True).fill("a charming journey")
    expect(page.get_by_role("alert")).to_contain_text("Is whence serve still running?")
    page.unroute("**/api/*")
    visit.problems[:] = [p for p in visit.problems if "ERR_FAILED" not in p]  # what the test did itself
    page.get_by_role("button", name="Try again").click()
    settled(page)
    expect(page.get_by_role("alert")).to_be_hidden()


def test_a_busy_server_says_so(visit: Visits) -> None:
    visit.refusals.add(503)
    page = visit(fragment())
    busy = {"error": "nobody was free: try again in a moment.", "kind": "unavailable"}
    page.route("**/api/explain", lambda route: route.fulfill(status=503, json=busy))
    page.get_by_label("Text", exact=True).fill("a charming journey")
    expect(page.get_by_role("alert")).to_contain_text("nobody was free")
    page.unroute("**/api/explain")
    page.route("**/api/evaluate-text", lambda route: route.fulfill(status=503, json=busy))
    page.get_by_role("button", name="Try again").click()
    settled(page)
    page.get_by_role("tab", name="Hide words").click()
    expect(page.locator("#panel-hide")).to_contain_text("nobody was free")
    page.unroute("**/api/evaluate-text")
    page.locator("#panel-hide").get_by_role("button", name="Try again").click()
    expect(page.locator("svg.curve")).to_be_visible()


def test_the_token_is_asked_for_once(visit: Visits, guarded_site: str) -> None:
    visit.refusals.add(401)
    page = visit(fragment(text="a charming journey"), site=guarded_site)
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    dialog.get_by_label("Token").fill("not-the-token")
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog).to_contain_text("did not take that token")
    dialog.get_by_label("Token").fill(TOKEN)
    dialog.get_by_label("Token").press("Enter")
    settled(page)
    page.reload()
    settled(page)
    expect(dialog).to_be_hidden()
    assert page.evaluate("localStorage.length") == 0
    assert not [url for url in visit.requests if TOKEN in url]


def test_the_printed_address_brings_its_token(visit: Visits, guarded_site: str) -> None:
    page = visit(fragment(text="a charming journey", token=TOKEN), site=guarded_site)
    settled(page)
    assert TOKEN not in page.url
    expect(page.get_by_role("dialog")).to_be_hidden()
