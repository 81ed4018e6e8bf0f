"""Explanations made by hand, and what every picture must keep: texts inside, labels apart."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

import whence

HOSTILE = "<script>alert(1)</script> & \"quotes\" 'x' $a$ \\b{c} %d_e^f~ \x1b[31mred\x1b[0m \x07 end"


def make(
    scores: Sequence[float], tokens: Sequence[str], text: str | None = None, method: str = "attcat", **more: Any
) -> whence.Explanation:
    """One word per token; offsets are found in the text."""
    n = len(tokens)
    offsets, at = [], 0
    for token in tokens:
        start = text.index(token, at) if text else 0
        at = start + len(token) if text else 0
        offsets.append((start, at))
    fields: dict[str, Any] = {
        "special": np.zeros(n, dtype=bool),
        "offsets": tuple(offsets),
        "word_ids": tuple(range(n)),
        "segments": (0,) * n,
        "target": "positive",
        "target_index": 1,
        "probability": 0.5,
    }
    return whence.Explanation(
        tokens=tuple(tokens),
        input_ids=tuple(range(n)),
        scores=np.array(scores, dtype=np.float32),
        method=method,
        text=text,
        **{**fields, **more},
    )


def sentence(words: int, method: str = "attcat", seed: int = 0, **more: Any) -> whence.Explanation:
    """A text of that many words with random scores, no two alike."""
    rng = np.random.default_rng(seed)
    tokens = ["".join(rng.choice(list("abcdefghijklmnop"), size=rng.integers(2, 9))) for _ in range(words)]
    scores = rng.normal(size=words) if method == "attcat" else rng.random(words)
    return make(scores.tolist(), tokens, " ".join(tokens), method, **more)


def texts_of(figure: Any) -> list[str]:
    """Every text that a figure shows."""
    return [t.get_text() for t in visible_texts(figure)]


def visible_texts(figure: Any) -> list[Any]:
    from matplotlib.text import Text

    found = []

    def walk(artist: Any) -> None:
        if not artist.get_visible():
            return
        if isinstance(artist, Text) and artist.get_text().strip():
            found.append(artist)
        for child in artist.get_children():
            walk(child)

    walk(figure)
    return found


def check_layout(figure: Any) -> None:
    """No text leaves the figure, and labels along an axis do not run into each other."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    frame = figure.bbox
    unseen = set()  # labels of ticks beyond the ends of an axis are never drawn
    for axis in [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]:
        low, high = sorted(axis.get_view_interval())
        unseen |= {
            id(t)
            for tick in axis.get_major_ticks()
            if not low <= tick.get_loc() <= high
            for t in (tick.label1, tick.label2)
        }
    for text in visible_texts(figure):
        if id(text) in unseen:
            continue
        box = text.get_window_extent(renderer)
        inside = box.x0 >= -1.5 and box.y0 >= -1.5 and box.x1 <= frame.width + 1.5 and box.y1 <= frame.height + 1.5
        assert inside, f"{text.get_text()!r} is clipped: {box} of {frame}"
    for axes in figure.axes:
        for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
            shown = [t.get_window_extent(renderer) for t in labels if t.get_text() and t.get_rotation() % 90 == 0]
            for one, other in pairwise(shown):
                across = min(one.x1, other.x1) - max(one.x0, other.x0)
                down = min(one.y1, other.y1) - max(one.y0, other.y0)
                assert min(across, down) <= 1.0, f"labels overlap: {[t.get_text() for t in labels]}"
