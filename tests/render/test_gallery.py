"""The gallery: its page names every picture, every picture is there, and together they stay small."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GALLERY = Path(__file__).parents[2] / "docs" / "gallery"
PAGE = (GALLERY / "README.md").read_text(encoding="utf-8")
SHOWN = re.findall(r'(?:src|srcset)="([^"]+)"|\]\(([^):]+)\)', PAGE)
NAMES = sorted({a or b for a, b in SHOWN})


@pytest.mark.parametrize("name", NAMES)
def test_every_picture_is_there(name: str) -> None:
    data = (GALLERY / name).read_bytes()
    assert len(data) > 500
    if not name.endswith(".png"):
        text = data.decode()
        assert not re.search(r"(src|href)=.https?:|url\(https?:|@import", text), "pages load nothing"


def test_every_file_is_shown_under_a_command() -> None:
    files = {f.name for f in GALLERY.iterdir() if f.is_file()} - {"README.md", "make.py", "page.py"}
    assert files == set(NAMES)
    shown = PAGE.count("### ") - PAGE.count("### The page")  # whose pictures share one command
    assert shown == len(re.findall(r"^```(?:console|py)$", PAGE, flags=re.MULTILINE)) - 2  # and LaTeX


def test_it_stays_small() -> None:
    assert sum(f.stat().st_size for f in GALLERY.iterdir() if f.is_file()) < 3e6
