"""Photograph the page of `whence serve` in light, dark and on a phone; `make gallery` does it with all the rest.

python docs/gallery/page.py     # these pictures alone
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Browser, sync_playwright

TEXT = "Despite a slow start and a silly subplot, this courtroom drama grips like a vice; I would not have missed it."
DESK, PHONE = {"width": 1180, "height": 800}, {"width": 360, "height": 740}
FLAGS = "--no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update".split()


@dataclass(frozen=True)
class View:
    """The page in one state; `ready` is what must be there before the photograph."""

    stem: str
    title: str
    says: str
    state: dict[str, str]
    ready: str
    phone: bool = False


VIEWS = [
    View(
        "page",
        "The page: hide words",
        "Two words are hidden; the curve says whether the method's order beats a random one.",
        {"text": TEXT, "hidden": "18,20"},
        "svg.curve .now",
    ),
    View(
        "page-layers",
        "The page: layers",
        "The slider shows one layer's scores in the text; the heat map shows them all.",
        {"text": TEXT, "method": "attcat", "tab": "layers", "layer": "3"},
        ".heat",
    ),
    View(
        "page-compare",
        "The page: methods in rows",
        "Up to six, from one pass.",
        {"text": TEXT, "tab": "compare", "compare": "attnlrp,attcat,alti,gae,rollout,gradient"},
        ".compared tr:nth-child(6)",
    ),
    View(
        "page-phone",
        "The page on a phone",
        "The same at 360 pixels.",
        {"text": TEXT, "hidden": "18,20"},
        "svg.curve .now",
        True,
    ),
]


@contextmanager
def serving() -> Iterator[str]:
    """The address of `whence serve` on any free port."""
    command = [sys.executable, "-m", "whence", "serve", "--model", "sentiment", "--port", "0", "--timeout", "300"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if found := re.search(r"at (http://\S+/)", line):
                    yield found[1]
                    break
        finally:
            process.terminate()


def photograph_page(chromium: str, folder: Path) -> list[Path]:
    """Every view on light and on dark paper."""
    with serving() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        made = [photograph(browser, address, view, scheme, folder) for view in VIEWS for scheme in ("light", "dark")]
        browser.close()
    return made


def photograph(browser: Browser, address: str, view: View, scheme: str, folder: Path) -> Path:
    size, scale = (PHONE, 2) if view.phone else (DESK, 1)
    page = browser.new_page(viewport=size, color_scheme=scheme, device_scale_factor=scale)  # type: ignore[arg-type]
    page.goto(f"{address}#{urlencode(view.state)}")
    page.locator(view.ready).wait_for(timeout=120_000)
    page.wait_for_timeout(400)  # bars have come to rest
    file = folder / f"{view.stem}{'-dark' if scheme == 'dark' else ''}.png"
    page.screenshot(path=file, full_page=True)
    page.close()
    return file


def page_section() -> list[str]:
    """The gallery's lines about the page."""
    lines = [
        "",
        "## A page to try things",
        "",
        "Type, switch, hide words, compare; nothing leaves the machine.",
        "",
        "```console",
        "$ whence serve",
        "```",
    ]
    for view in VIEWS:
        width = ' width="360"' if view.phone else ""
        picture = (
            f'<picture><source media="(prefers-color-scheme: dark)" srcset="{view.stem}-dark.png">'
            f'<img src="{view.stem}.png" alt="{view.title}"{width}></picture>'
        )
        lines += ["", f"### {view.title}", "", view.says, "", picture]
    return lines


if __name__ == "__main__":
    import make

    if make.CHROMIUM is None:
        sys.exit("no Chromium: apt-get install chromium.")
    for photo in photograph_page(make.CHROMIUM, make.HERE):
        make.shrink(photo)
    (make.HERE / "README.md").write_text(make.readme(), encoding="utf-8")
