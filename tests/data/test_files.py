"""Any stretch of rows of any file equals the same stretch of the whole."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whence.data import Files, expand, source_of, stream
from whence.data import files as module
from whence.errors import InputError

ROWS = [{"text": f"row {i}" + ('\nwith, a "line"' if i % 7 == 0 else ""), "n": str(i)} for i in range(100)]


def write(folder: Path) -> list[Path]:
    """The same hundred rows in two files of each kind."""
    found = []
    for part, rows in enumerate((ROWS[:64], ROWS[64:])):
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{part}.parquet", row_group_size=10)
        (folder / f"{part}.jsonl").write_text("\n\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
        for suffix, delimiter in ((".csv", ","), (".tsv", "\t")):
            with (folder / f"{part}{suffix}").open("w", newline="", encoding="utf-8-sig") as file:
                table = csv.DictWriter(file, ["text", "n"], delimiter=delimiter)
                table.writeheader()
                table.writerows(rows)
        found += [folder / f"{part}.parquet"]
    return found


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv", "tsv"])
def test_any_stretch_of_rows(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEP", 8)
    write(tmp_path)
    source = source_of(str(tmp_path / f"*.{kind}"))
    assert isinstance(source, Files)
    assert len(source) == 100
    for start, stop in (
        (0, 100),
        (0, 1),
        (8, 16),
        (16, 24),
        (3, 70),
        (60, 68),
        (99, 100),
        (20, 21),
        (24, 40),
        (64, 100),
    ):
        assert source.read(start, stop) == ROWS[start:stop]
    assert list(stream(expand(str(tmp_path / f"*.{kind}")) or [])) == ROWS


def test_only_the_columns_that_are_wanted(tmp_path: Path) -> None:
    source = source_of(write(tmp_path))
    source.columns = ("text",)
    assert source.read(0, 2) == [{"text": r["text"]} for r in ROWS[:2]]


def test_directories_patterns_and_names(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "_hidden.csv").write_text("text\nno\n")
    (tmp_path / "notes.txt").write_text("no")
    assert len(expand(tmp_path) or []) == 8
    assert expand("glue/sst2") is None
    with pytest.raises(InputError, match="no file fits the pattern"):
        expand(str(tmp_path / "*.json"))
    with pytest.raises(InputError, match="there is no file"):
        expand(str(tmp_path / "missing"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no file"):
        expand(tmp_path / "empty")


def test_a_record_that_cannot_be_read_stands_in_its_place(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"text": "a"}\n{oops\n{"text": "\xff"}\n"plain"\n')
    found = source_of(file).read(0, 4)
    assert isinstance(found[1], InputError)
    assert "record 2 is not JSON" in str(found[1])
    assert found[2]["text"] == "\udcff"
    assert found[3] == "plain"
    (tmp_path / "short.csv").write_text("text,n\na\nb,2,3\n")
    assert source_of(tmp_path / "short.csv").read(0, 2) == [{"text": "a", "n": None}, {"text": "b", "n": "2"}]
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        source_of(tmp_path / "bad.parquet")


def test_other_data_have_another_identity(tmp_path: Path) -> None:
    def identity(content: Any) -> str:
        (tmp_path / "a.jsonl").write_text(json.dumps(content))
        return source_of(tmp_path / "a.jsonl").identity()

    assert identity({"text": "a"}) == identity({"text": "a"})
    assert identity({"text": "a"}) != identity({"text": "b"})
    assert source_of(["a", "b"]).identity() != source_of(["a", "c"]).identity()


def test_datasets_objects() -> None:
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_list(ROWS)
    source = source_of(made)
    assert source.read(10, 12) == ROWS[10:12]
    assert source.identity() == source_of(datasets.Dataset.from_list(ROWS)).identity()
    with pytest.raises(InputError, match="several splits"):
        source_of(datasets.DatasetDict({"test": made}))
