"""Explanations as self-contained HTML: no network, no script, everything escaped; light and dark as the reader's system is.

Colours live in one style sheet, made from the shared scale: `f7` is a token that speaks for the target with strength 7/20,
`a7` one that speaks against it, `w7` a weight of a method without signs.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import TYPE_CHECKING

from whence.errors import InputError
from whence.render.characters import visible
from whence.render.difference import difference
from whence.render.scale import DARK, LIGHT, RGB, UNDERLINED, css, ink_on, is_signed, shade, theme_named
from whence.render.spans import Part, Shown, circumstances, label_of, parts, shown, with_gap

if TYPE_CHECKING:
    from whence.explanation import Explanation

STEPS = 20  # shades of a scale


def escaped(text: str) -> str:
    """A text as text: no markup, and nothing that turns what follows it around.

    >>> escaped("a < b\\0")
    'a &lt; b␀'
    """
    return html.escape(visible(text))


def both(light: RGB, dark: RGB) -> str:
    return f"light-dark({css(light)},{css(dark)})"


def paint(name: str, light: RGB, dark: RGB) -> str:
    """A declaration for both backgrounds; browsers that cannot choose (before 2024) take the light one."""
    return f"{name}:{css(light)};{name}:{both(light, dark)};"


def scale_rules(used_in: str | None = None) -> str:
    """One rule per shade: its background and an ink that reads on it; only for the shades used in a fragment, if one is given."""
    rules = []
    for letter, signed, sign in (("f", True, 1), ("a", True, -1), ("w", False, 1)):
        for step in range(1, STEPS + 1):
            if used_in is not None and f'"{letter}{step}"' not in used_in:
                continue
            light, dark = (shade(sign * step / STEPS, signed, theme) for theme in (LIGHT, DARK))
            ground = paint("background", light, dark)
            if sign < 0 and step >= UNDERLINED * STEPS:
                ground += "text-decoration:underline 2px;text-underline-offset:.14em;text-decoration-skip-ink:none;"
            rules.append(f".whence .{letter}{step}{{{ground}{paint('color', ink_on(light), ink_on(dark))}}}")
    return "\n".join(rules)


STYLE = f"""
.whence{{color-scheme:light dark;font:16px/1.8 system-ui,sans-serif;{paint("background", LIGHT.paper, DARK.paper)}\
{paint("color", LIGHT.ink, DARK.ink)}padding:.8em 1em;border:1px solid;{paint("border-color", LIGHT.line, DARK.line)}\
border-radius:6px;max-width:60em;overflow-wrap:anywhere;text-align:start;print-color-adjust:exact;-webkit-print-color-adjust:exact}}
[data-jp-theme-light="true"] .whence,.vscode-light .whence,.whence.light{{color-scheme:light}}
[data-jp-theme-light="false"] .whence,.vscode-dark .whence,.whence.dark{{color-scheme:dark}}
.whence mark{{border-radius:3px;padding:.12em 0;background:none;color:inherit}}
.whence .head,.whence .part,.whence .special,.whence .cut{{{paint("color", LIGHT.muted, DARK.muted)}}}
.whence .head{{font-size:.85em}}
.whence .head b{{{paint("color", LIGHT.ink, DARK.ink)}font-size:1.15em}}
.whence .part{{font-size:.8em;margin-top:.3em}}
.whence .special{{font-size:.8em}}
.whence .cut{{text-decoration:line-through}}
.whence .text{{white-space:pre-wrap;font-kerning:none}}
.whence .key{{white-space:nowrap;margin-inline-start:.6em}}
.whence .key span{{padding:.16em .45em;border-radius:3px}}
.whence table{{border-collapse:collapse;width:100%}}
.whence th{{text-align:start;vertical-align:top;font-weight:600;white-space:nowrap;padding:.2em 1em .2em 0;font-size:.85em}}
.whence td{{padding:.2em 0;vertical-align:top}}
.whence tr+tr>*{{border-top:1px solid;{paint("border-color", LIGHT.line, DARK.line)}}}
"""


def style_sheet(used_in: str | None = None) -> str:
    return f"<style>{STYLE}{scale_rules(used_in)}</style>"


def step_class(strength: float, signed: bool) -> str:
    """The class of a strength; '' for what is too weak to be coloured.

    >>> step_class(0.5, True), step_class(-1, True), step_class(0.5, False), step_class(0.01, True)
    ('f10', 'a20', 'w10', '')
    """
    step = round(abs(strength) * STEPS)
    return f"{'w' if not signed else 'f' if strength > 0 else 'a'}{step}" if step else ""


def legend(signed: bool) -> str:
    if signed:
        return f'<span class="key"><span class="f{STEPS}">for</span> <span class="a{STEPS}">against</span></span>'
    steps = "".join(f'<span class="w{s}">&nbsp;</span>' for s in (2, 8, 14, 20))
    return f'<span class="key">less {steps} more</span>'


def token_html(e: Explanation, look: Shown, text: str, token: int, words: Mapping[int, tuple[str, float]]) -> str:
    """One token on its colour; hovering tells its score and rank, and its word's score where it is a piece of one."""
    if e.special[token]:
        return f'<bdi class="special">{escaped(text)}</bdi>'
    sign = "+" if look.signed else ""
    title = f"{e.scores[token]:{sign}.4g}, rank {look.rank[token]} of {look.own}"
    if token in words:
        word, score = words[token]
        title += f" (the word {word}: {score:{sign}.4g})"
    name = step_class(float(look.strength[token]), look.signed)
    known = f' class="{name}"' if name else ""
    return f'<mark{known} title="{escaped(title)}">{escaped(text)}</mark>'


