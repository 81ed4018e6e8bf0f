"""A report page: many explained texts in one self-contained HTML file, to filter, sort and search.

The rows travel as JSON inside the page; the script (report.js, copied into the page) draws only the rows near the window, so that
ten thousand of them open and filter at once. Nothing is loaded from anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from whence.corpus.bad_rows import BadRow
from whence.errors import InputError
from whence.render.characters import visible
from whence.render.html import STEPS, escaped, legend, page, paint, style_sheet
from whence.render.scale import DARK, LIGHT
from whence.render.spans import circumstances, label_of, parts, shown, with_gap

if TYPE_CHECKING:
    from whence.explanation import Explanation

PAGE_STYLE = f"""
body.whence{{max-width:70em;margin:0 auto;padding:1em 1.2em;border:0;border-radius:0}}
html{{{paint("background", LIGHT.paper, DARK.paper)}color-scheme:light dark}}
html:has(body.light){{color-scheme:light}} html:has(body.dark){{color-scheme:dark}}
h1{{font-size:1.3em;margin:.2em 0}}
.bar{{position:sticky;top:0;z-index:1;display:flex;flex-wrap:wrap;gap:.4em 1em;align-items:center;padding:.6em 0;font-size:.9em;\
{paint("background", LIGHT.paper, DARK.paper)}border-bottom:1px solid;{paint("border-color", LIGHT.line, DARK.line)}}}
.bar input,.bar select,.bar button{{font:inherit;padding:.2em .5em;color:inherit;background:inherit;border:1px solid;\
{paint("border-color", LIGHT.muted, DARK.muted)}border-radius:4px;max-width:16em}}
.bar #search{{flex:1 1 14em;max-width:none}}
.bar label[hidden]{{display:none}}
.bar #count{{margin-inline-start:auto;font-variant-numeric:tabular-nums}}
.chunk{{overflow-anchor:auto}}
.row{{padding:.6em 0;border-bottom:1px solid;{paint("border-color", LIGHT.line, DARK.line)}}}
.row .number{{font-variant-numeric:tabular-nums}}
.row .wrong{{{paint("color", LIGHT.against[1], DARK.against[1])}}}
"""

CONTROLS = """<div class="bar" role="search">
<input id="search" type="search" placeholder="search the texts" aria-label="search the texts">
<label><input id="strong" type="checkbox"> only in the 5 strongest tokens</label>
<label>target <select id="target"><option value="">all</option></select></label>
<label>method <select id="method"><option value="">all</option></select></label>
<label>show <select id="only"><option value="">all</option></select></label>
<label>sort <select id="sort"><option value="given">as given</option><option value="sure">most certain first</option>\
<option value="unsure">least certain first</option><option value="long">longest first</option>\
<option value="short">shortest first</option></select></label>
<button id="theme" type="button">light / dark</button><span id="count" aria-live="polite"></span></div>"""


def report_html(
    explanations: Iterable[Explanation | BadRow],
    *,
    title: str = "Explanations",
    labels: Sequence[str | None] | None = None,
) -> str:
    """The whole page. A row that could not be read stands in its place with its error. labels: the right answers, one per row, if known;
    rows where the model is wrong are then marked."""
    rows = list(explanations)
    found = [row for row in rows if not isinstance(row, BadRow)]
    if not found:
        raise InputError("nothing to report: give at least one explanation.")
    if labels is not None and len(labels) != len(rows):
        raise InputError(f"{len(labels)} labels for {len(rows)} explanations; give one each.")
    drawn = [
        bad_row(row) if isinstance(row, BadRow) else row_of(row, None if labels is None else labels[i])
        for i, row in enumerate(rows)
    ]
    keys = " ".join(legend(bool(signed)) for signed in sorted({row["signed"] for row in drawn if "signed" in row}))
    models = ", ".join(sorted({e.model for e in found if e.model}))
    lost = f", and {len(rows) - len(found):,} rows that could not be read" if len(found) < len(rows) else ""
    about = (
        f"{len(found):,} explanations{f' of {models}' if models else ''}{lost}. Hover a token for its score and rank."
    )
    script = files("whence.render").joinpath("report.js").read_text(encoding="utf-8")
    inner = (
        f'{style_sheet()}<style>{PAGE_STYLE}</style><h1>{escaped(title)}</h1><div class="head">{escaped(about)} {keys}</div>'
        f"{CONTROLS}<noscript><p>This page lists its rows with a script, which is switched off here.</p></noscript>"
        '<p id="none" hidden>No row fits. Clear the search, or choose "all".</p><main id="list"></main>'
        f'<script type="application/json" id="rows">{as_json(drawn)}</script><script>{script}</script>'
    )
    return page(title, inner).replace("<body>", '<body class="whence">', 1)


def bad_row(row: BadRow) -> dict[str, Any]:
    """A row that could not be read, as report.js reads it."""
    return {"error": visible(str(row)), "parts": [["", visible(row.text or "")]]}


def row_of(e: Explanation, label: str | None) -> dict[str, Any]:
    """What report.js reads: see there."""
    look = shown(e)
    drawn: list[list[Any]] = []
    for part in parts(e):
        cells: list[Any] = [part.name]
        for span in part.spans:
            cells.append(visible(span.text))
            if span.token is not None and not e.special[span.token]:
                cells += [round(float(look.strength[span.token]) * STEPS), float(f"{e.scores[span.token]:.4g}")]
        drawn.append(cells)
    row = {
        "target": visible(label_of(e.target)),
        "about": visible(circumstances(e)),
        "p": None if e.probability is None else round(float(e.probability), 6),
        "method": visible(with_gap(e.method, e)),
        "signed": look.signed,
        "cut": e.truncated,
        "differs": e.prediction not in (None, e.target),
        "parts": drawn,
    }
    return row if label is None else {**row, "label": visible(label), "wrong": label != (e.prediction or e.target)}


def as_json(rows: list[dict[str, Any]]) -> str:
    """JSON that cannot end the script element it stands in.

    >>> as_json([{"text": "</script>"}])
    '[{"text":"\\\\u003c/script>"}]'
    """
    text = json.dumps(rows, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
