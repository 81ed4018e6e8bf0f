"""`whence explain --format html|latex --figure …`, `whence compare`, `whence classes`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_cli import cli  # noqa: F401  (the fixture)

TEXT = "a charming but slow film"


def test_explain_writes_pages_latex_and_figures(cli, tmp_path: Path) -> None:  # noqa: F811
    page, figure = tmp_path / "one.html", tmp_path / "one.svg"
    code, out, _ = cli(
        "explain", TEXT, "--format", "html", "--output", str(page), "--figure", str(figure), "--kind", "text"
    )
    assert (code, out) == (0, "")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "charming" in figure.read_text(encoding="utf-8")
    _, out, _ = cli("explain", TEXT, "--format", "latex")
    assert out.startswith(r"\documentclass")
    _, out, _ = cli("explain", "-", "--format", "html", stdin="good film\nbad film\n")
    assert 'id="rows"' in out, "several texts are a report"
    _, out, _ = cli("explain", TEXT, "--layers", "--method", "attcat")
    assert "sum" in out.split("\n")[1]


def test_compare_has_a_row_per_method(cli, tmp_path: Path) -> None:  # noqa: F811
    code, out, _ = cli("compare", TEXT, "--method", "attnlrp", "--method", "gae", "--delta")
    assert code == 0
    assert [line.split("  ")[0] for line in out.strip().split("\n")[2:]] == ["attnlrp", "gae", "Δ attnlrp − gae"]
    figure = tmp_path / "rows.png"
    _, out, _ = cli("compare", TEXT, "--method", "gae", "--format", "json", "--figure", str(figure))
    assert json.loads(out)["gae"]["text"] == TEXT
    assert figure.read_bytes().startswith(b"\x89PNG")
    _, out, _ = cli("compare", TEXT, "--format", "html")
    assert out.count('<th scope="row">') == 6


def test_classes_of_texts_of_a_saved_run_and_of_the_samples(cli, tmp_path: Path) -> None:  # noqa: F811
    texts = "a wonderful film\na terrible film\nwonderful acting\nterrible plot\n"
    code, out, _ = cli("classes", "-", "--top", "2", stdin=texts)
    assert code == 0
    assert out.index("negative") < out.index("terrible") < out.index("positive") < out.index("wonderful")
    saved = tmp_path / "run.json"
    cli("explain", "-", "--format", "json", "--output", str(saved), stdin=texts)
    _, out, _ = cli("classes", str(saved), "--format", "json", "--background", "own", "--top", "1")
    found = json.loads(out)
    assert found["classes"]["positive"][0]["word"] == "wonderful"
    assert found["background"] == "the explained texts"
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("wonderful\nwonderful\nfilm\n", encoding="utf-8")
    page, cloud, overlap = tmp_path / "c.html", tmp_path / "c.png", tmp_path / "o.svg"
    files = ("--format", "html", "--output", str(page), "--cloud", str(cloud), "--overlap", str(overlap))
    code, out, err = cli("classes", str(saved), "--background", str(corpus), *files)
    assert (code, out, err) == (0, "", "")
    assert "<details>" in page.read_text(encoding="utf-8")
    assert cloud.read_bytes().startswith(b"\x89PNG")
    assert "shared by two classes" in overlap.read_text(encoding="utf-8")


def test_classes_of_a_corpus_in_a_table(cli, tmp_path: Path) -> None:  # noqa: F811
    corpus = tmp_path / "corpus.csv"
    rows = ["a wonderful, wonderful film", "a terrible film", "wonderful acting", "terrible plot"]
    corpus.write_text("id,body\n" + "".join(f'{i},"{row}"\n' for i, row in enumerate(rows)), encoding="utf-8")
    options = ("--column", "text=body", "--background", str(corpus), "--format", "json", "--top", "1")
    code, out, _ = cli("classes", str(corpus), *options)
    assert code == 0
    found = json.loads(out)
    assert [words[0]["word"] for words in found["classes"].values()] == ["terrible", "wonderful"]
    assert found["background"] == "corpus.csv"
    code, _, err = cli("classes", str(corpus))
    assert (code, "--column text=NAME" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("compare", TEXT, "--format", "xml"), "text, json, html"),
        (("explain", TEXT, "--figure", "x.bmp"), ".png, .svg or .pdf"),
        (("explain", TEXT, "--figure", "x.png", "--kind", "matrix"), "matrices=True"),
        (("explain", TEXT, "--figure", "x.png", "--method", "gae", "--method", "alti"), "one text and one method"),
        (("explain", TEXT, "--output", "no/such/folder.txt"), "could not be written"),
        (("classes", "no-such-file.txt"), "cannot be read"),
        (("classes", "--model", "nli"), "no sample texts"),
        (("classes", "-"), "holds no text"),
    ],
)
def test_mistakes_are_one_sentence(cli, words: tuple[str, ...], says: str) -> None:  # noqa: F811
    code, _, err = cli(*words)
    assert code == 2
    assert says in err
    assert "Traceback" not in err
