"""`whence evaluate | tune | check | metrics` as people type them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.evaluate.test_report import MODEL, texts
from whence.apps.cli import app
from whence.errors import InputError, UnknownName

RUN = CliRunner()


@pytest.fixture
def data(tmp_path: Path) -> str:
    file = tmp_path / "data.jsonl"
    file.write_text(
        "\n".join(json.dumps({"body": r["text"], "label": r["label"]}) for r in texts(10)), encoding="utf-8"
    )
    return str(file)


def whence(*words: str) -> str:
    result = RUN.invoke(app, [str(w) for w in words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_evaluate_prints_a_table_and_writes_a_folder(data: str, tmp_path: Path) -> None:
    common = ("evaluate", data, "--model", str(MODEL), "--column", "text=body", "--method", "attcat", "--method", "gae")
    out = whence(*common, "--metric", "aopc", "--limit", "6", "--output", str(tmp_path / "out"))
    assert out.splitlines()[0].split() == ["method", "aopc"]
    assert {line.split()[0] for line in out.splitlines()[1:4]} == {"attcat", "gae", "random"}
    assert (tmp_path / "out" / "report.json").exists()
    assert "| method | aopc ↑ |" in whence(*common, "--metric", "aopc", "--format", "markdown")
    found = json.loads(whence(*common, "--metric", "aopc:attcat", "--format", "json"))
    assert set(found["figures"]["aopc:attcat"]) == {"attcat", "gae", "random"}
    with pytest.raises(UnknownName, match="did you mean 'csv'"):
        whence(*common, "--format", "cvs")
    with pytest.raises(InputError, match="must read role=name"):
        whence("evaluate", data, "--column", "body")


def test_tune_writes_a_recipe_that_explain_follows(data: str, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.json"
    out = whence(
        *("tune", data, "--model", str(MODEL), "--column", "text=body", "--limit", "8", "--output", str(recipe)),
        *("--method", "gae", "--method", "cat(layer=2)", "--objective", "comprehensiveness"),
    )
    assert "best of 2 candidates" in out
    chosen = json.loads(recipe.read_text(encoding="utf-8"))
    explained = json.loads(
        whence("explain", "w105 w107 w109", "--model", str(MODEL), "--recipe", str(recipe), "--format", "json")
    )
    assert explained["method"] == chosen["method"]


def test_check_and_metrics(data: str) -> None:
    out = whence("check", "rollout", "--model", str(MODEL), "--data", data, "--column", "text=body", "--limit", "4")
    assert out.startswith("rollout on ")
    verdict = json.loads(
        whence("check", "rollout", "--model", str(MODEL), "--data", data, "--column", "text=body", "--format", "json")
    )
    assert len(verdict["findings"]) == 5
    assert "comprehensiveness\thigher\terasure" in whence("metrics")
