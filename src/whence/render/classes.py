"""The words a model leans on, per class: in a terminal and as a page of its own, with the texts they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.text import Text

from whence.render.characters import visible
from whence.render.html import body_html, escaped, legend, page, paint, style_sheet
from whence.render.scale import DARK, LIGHT, TERMINAL, css, is_signed, shade
from whence.render.terminal import highlighted, label, padded, printed, wants_color

if TYPE_CHECKING:
    from whence.evaluate.classes import ClassWords
    from whence.explanation import Explanation

CLASS_STYLE = f"""
body.whence{{max-width:72em;margin:0 auto;padding:1em 1.2em;border:0;border-radius:0}}
html{{{paint("background", LIGHT.paper, DARK.paper)}color-scheme:light dark}}
h1{{font-size:1.3em;margin:.2em 0}}
.whence .columns{{display:grid;grid-template-columns:repeat(auto-fit,minmax(20em,1fr));gap:1em 2em}}
.whence h2{{font-size:1.1em;margin:1em 0 .3em}}
.whence details{{border-bottom:1px solid;{paint("border-color", LIGHT.line, DARK.line)}}}
.whence summary{{cursor:pointer;display:grid;grid-template-columns:.7em 9em 1fr 4em;gap:.6em;align-items:center}}
.whence summary::before{{content:"▸";content:"▸"/"";{paint("color", LIGHT.muted, DARK.muted)}}}
.whence details[open] summary::before{{content:"▾";content:"▾"/""}}
.whence summary bdi{{overflow-wrap:anywhere}}
.whence .bar{{height:.8em;border-radius:2px;{paint("background", LIGHT.weight[1], DARK.weight[1])}}}
.whence summary small{{text-align:end;{paint("color", LIGHT.muted, DARK.muted)}font-variant-numeric:tabular-nums}}
.whence .example{{margin:.3em 0 .5em;font-size:.92em;line-height:1.6}}
"""


def about(found: ClassWords) -> str:
    texts = sum(found.texts.values())
    return f"{plural(texts)} · {found.method} · word scores summed × rarity (inverse document frequency: {found.background})"


def plural(texts: int) -> str:
    return f"{texts:,} text{'' if texts == 1 else 's'}"


def classes_text(
    found: ClassWords,
    explanations: Sequence[Explanation | None],
    *,
    k: int = 10,
    examples: int = 1,
    color: bool | None = None,
    width: int | None = None,
) -> str:
    """Per class its k strongest words with bars, and under each the texts in which it weighs most."""
    colored = wants_color(color)
    things: list[RenderableType] = [Text(about(found), Style(dim=True))]
    bar = css(shade(1.0, False, TERMINAL))
    for name, words in found.top(k).items():
        things.append(
            Text(f"\n{visible(name)}", Style(bold=True)).append(f"  {plural(found.texts[name])}", Style(dim=True))
        )
        labels = [label(w.word) for w in words]
        longest = max(map(len, labels), default=0)
        for text, w in zip(labels, words, strict=True):
            line = Text(f"  {padded(text, longest)}  {w.score:<9.4g} {plural(w.texts):>9}  ")
            things.append(line.append("█" * max(1, round(20 * w.score / words[0].score)), Style(color=bar)))
            for i in w.examples[:examples]:
                things.append(Padding(highlighted(example(explanations, i)), (0, 0, 0, 6)))
    k = min(k, found.shortest())
    if len(found.classes) > 1 and k:
        things.append(
            Text(
                f"\n{100 * found.overlap(k):.1f}% of the {k} strongest words are shared by two classes", Style(dim=True)
            )
        )
    return printed(things, colored, width)


def example(explanations: Sequence[Explanation | None], number: int) -> Explanation:
    """An explanation that a word points to; None stands for rows that have no words."""
    explanation = explanations[number]
    assert explanation is not None
    return explanation


def classes_html(
    found: ClassWords, explanations: Sequence[Explanation | None], *, k: int = 25, title: str = "Words per class"
) -> str:
    """A page: a column per class; a word opens to the texts in which it weighs most. No script."""
    columns = []
    for name, words in found.top(k).items():
        rows = []
        for w in words:
            texts = "".join(f'<div class="example">{body_html(example(explanations, i))}</div>' for i in w.examples)
            facts = f"sum {w.total:.4g} × rarity {w.idf:.2f} = {w.score:.4g}"
            rows.append(
                f'<details><summary title="{escaped(facts)}"><bdi>{escaped(w.word)}</bdi>'
                f'<span><span class="bar" style="display:block;width:{100 * w.score / words[0].score:.1f}%"></span></span>'
                f"<small>{plural(w.texts)}</small></summary>{texts}</details>"
            )
        columns.append(
            f"<section><h2><bdi>{escaped(name)}</bdi> <small>{plural(found.texts[name])}</small></h2>{''.join(rows)}</section>"
        )
    k = min(k, found.shortest())
    shared = (
        f"{100 * found.overlap(k):.1f}% of the {k} strongest words are shared by two classes."
        if len(found.classes) > 1 and k
        else ""
    )
    keys = " ".join(legend(signed) for signed in sorted({is_signed(e) for e in explanations if e is not None}))
    inner = (
        f'{style_sheet()}<style>{CLASS_STYLE}</style><h1>{escaped(title)}</h1><div class="head">{escaped(about(found))}. {shared} '
        f'Open a word to see the texts it comes from, marked as in all pictures: {keys}</div><div class="columns">{"".join(columns)}</div>'
    )
    return page(title, inner).replace("<body>", '<body class="whence">', 1)