def part_html(e: Explanation, look: Shown, part: Part) -> str:
    words = {i: (w.text, w.score) for w in e.words() if len(w.tokens) > 1 for i in w.tokens}
    name = f'<div class="part">{escaped(part.name)}</div>' if part.name else ""
    inner = "".join(
        token_html(e, look, span.text, span.token, words)
        if span.token is not None
        else f'<span class="cut" title="not read by the model">{escaped(span.text)}</span>'
        if span.cut
        else escaped(span.text)
        for span in part.spans
    )
    return f'{name}<div class="text" dir="auto">{inner}</div>'


def body_html(e: Explanation, *, pieces: bool = False) -> str:
    """The highlighted text alone."""
    look = shown(e)
    return "".join(part_html(e, look, part) for part in parts(e, pieces=pieces))


def head_html(e: Explanation, detail: str) -> str:
    cut = " · text cut to what the model reads" if e.truncated else ""
    return f"<b><bdi>{escaped(label_of(e.target))}</bdi></b>{escaped(circumstances(e))}{escaped(detail)}{cut}"


def box(inner: str, theme: str | None) -> str:
    name = f"whence {theme_named(theme).name}" if theme else "whence"
    return f'<div class="{name}">{style_sheet(inner)}{inner}</div>'


def explanation_html(e: Explanation, *, pieces: bool = False, theme: str | None = None) -> str:
    """One box: what is explained, the highlighted text, a legend. theme: 'light', 'dark', or as the reader's system is."""
    detail = f" · {with_gap(e.method, e)}" + (f" · {e.model}" if e.model else "")
    head = f'<div class="head">{head_html(e, detail)} {legend(is_signed(e))}</div>'
    return box(head + body_html(e, pieces=pieces), theme)


def compare_html(
    explanations: Mapping[str, Explanation], *, pieces: bool = False, theme: str | None = None, delta: bool = False
) -> str:
    """One row per method; delta=True adds rows that tell where the others weigh tokens differently from the first."""
    if not explanations:
        raise InputError("nothing to compare: give at least one explanation.")
    first_name, first = next(iter(explanations.items()))
    rows = dict(explanations)
    if delta:
        rows |= {f"Δ {first_name} − {n}": difference(first, e) for n, e in explanations.items() if e is not first}
    body = "".join(
        f'<tr><th scope="row">{escaped(with_gap(name, e))}</th><td>{body_html(e, pieces=pieces)}</td></tr>'
        for name, e in rows.items()
    )
    keys = " ".join(legend(signed) for signed in sorted({is_signed(e) for e in explanations.values()}))
    note = (
        f"<div class='head'>Δ: blue, {escaped(first_name)} weighs the token more; red, underlined, less.</div>" * delta
    )
    detail = f" · {first.model}" if first.model else ""
    return box(f'<div class="head">{head_html(first, detail)} {keys}</div>{note}<table>{body}</table>', theme)


def page(title: str, inner: str) -> str:
    """A whole document around fragments; it may load nothing from anywhere."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escaped(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" content="light dark">'
        f"</head><body>{inner}</body></html>\n"
    )
