"""A report's table as Markdown, LaTeX and CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

from whence.evaluate.statistics import Figure

Figures = Mapping[str, Mapping[str, Figure]]  # metric → method
ARROWS = {"higher": "↑", "lower": "↓"}
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def number(value: float) -> str:
    return f"{value:.3f}" if isfinite(value) else "—"


def cell(figure: Figure) -> str:
    """The mean, * for the best and ≈ for what is not significantly different from it.

    >>> cell(Figure(0.5, 0.4, 0.6, 1.0, 10, best=True))
    '0.500 *'
    """
    mark = " *" if figure.best else " ≈" if figure.tied else ""
    return number(figure.mean) + mark


def as_markdown(methods: Sequence[str], figures: Figures, better: Mapping[str, str]) -> str:
    """Best in bold, ties in italics, with 95% intervals."""
    lines = [
        "| method | " + " | ".join(f"{m} {ARROWS[better[m]]}" for m in figures) + " |",
        "|---|" + "---|" * len(figures),
    ]
    for name in methods:
        cells = []
        for metric in figures:
            f = figures[metric][name]
            mean = f"**{number(f.mean)}**" if f.best else f"*{number(f.mean)}*" if f.tied else number(f.mean)
            cells.append(f"{mean} [{number(f.low)}, {number(f.high)}]" if isfinite(f.low) else mean)
        lines.append("| " + " | ".join([name.replace("|", "\\|"), *cells]) + " |")
    note = "Mean [95% bootstrap interval]. **Bold**: best; *italic*: not significantly different from it (paired permutation "
    return "\n".join([*lines, "", note + "test, Holm-corrected, 5%)."]) + "\n"


def as_latex(methods: Sequence[str], figures: Figures, better: Mapping[str, str]) -> str:
    """A booktabs table; best in bold, ties underlined."""
    arrows = {"higher": r"$\uparrow$", "lower": r"$\downarrow$"}
    lines = [
        r"\begin{tabular}{l" + "r" * len(figures) + "}",
        r"\toprule",
        " & ".join(["method", *(f"{latex(m)} {arrows[better[m]]}" for m in figures)]) + r" \\",
        r"\midrule",
    ]
    for name in methods:
        cells = []
        for metric in figures:
            f = figures[metric][name]
            mean = number(f.mean) if isfinite(f.mean) else "--"
            cells.append(rf"\textbf{{{mean}}}" if f.best else rf"\underline{{{mean}}}" if f.tied else mean)
        lines.append(" & ".join([latex(name), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def latex(text: str) -> str:
    """Characters that LaTeX reads as commands, escaped."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(c, "\\" + c if c in "&%$#_{}" else c) for c in text)


def as_csv(methods: Sequence[str], figures: Figures, better: Mapping[str, str]) -> str:
    """One line per method and metric."""
    rows = [["method", "metric", "better", "mean", "low", "high", "p", "texts", "best", "tied"]]
    for name in methods:
        for metric in figures:
            f = figures[metric][name]
            numbers = [repr(float(x)) for x in (f.mean, f.low, f.high, f.p)]
            rows.append([name, metric, better[metric], *numbers, str(f.n), str(f.best), str(f.tied)])
    return csv_text(rows)


def csv_text(rows: Sequence[Sequence[str]]) -> str:
    """CSV that a spreadsheet never runs: text that begins like a formula gets a quote before it; numbers stay numbers."""
    return "".join(",".join(quoted(safe(value)) for value in row) + "\n" for row in rows)


def quoted(value: str) -> str:
    """As RFC 4180 has it. (Python's own writer leaves a lone carriage return bare, and what follows it becomes a cell.)

    >>> quoted('say "no", or'), quoted("attcat")
    ('"say ""no"", or"', 'attcat')
    """
    if value and not any(c in value for c in ',"\r\n'):
        return value
    return '"' + value.replace('"', '""') + '"'


def safe(value: str) -> str:
    """
    >>> safe("=cmd()"), safe("-0.5"), safe("attcat")
    ("'=cmd()", '-0.5', 'attcat')
    """
    if not value.startswith(FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return "'" + value
    return value
