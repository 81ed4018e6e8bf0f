"""SECURITY.md, held: nothing that is read runs code, nobody's code is trusted unasked, and no output can be made to act."""

from __future__ import annotations

import ast
import csv
import html.parser
import inspect
import io
import json
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import whence
from tests import architectures
from whence.evaluate.classes import ClassWords
from whence.evaluate.statistics import Figure
from whence.evaluate.tables import as_csv, as_latex, as_markdown, csv_text
from whence.render.html import page
from whence.render.report import report_html

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
# modules that turn bytes into objects with code, and calls that run text
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_ATTRIBUTES = {("torch", "load"), ("torch", "save"), ("os", "system"), ("os", "popen"), ("np", "fromfile")}
NASTY = "<script>alert(1)</script> & \"quote\" 'x' \\input{/etc/passwd} $x_1^2$ 100% #hash ~ {brace} \x1b[31mred\x07"
FORMULAS = ["=1+1", "+1+1", "-1+cmd", "@SUM(A1)", "\t=1", "\r=1", "=cmd|' /C calc'!A0"]


def offences(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [f"imports {name}" for name in names if name.split(".")[0] in FORBIDDEN_MODULES]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            found.append(f"calls {node.func.id}")
        owner = node.value if isinstance(node, ast.Attribute) else None
        if (
            isinstance(node, ast.Attribute)
            and isinstance(owner, ast.Name)
            and (owner.id, node.attr) in FORBIDDEN_ATTRIBUTES
        ):
            found.append(f"uses {owner.id}.{node.attr}")
        if isinstance(node, ast.keyword):
            true = isinstance(node.value, ast.Constant) and node.value.value is True
            if node.arg in ("allow_pickle", "trust_remote_code", "shell") and true:
                found.append(f"{node.arg}=True")
            if node.arg == "use_safetensors" and not true:
                found.append("use_safetensors is not True")
            if node.arg == "weights_only" and not true:
                found.append("weights_only is not True")
    return found


@pytest.mark.parametrize("file", SOURCES, ids=lambda f: f.relative_to(ROOT / "src").as_posix())
def test_nothing_that_runs_what_it_reads(file: Path) -> None:
    assert offences(ast.parse(file.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "code",
    ["import pickle", "from joblib import load", "eval(x)", "torch.load(f)", "np.load(f, allow_pickle=True)", "f(shell=True)",
     "AutoModel.from_pretrained(n, trust_remote_code=True)", "AutoModel.from_pretrained(n, use_safetensors=False)"],
)  # fmt: skip
def test_the_search_finds(code: str) -> None:
    assert offences(ast.parse(code))


def test_every_model_is_read_as_safetensors() -> None:
    """Wherever weights come from a checkpoint, safetensors are demanded."""
    code = (ROOT / "src/whence/models/pretrained.py").read_text(encoding="utf-8")
    calls = re.findall(r"auto\.from_pretrained\((.*?)\)\n", code, flags=re.DOTALL)
    assert calls
    assert all("use_safetensors=True" in call for call in calls)


def test_a_pickled_checkpoint_is_refused(tmp_path: Path) -> None:
    model = architectures.build("bert", torch.float32)
    model.config.architectures = ["BertForSequenceClassification"]
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(whence.WhenceError, match="could not be loaded"):
        whence.load(tmp_path)


def test_remote_code_is_never_trusted_unasked(tmp_path: Path) -> None:
    assert inspect.signature(whence.load).parameters["trust_remote_code"].default is False
    written = tmp_path / "ran"
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "model_type": "mine",
                "auto_map": {"AutoConfig": "mine.Mine", "AutoModelForSequenceClassification": "mine.M"},
            }
        )
    )
    (tmp_path / "mine.py").write_text(f"open({str(written)!r}, 'w').close()\n")
    with pytest.raises(whence.WhenceError):
        whence.load(tmp_path)
    assert not written.exists()


def test_no_command_trusts_remote_code() -> None:
    files = list((ROOT / "src/whence/apps/cli").glob("*.py"))
    assert files
    for file in files:
        assert "trust_remote_code" not in file.read_text(encoding="utf-8")


# ---- what is written ------------------------------------------------------------------------------------------------


