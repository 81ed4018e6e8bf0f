"""Chromium looking at a server on a free port of this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import whence
from tests.browser import FLAGS, need_chromium
from tests.serve.conftest import listening

PHONE = {"width": 360, "height": 740}
DESK = {"width": 1240, "height": 900}
TOKEN = "a-token-for-tests"

expect.set_options(timeout=60_000)  # machines with more to do than cores


@pytest.fixture(scope="session")
def site(embedded: dict[str, whence.Explainer]) -> Iterator[str]:
    with listening(embedded, timeout=120) as address:
        yield address


@pytest.fixture(scope="session")
def guarded_site(embedded: dict[str, whence.Explainer]) -> Iterator[str]:
    with listening({"sentiment": embedded["sentiment"]}, token=TOKEN) as address:
        yield address


@pytest.fixture(scope="session")
def launched() -> Iterator[Callable[[str], Browser]]:
    """Chromium, started once and only where a test asks for it."""
    with sync_playwright() as playwright:
        running: list[Browser] = []

        def browser(path: str) -> Browser:
            if not running:
                running.append(playwright.chromium.launch(executable_path=path, args=FLAGS))
            return running[0]

        yield browser
        for one in running:
            one.close()


class Visits:
    """Opens the page; afterwards tells whether the console stayed clean and every request stayed at the origin."""

    def __init__(self, browser: Browser, site: str) -> None:
        self.browser, self.site = browser, site
        self.refusals: set[int] = set()  # statuses that the test itself provokes; Chromium logs each as an error
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._contexts: list[Any] = []

    def __call__(self, fragment: str = "", *, site: str | None = None, phone: bool = False, **context: Any) -> Page:
        own = self.browser.new_context(
            viewport=PHONE if phone else DESK, permissions=["clipboard-read", "clipboard-write"], **context
        )
        self._contexts.append(own)
        origin = site or self.site
        own.set_default_timeout(60_000)
        page = own.new_page()
        page.on("console", lambda said: self._heard(said.type, said.text))
        page.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))
        page.on("request", lambda request: self._sent(request.url, origin))
        page.goto(f"{origin}/{fragment}")
        return page

    def _heard(self, kind: str, text: str) -> None:
        refused = re.search(r"status of (\d+)", text)
        if kind in ("error", "warning") and not (refused and int(refused[1]) in self.refusals):
            self.problems.append(f"console {kind}: {text}")

    def _sent(self, url: str, origin: str) -> None:
        self.requests.append(url)
        if not url.startswith((origin + "/", f"blob:{origin}/", "data:")):
            self.problems.append(f"a request left the origin: {url}")

    def close(self) -> None:
        for context in self._contexts:
            context.close()
        assert not self.problems, self.problems


@pytest.fixture
def visit(site: str, launched: Callable[[str], Browser], capsys: pytest.CaptureFixture[str]) -> Iterator[Visits]:
    visits = Visits(launched(need_chromium("the page of whence serve was", capsys)), site)
    yield visits
    visits.close()
