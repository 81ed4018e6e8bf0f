"""The notebooks run from top to bottom, are kept without outputs, and are all in the list."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.docs.blocks import ROOT

FOLDER = ROOT / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda f: f.stem)
def test_notebook_runs(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(file, as_version=4)
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}})
    client.execute()
    shown = [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]
    assert any("data" in o for o in shown), "a notebook shows something"


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda f: f.stem)
def test_notebook_is_kept_clean(file: Path) -> None:
    notebook = nbformat.read(file, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert not any(cell.outputs or cell.execution_count for cell in code)
    assert notebook.cells[0].source.startswith("# ")
    assert f"({file.name})" in (FOLDER / "README.md").read_text(encoding="utf-8")


def test_there_are_four() -> None:
    assert [f.stem for f in NOTEBOOKS] == ["choose", "classifier", "generation", "shortcut"]
