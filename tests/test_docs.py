"""Every code block of the README and of the pages under docs/ runs as printed (tests/docs/blocks.py has the convention)."""

from __future__ import annotations

import gzip
import importlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from tests.docs.blocks import ROOT, blocks, run_page
from whence.models import zoo
from whence.models.specs import SPECS

# the gallery's blocks are what `make gallery` runs
PAGES = [p for p in sorted((ROOT / "docs").rglob("*.md")) if "gallery" not in p.parts]
EVERYTHING = {"README.md"}  # pages that run every method and metric: on two short texts
TREEBANK = """1\tDogs\tdog\tNOUN\t_\t_\t2\tnsubj\t_\t_
2\tchase\tchase\tVERB\t_\t_\t0\troot\t_\t_
3\tbig\tbig\tADJ\t_\t_\t4\tamod\t_\t_
4\tcats\tcat\tNOUN\t_\t_\t2\tobj\t_\t_
5\toften\toften\tADV\t_\t_\t2\tadvmod\t_\t_

"""


@pytest.fixture(scope="module", autouse=True)
def _models_are_read_once() -> Iterator[None]:
    """Pages load the same few models again and again; whence gives every model back as it was."""
    loading = importlib.import_module("whence.load")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "found_in_zoo", cache(loading.found_in_zoo))
        yield


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with the files that the pages speak of, and specs that are forgotten after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    reviews = zoo.samples("sentiment")[:4]
    if request.node.callspec.params["page"] in EVERYTHING:
        reviews = sorted(zoo.samples("sentiment"), key=lambda row: len(row["text"]))[:2]
    write_lines("reviews.jsonl", reviews)
    write_lines("marked.jsonl", [{**row, "rationales": [[0, 2]]} for row in reviews])
    write_lines("questions.jsonl", zoo.samples("qa")[:4])
    Path("texts.txt").write_text("".join(row["text"] + "\n" for row in reviews), encoding="utf-8")
    Path("reviews").mkdir()
    parquet.write_table(pyarrow.Table.from_pylist(reviews), "reviews/part-0.parquet")
    with gzip.open("treebank.conllu.gz", "wt", encoding="utf-8") as file:
        file.write(TREEBANK * 4)
    before = dict(SPECS)
    yield
    SPECS.clear()
    SPECS.update(before)


def write_lines(file: str, rows: list[dict[str, object]]) -> None:
    Path(file).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("page", ["README.md", *(str(p.relative_to(ROOT)) for p in PAGES)])
def test_blocks_run(page: str) -> None:
    run_page((ROOT / page).read_text(encoding="utf-8"), page)


def test_there_are_blocks_to_run() -> None:
    found = blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len([b for b in found if b.language == "python"]) >= 3
    assert len([b for b in found if b.language == "console"]) >= 3


def test_a_wrong_page_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for page in (
        "```python\n1 / 0\n```\n",
        "```console\n$ whence nonsense\n```\n",
        "```console\n$ make nothing\n```\n",
    ):
        with pytest.raises(BaseException):  # noqa: B017, PT011  (whatever the page does wrong)
            run_page(page, "page")
    for page in ("```sh\nls\n```\n", "<!-- not run: lazy -->\n```python\n1\n```\n", "```console\n$ ls\n```\n"):
        with pytest.raises(AssertionError):
            run_page(page, "page")
    with pytest.raises(AssertionError, match="prints"):
        run_page("```console\n$ whence --version\nwhence 9\n```\n", "page")
