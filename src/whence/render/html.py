"""Explanations as self-contained HTML: no script, no network, everything escaped."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np

from whence.render.scale import AGAINST, FOR, css, ink_on, mix, strengths
from whence.render.spans import spans

if TYPE_CHECKING:
    from whence.explanation import Explanation

PAPER = (255, 255, 255)
BOX = (
    "font:16px/1.9 system-ui,sans-serif;background:#fff;color:#111;padding:.8em 1em;border:1px solid #ddd;border-radius:6px;"
    "max-width:60em;overflow-wrap:anywhere"
)


def explanation_html(e: Explanation, *, pieces: bool = False) -> str:
    """One box: what is explained, the highlighted text, a legend."""
    strength = strengths(e.scores, e.special)
    ranks = np.empty(len(e), dtype=int)
    ranks[np.argsort(-np.abs(strength), kind="stable")] = np.arange(1, len(e) + 1)
    parts = []
    for span in spans(e, pieces=pieces):
        text = html.escape(span.text)
        if span.token is None:
            parts.append(text)
        elif e.special[span.token]:
            parts.append(f'<span style="color:#767676;font-size:.8em">{text}</span>')
        else:
            s = float(strength[span.token])
            color = mix(PAPER, FOR if s > 0 else AGAINST, abs(s))
            ink = css(ink_on(color))
            title = f"{e.scores[span.token]:+.4g}, rank {ranks[span.token]}"
            parts.append(
                f'<span title="{title}" style="background:{css(color)};color:{ink};'
                f'border-radius:3px;padding:.1em 0">{text}</span>'
            )
    chance = "" if e.probability is None else f" {e.probability:.1%}"
    other = f" (predicted: {html.escape(e.prediction)})" if e.prediction not in (None, e.target) else ""
    cut = " · text cut to what the model reads" if e.truncated else ""
    legend = "".join(
        f'<span style="background:{css(c)};color:#fff;border-radius:3px;padding:0 .4em">{word}</span> '
        for c, word in ((FOR, "for"), (AGAINST, "against"))
    )
    return (
        f'<div class="whence" style="{BOX}"><div style="font-size:.85em;color:#555"><b style="color:#111">{html.escape(e.target)}</b>'
        f"{chance}{other} · {html.escape(e.method)}{cut} · {legend}</div>"
        f'<div dir="auto" style="white-space:pre-wrap">{"".join(parts)}</div></div>'
    )
