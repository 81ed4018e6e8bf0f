"""`whence corpus` and `whence report`, and the commands that take a saved run."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.test_cli import cli  # noqa: F401  (the fixture)

ROWS = [
    {"review": "a charming and often affecting journey", "stars": "positive"},
    {"review": "dull, and far too long", "stars": "negative"},
    {"review": "a warm and funny film", "stars": "negative"},
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "reviews.jsonl"
    file.write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8")
    return file


def test_a_run_and_everything_that_reads_it(cli, data: Path, tmp_path: Path) -> None:  # noqa: F811
    out = tmp_path / "out"
    command = ["corpus", str(data), "--output", str(out), "--method", "gae", "--method", "gradient", "--keep", "stars"]
    code, said, complained = cli(*command, "--profile")
    assert code == 0
    assert said.startswith("3 rows in 1 shards")
    for word in ("rows/s", "tokens/s", "padding", "tokenise", "write"):
        assert word in complained
    code, said, _ = cli(*command)
    assert (code, "(complete: nothing was missing)" in said) == (0, True)
    code, _, complained = cli(*command, "--target", "positive")
    assert code == 2
    assert 'asked    {}     {"target": "positive"}' in complained

    code, said, _ = cli("classes", str(out), "--method", "gae", "--format", "json")
    assert json.loads(said)["texts"] == {"negative": 1, "positive": 2}
    page = tmp_path / "page.html"
    code, said, _ = cli("report", str(out), "--output", str(page), "--label", "stars", "--method", "gradient")
    assert (code, said) == (0, f"3 explanations in {page}\n")
    shown = page.read_text(encoding="utf-8")
    assert shown.count('"wrong":true') == 1
    assert "charming" in shown
    code, said, _ = cli("report", str(out), "--output", str(page), "--limit", "2")
    assert "the first of 3" in said
    code, said, _ = cli("evaluate", str(out), "--method", "gae", "--metric", "aopc", "--format", "json")
    assert (code, json.loads(said)["settings"]["texts"]) == (0, 3)


def test_rows_in_error_have_their_own_exit_status(cli, tmp_path: Path) -> None:  # noqa: F811
    file = tmp_path / "a.csv"
    file.write_text('body,other\n"a good film",x\n,y\n"dull",z\n', encoding="utf-8")
    command = ["corpus", str(file), "--text", "body", "--output", str(tmp_path / "out"), "--method", "gradient"]
    code, said, _ = cli(*command, "--shard-rows", "1")
    assert code == 3
    assert "1 in error (column 'error')" in said
    code, said, _ = cli(*command, "--shard-rows", "1")
    assert (code, "1 in error" in said) == (3, True), "an earlier run's errors count"
    assert pq.read_table(tmp_path / "out")["error"].null_count == 2


def test_what_reads_an_unfinished_run_says_so(cli, data: Path, tmp_path: Path) -> None:  # noqa: F811
    out, page = tmp_path / "out", tmp_path / "page.html"
    cli("corpus", str(data), "--output", str(out), "--method", "gradient", "--shard-rows", "1")
    commands = [("report", str(out), "--output", str(page)), ("classes", str(out))]
    for command in commands:
        assert "is not finished" not in cli(*command)[2]
    (out / "shard-000001.parquet").unlink()
    for command in commands:
        code, _, complained = cli(*command)
        assert code == 0
        assert f"whence: the run in {str(out)!r} is not finished: 2 of 3 shards are there" in complained


def test_broken_runs_are_sentences(cli, data: Path, tmp_path: Path) -> None:  # noqa: F811
    out = tmp_path / "out"
    again = ("corpus", str(data), "--output", str(out), "--method", "gradient")
    cli(*again)
    commands = [("report", str(out), "--output", str(tmp_path / "page.html")), ("classes", str(out))]
    commands += [("evaluate", str(out), "--method", "random"), ("tune", str(out), "--output", str(tmp_path / "recipe"))]
    shard, manifest = out / "shard-000000.parquet", out / "_manifest.json"
    whole = shard.read_bytes()
    shard.write_bytes(b"")
    for command in commands:
        code, _, complained = cli(*command)
        assert (code, "is no shard of a run" in complained) == (2, True)
    code, said, complained = cli(*again)
    assert (code, "3 rows in 1 shards" in said) == (0, True)
    assert "whence: 1 of the 1 shards in" in complained
    assert shard.read_bytes() == whole
    for wrong in ("{}", "[]", "null", '{"settings": null}', '{"settings": {}}'):
        manifest.write_text(wrong)
        for command in commands:
            code, _, complained = cli(*command)
            assert (code, "is no manifest of a run" in complained) == (2, True)
        code, said, complained = cli(*again)
        assert (code, "(complete: nothing was missing)" in said) == (0, True)
        assert "was damaged or lost, and is written again" in complained


def test_an_empty_input_is_not_the_whole_directory(cli, data: Path, tmp_path: Path, monkeypatch) -> None:  # noqa: F811
    monkeypatch.chdir(tmp_path)
    for inputs in ([""], [data.name, ""]):
        code, _, complained = cli("corpus", *inputs, "--output", "out", "--method", "gradient")
        assert (code, "an empty name names no data" in complained) == (2, True)


def test_kept_values_that_do_not_fit_are_counted(cli, tmp_path: Path) -> None:  # noqa: F811
    rows = [{"text": "good film", "id": i} for i in range(1000)] + [{"text": "bad film", "id": 2**70}]
    file = tmp_path / "a.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    code, said, _ = cli("corpus", str(file), "--output", str(tmp_path / "out"), "--method", "random", "--keep", "id")
    assert (code, "1 kept values of another type left null" in said) == (0, True)


def test_pages_of_saved_json(cli, tmp_path: Path) -> None:  # noqa: F811
    _, said, _ = cli("explain", "-", "--format", "json", "--method", "gae", stdin="good film\nbad film\n")
    saved = tmp_path / "saved.json"
    saved.write_text(said, encoding="utf-8")
    code, said, _ = cli("report", str(saved), "--output", str(tmp_path / "page.html"))
    assert (code, said[:14]) == (0, "2 explanations")
    for unreadable in ("[" * 100_000, "9" * 5000):
        saved.write_text(unreadable, encoding="utf-8")
        code, _, complained = cli("report", str(saved))
        assert (code, "is neither JSON nor JSON lines" in complained) == (2, True)
    saved.write_text('["no explanation"]', encoding="utf-8")
    code, _, complained = cli("report", str(saved))
    assert (code, "no saved explanations" in complained) == (2, True)
    code, _, complained = cli("report", str(tmp_path / "missing"))
    assert (code, "cannot be read" in complained) == (2, True)
