"""Every registered method and metric has its page, with all sections; figures, costs and options on it are those of today."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import whence
from tests.docs.blocks import ROOT, blocks
from whence.registry import get_method

DOCS = ROOT / "docs"
OURS = {
    "methods": [row for row in whence.methods() if row["family"] not in ("plug-in", "mine")],
    "metrics": [row for row in whence.metrics() if row["family"] not in ("plug-in", "mine")],
}
METHOD_SECTIONS = [
    "Idea",
    "Formula",
    "Picture",
    "When to trust it",
    "When not",
    "Measured",
    "Cost",
    "Options",
    "Paper",
    "Departures",
]
METRIC_SECTIONS = [
    "Idea",
    "Formula",
    "Presets",
    "Try it",
    "When to trust it",
    "When not",
    "Cost",
    "Paper",
    "Departures",
]


def text_of(kind: str, name: str) -> str:
    return (DOCS / kind / f"{name}.md").read_text(encoding="utf-8")


def sections(page: str) -> dict[str, str]:
    """Heading → text."""
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return {heading: text.strip() for heading, text in zip(parts[1::2], parts[2::2], strict=True)}


@pytest.fixture(scope="module")
def make() -> Iterator[ModuleType]:
    """The program that keeps the method pages."""
    spec = importlib.util.spec_from_file_location("methods_make", DOCS / "methods" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "methods_make", module)  # dataclasses look their module up
        spec.loader.exec_module(module)
        yield module


@pytest.mark.parametrize("row", OURS["methods"], ids=lambda row: row["name"])
def test_method_page(row: dict[str, Any]) -> None:
    page = text_of("methods", row["name"])
    found = sections(page)
    assert page.startswith(f"# `{row['name']}`: ")
    assert list(found) == METHOD_SECTIONS
    assert all(found.values()), "a section is empty"
    assert row["family"] in page.splitlines()[2]
    sentences = re.findall(r"[.:?](?= |$)", re.sub(r"`[^`]*`", "x", found["Idea"]))
    assert 3 <= len(sentences) <= 5, "the idea in about three sentences"
    assert found["Cost"].casefold().startswith(row["cost"].casefold())
    for option in get_method(row["name"]).defaults:
        assert f"`{option}`" in found["Options"], option
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", found["Picture"]):
        assert (DOCS / "methods" / picture).stat().st_size > 2000
    assert f"--method {row['name']} " in found["Picture"]


@pytest.mark.parametrize("row", OURS["metrics"], ids=lambda row: row["name"])
def test_metric_page(row: dict[str, Any]) -> None:
    page = text_of("metrics", row["name"])
    found = sections(page)
    assert page.startswith(f"# `{row['name']}`: ")
    assert list(found) == METRIC_SECTIONS
    assert all(found.values()), "a section is empty"
    assert page.splitlines()[2] == f"*{row['family']} · {row['better']} is better · needs {row['needs']}*"
    presets = [p for p in row["presets"].split(", ") if p]
    assert [p for p in presets if f"`{p}`" in found["Presets"]] == presets
    assert any(f"--metric {row['name']}" in b.code for b in blocks(page))


@pytest.mark.parametrize("kind", ["methods", "metrics"])
def test_index_names_every_page(kind: str) -> None:
    index = text_of(kind, "README")
    for row in OURS[kind]:
        assert f"({row['name']}.md)" in index
    known = {row["name"] for row in OURS[kind]} | {"README", "relevance", "paths", "perturbation"}
    assert {p.stem for p in (DOCS / kind).glob("*.md")} <= known, "a page of something that is not registered"


def test_figures_are_those_of_the_results(make: ModuleType) -> None:
    for file in [*make.pages(), DOCS / "methods" / "README.md"]:
        assert file.read_text(encoding="utf-8") == make.up_to_date(file), "run python docs/methods/make.py"


def test_figures_are_read_from_the_tables(make: ModuleType) -> None:
    row = next(r for r in make.measured("attcat") if r.metric == "comprehensiveness:paper ↑")
    line = next(
        x
        for x in Path(DOCS / "results" / "sentiment.md").read_text("utf-8").split("## Compr")[1].splitlines()
        if x.startswith("| attcat |")
    )
    assert f"| {row.own:.3f} [" in line
    assert row.best_method == "shapley"
    assert make.measured("no-such-method") == []
