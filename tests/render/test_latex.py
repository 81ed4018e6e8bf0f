"""LaTeX: everything escaped, the shared colours, and, where pdfLaTeX is installed, a document that compiles."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import whence
from tests.render.common import HOSTILE, make
from whence.render.latex import escape
from whence.render.scale import LIGHT

EVERYTHING = '50% of $5 & more_ #1 {x} \\y ~z^2 <script> "q" | a–b “c” é'


def test_colours_and_underline() -> None:
    text = make([1.0, -1.0, 0.0], ["yes", "no", "none"], "yes no none").to_latex()
    strong = "{:02X}{:02X}{:02X}".format(*LIGHT.speaks_for[1])
    assert rf"\whencefor{{{strong}}}{{FFFFFF}}{{yes}}" in text
    assert r"\whenceagainst{B2182B}{FFFFFF}{no}" in text
    assert text.count(r"\usepackage") == 1
    assert " none" in text


def test_everything_is_escaped() -> None:
    body = escape(EVERYTHING)
    for character in "%$&_#":
        assert f"\\{character}" in body
    for raw in ("<", ">", "~", "^", '"', "|"):
        assert raw not in body
    assert "\x1b" not in escape(HOSTILE)


def test_body_alone_for_a_paper() -> None:
    e = make([1.0], ["a"], "a")
    assert "documentclass" not in e.to_latex(document=False)
    assert e.to_latex(document=False) in e.to_latex()


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_it_compiles(tmp_path: Path, sentiment: whence.Explainer) -> None:
    for number, e in enumerate([sentiment.explain(EVERYTHING), whence.load("nli").explain(("A man.", "Nobody."))]):
        (tmp_path / f"{number}.tex").write_text(e.to_latex(), encoding="utf-8")
        done = subprocess.run(
            ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", f"{number}.tex"],
            cwd=tmp_path,
            capture_output=True,
        )
        assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
