"""The site is built with warnings as errors, loads nothing from elsewhere, and its pages link as they would on GitHub."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

PAGES = sorted((ROOT / "docs").rglob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    for page in PAGES:
        made = page.relative_to(ROOT / "docs").with_suffix(".html")
        made = made.with_name("index.html") if made.stem == "README" else made
        text = (site / made).read_text(encoding="utf-8")
        assert "md-nav__link--active" in text, f"{page.name} is not in the navigation"


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]*\ssrc(?:set)?=\"(https?:[^\"]*)", text)
        loaded += re.findall(r"<link[^>]*rel=\"(?:stylesheet|preconnect|preload)\"[^>]*href=\"(https?:[^\"]*)", text)
        assert not loaded, f"{page.name} loads {loaded}"


def test_the_interface_is_documented(site: Path) -> None:
    text = (site / "reference" / "whence.html").read_text(encoding="utf-8")
    for name in ("whence.load.load", "whence.explainer.Explainer.explain", "whence.explanation.Explanation.top"):
        assert f'id="{name}"' in text
    assert "Parameters" in text


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda p: str(p.relative_to(ROOT)))
def test_links_stay_in_the_repository(page: Path) -> None:
    """What MkDocs does not look at: links as a reader of the files themselves follows them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"https?:|#", link):
            assert (page.parent / link.partition("#")[0]).exists(), f"{page.name}: {link}"
