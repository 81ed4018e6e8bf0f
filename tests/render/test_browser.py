"""The report page in a real browser: ten thousand rows open and filter at once, typing searches, scrolling draws."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect, sync_playwright

from tests.browser import CHROMIUM, FLAGS, need_chromium
from tests.render.common import make
from whence.render.report import report_html

ROWS = 10_000


@pytest.fixture(autouse=True)
def browser(capsys: pytest.CaptureFixture[str]) -> None:
    need_chromium("the report page was", capsys)


def dom_of(file: Path, script: str, *more: str) -> str:
    """The page's DOM after `script`, which runs once the page's own script is through."""
    page = file.read_text(encoding="utf-8").replace("</body>", f"<script>{script}</script></body>")
    tried = file.with_suffix(".tried.html")
    tried.write_text(page, encoding="utf-8")
    done = subprocess.run(
        [
            str(CHROMIUM),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1200,900",
            f"--user-data-dir={file.parent / 'profile'}",
            *more,
            "--dump-dom",
            tried.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of 20 words; every hundredth says 'needle', and every fourth is negative."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefgh"), size=6)) for _ in range(500)]
    rows = []
    for i in range(ROWS):
        tokens = [words[j] for j in rng.integers(0, 500, 20)] + ["needle"] * (i % 100 == 0)
        label = "negative" if i % 4 == 0 else "positive"
        scores = rng.normal(size=len(tokens)).tolist()
        rows.append(
            make(scores, tokens, " ".join(tokens), target=label, prediction=label, probability=float(rng.random()))
        )
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(report_html(rows, title="Ten thousand"), encoding="utf-8")
    return file


def test_ten_thousand_rows_open_and_filter_within_three_seconds(report: Path) -> None:
    script = """
    const list = document.getElementById("list"), start = performance.now();
    document.getElementById("search").value = "needle";
    document.getElementById("target").value = "negative";
    document.getElementById("sort").value = "sure";
    document.getElementById("sort").dispatchEvent(new Event("change"));
    list.dataset.filter = Math.round(performance.now() - start);
    """
    dom = dom_of(report, script)
    found = {k: int(v) for k, v in re.findall(r'data-(ready|filter|shown)="(\d+)"', dom)}
    assert found["shown"] == 100
    assert "100 of 10,000 rows" in dom
    assert found["ready"] + found["filter"] < 3000, found
    chances = [float(p) for p in re.findall(r"</b> ([\d.]+)%", dom)]
    assert chances == sorted(chances, reverse=True)
    assert dom.count('class="row"') == 40, "rows far from the window are not drawn"


def test_typing_searches_and_scrolling_draws(report: Path) -> None:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.goto(report.as_uri())
        page.evaluate("scrollTo(0, 300000)")
        page.wait_for_function(
            "[...document.querySelectorAll('.number')].some(n => Number(n.textContent.slice(1)) > 1000)"
        )
        assert page.locator(".row").count() < 1000
        page.locator("#search").fill("NEEDLE")
        page.wait_for_selector('#list[data-shown="100"]')
        page.locator("#theme").click()
        expect(page.locator("body")).to_have_class(re.compile("whence (dark|light)"))
        dom = page.content()
        browser.close()
    assert re.search(r'<mark class="[fa]\d+" title="[+-]?[\d.e-]+, rank \d+ of 21">needle</mark>', dom)


def test_the_address_keeps_the_view_and_texts_stay_texts(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    hostile = make(
        [1.0], ["</script><script>document.title='owned'</script>"], "</script><script>document.title='owned'</script>"
    )
    file.write_text(report_html([hostile, make([1.0], ["other"], "other")], title="safe"), encoding="utf-8")
    dom = dom_of(file, "location.hash = 'search=owned';", "--virtual-time-budget=1000")
    assert "<title>safe</title>" in dom
    assert 'data-shown="1"' in dom
    assert "&lt;script&gt;document.title='owned'&lt;/script&gt;</mark>" in dom
