"""Where Chromium is, and what is said where it is not: tests in a real browser skip with a notice that nobody overlooks."""

from __future__ import annotations

import shutil

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# quiet: no sandbox (tests may run as root), no GPU, and nothing that asks anybody for anything
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()


def need_chromium(what: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Chromium's path; without one the test skips, and says aloud what was not tried."""
    if CHROMIUM is None:
        with capsys.disabled():
            print(f"\nNOTICE: no Chromium found: {what} not tried in a browser (apt-get install chromium).")
        pytest.skip("no Chromium found")
    return CHROMIUM