class Elements(html.parser.HTMLParser):
    """Every tag with its attributes' names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, list[str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, [name for name, _ in attrs]))


def nasty(explainer: whence.Explainer, text: str = NASTY) -> whence.Explanation:
    return explainer.explain((text, text), "gae")


@pytest.fixture(scope="module")
def explainer() -> whence.Explainer:
    labels = {0: "<b>x</b>", 1: '"><img src=x onerror=alert(1)>', 2: "=1+1"}
    model = architectures.build("bert", torch.float32, id2label=labels, max_position_embeddings=256)
    return whence.load(model, architectures.tokenizer())


def test_html_is_escaped(explainer: whence.Explainer) -> None:
    for target in range(3):
        e = explainer.explain((NASTY, NASTY), "gae", target)
        for text in (e.to_html(), e.to_html(pieces=True), page(e.target, e.to_html())):
            tags = Elements(text).tags
            assert not [tag for tag, _ in tags if tag in ("script", "img", "b>x", "iframe")]
            assert not [name for _, names in tags for name in names if name.startswith("on")]


def test_a_report_page_holds_texts_as_data(explainer: whence.Explainer) -> None:
    text = report_html([nasty(explainer), nasty(explainer, "</script><script>alert(2)</script>\u2028")], title=NASTY)
    scripts = [names for tag, names in Elements(text).tags if tag == "script"]
    assert len(scripts) == 2  # the rows, and the page's own
    rows = re.search(r'<script type="application/json" id="rows">(.*?)</script>', text, flags=re.DOTALL)
    assert rows is not None
    assert len(json.loads(rows[1])) == 2


def test_tables_in_notebooks_are_escaped() -> None:
    assert "<script>" not in whence.render.table.Table([{"<script>": "<script>"}])._repr_html_()


def test_latex_is_escaped(explainer: whence.Explainer) -> None:
    body = nasty(explainer).to_latex(document=False)
    assert r"\input" not in body
    assert r"\textbackslash{}" in body
    figures = {NASTY: {r"\evil_method": Figure(0.5, 0.4, 0.6, 1.0, 10)}}
    table = as_latex([r"\evil_method"], figures, {NASTY: "higher"})
    assert r"\evil" not in table
    assert r"\input" not in table


def test_the_terminal_gets_no_control_characters(explainer: whence.Explainer) -> None:
    for color in (False, True):
        shown = nasty(explainer).to_text(color=color)
        assert "\x07" not in shown
        assert "\x1b[31mred" not in shown


@pytest.mark.parametrize("formula", FORMULAS)
def test_no_cell_of_a_csv_is_a_formula(formula: str) -> None:
    figures = {formula: {formula: Figure(-0.5, -0.6, -0.4, 1.0, 10)}}
    for text in (as_csv([formula], figures, {formula: "higher"}), csv_text([[formula, formula]])):
        for row in csv.reader(io.StringIO(text, newline="")):
            for cell in row:
                assert not cell.startswith(("=", "+", "@", "\t", "\r"))
                assert not cell.startswith("-") or float(cell) < 0


@settings(max_examples=60, deadline=None, derandomize=True)
@given(cells=st.lists(st.text(max_size=12), min_size=1, max_size=4))
def test_a_csv_gives_its_cells_back(cells: list[str]) -> None:
    """But for the quote before what a spreadsheet would run."""
    text = csv_text([cells])
    (row,) = list(csv.reader(io.StringIO(text, newline="")))
    assert [
        cell.removeprefix("'") if not given.startswith("'") else cell for cell, given in zip(row, cells, strict=True)
    ] == cells


def test_markdown_tables_keep_their_columns() -> None:
    table = as_markdown(["a|b"], {"m": {"a|b": Figure(0.5, 0.4, 0.6, 1.0, 10)}}, {"m": "higher"})
    assert table.splitlines()[2].count("|") - table.splitlines()[2].count("\\|") == 3


def test_json_outputs_hold_no_bare_nan(explainer: whence.Explainer) -> None:
    text = json.dumps(nasty(explainer).to_dict(), allow_nan=False)
    assert json.loads(text)["text"] == NASTY


def test_pages_of_words_are_escaped(explainer: whence.Explainer) -> None:
    from whence.evaluate.classes import class_words
    from whence.render.classes import classes_html

    es = [explainer.explain(f"{NASTY} good film", "gae", target) for target in range(3)]
    found: ClassWords = class_words(es)
    tags = Elements(classes_html(found, es, title=NASTY)).tags
    assert not [tag for tag, _ in tags if tag in ("script", "img", "b>x")]
