"""A highlighted sentence for a paper: LaTeX that needs the package xcolor and nothing else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from whence.render.html import step_class
from whence.render.scale import LIGHT, RGB, UNDERLINED, ink_on, is_signed, shade
from whence.render.spans import circumstances, label_of, parts, shown, with_gap

if TYPE_CHECKING:
    from whence.explanation import Explanation

SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\char34}",
    "−": r"$-$",
    "Δ": r"$\Delta$",
}

# \strut keeps all boxes of one height; the arguments are the background, the ink and the text
PREAMBLE = r"""\documentclass{article}
\usepackage{xcolor}
\begin{document}
"""
COMMANDS = r"""\providecommand{\whencefor}[3]{{\setlength{\fboxsep}{0pt}\colorbox[HTML]{#1}{\textcolor[HTML]{#2}{\strut #3}}}}%
\providecommand{\whenceagainst}[3]{{\setlength{\fboxsep}{0pt}\colorbox[HTML]{#1}{\textcolor[HTML]{#2}{\strut\underline{#3}}}}}%
"""


def explanation_latex(e: Explanation, *, pieces: bool = False, document: bool = True) -> str:
    """The text on its colours; what speaks against the target is underlined. document=True wraps it into a document that
    compiles as it stands (pdfLaTeX for Latin texts; for other scripts take LuaLaTeX and a font that holds them)."""
    look = shown(e)
    lines = [
        rf"\noindent\textbf{{{escape(label_of(e.target))}}}{escape(circumstances(e))} \textit{{{escape(with_gap(e.method, e))}}}\quad {legend(e)}\par"
    ]
    for part in parts(e, pieces=pieces):
        name = rf"\textit{{{escape(part.name)}:}} " if part.name else ""
        body = []
        for span in part.spans:
            text = escape(span.text)
            known = span.token is not None and not e.special[span.token]
            strength = float(look.strength[span.token]) if known and span.token is not None else 0.0
            body.append(colored(text, strength, look.signed) if step_class(strength, look.signed) else text)
        lines.append(rf"\noindent {name}{''.join(body)}\par")
    inner = COMMANDS + "\n".join(lines) + "\n"
    return f"{PREAMBLE}{inner}\\end{{document}}\n" if document else inner


def legend(e: Explanation) -> str:
    if is_signed(e):
        return f"{colored('for', 1.0, True)} {colored('against', -1.0, True)}"
    return f"{colored('less', 0.2, False)} {colored('more', 1.0, False)}"


def colored(text: str, strength: float, signed: bool) -> str:
    ground = shade(strength, signed, LIGHT)
    command = "whenceagainst" if strength <= -UNDERLINED else "whencefor"
    return rf"\{command}{{{as_hex(ground)}}}{{{as_hex(ink_on(ground))}}}{{{text}}}"


def as_hex(color: RGB) -> str:
    return "{:02X}{:02X}{:02X}".format(*color)


def escape(text: str) -> str:
    """Every character as itself; blank lines do not end the paragraph, control characters vanish.

    >>> escape("50% of $5 & more_\\n\\n{x}")
    '50\\\\% of \\\\$5 \\\\& more\\\\_ \\\\{x\\\\}'
    """
    spaced = re.sub(r"\s+", " ", text)
    return "".join(SPECIAL.get(c, c) for c in spaced if c.isprintable() or c == " ")
