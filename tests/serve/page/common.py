"""What the page must show, computed in Python with the renderers' own rules."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import numpy as np
from playwright.sync_api import Page, expect

import whence
from whence.render.html import step_class
from whence.render.scale import is_signed, normalised, strengths

TEXT = "Despite a slow start and a silly subplot, this courtroom drama grips like a vice; I would not have missed it."
SHORT = "it 's a charming and often affecting journey ."  # for the hiding game, which is some hundreds of passes
Marks = list[tuple[str, str]]


def fragment(**state: Any) -> str:
    """An address for the page; the layers' tab unless another is named: the hiding game is many passes."""
    return "#" + urlencode({"tab": "layers", **state})


def word_marks(e: whence.Explanation, layer: int | None = None) -> Marks:
    """(text, class) of every word: a word's score is the sum of its pieces', the strongest is 1; layers share one scale."""
    words = e.words()
    rows = e.scores[None] if layer is None else e.layers
    assert rows is not None
    grid = normalised(np.stack([rows[:, list(w.tokens)].sum(1) for w in words], axis=1))  # (layers, words)
    row = grid[0 if layer is None else layer]
    return [(w.text, step_class(float(s), is_signed(e))) for w, s in zip(words, row, strict=True)]


def piece_marks(e: whence.Explanation) -> Marks:
    found = strengths(e.scores, e.special)
    return [
        (t, step_class(float(s), is_signed(e))) for t, s, x in zip(e.tokens, found, e.special, strict=True) if not x
    ]


def shown_marks(page: Page, within: str = "#highlight") -> Marks:
    """(text, class) of every mark on the page; `gone` is left out, it says that a word is hidden."""
    return [
        (text, " ".join(name for name in names.split() if name != "gone"))
        for text, names in page.locator(f"{within} mark").evaluate_all(
            "all => all.map(m => [m.textContent, m.className])"
        )
    ]


def settled(page: Page) -> None:
    """Waits until the explanation is drawn."""
    expect(page.locator("#explanation")).to_be_visible()
    expect(page.locator("#explanation")).to_have_attribute("aria-busy", "false")


def word(page: Page, text: str) -> Any:
    return page.locator("#highlight mark").filter(has_text=text).first


def no_sideways_scroll(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))
