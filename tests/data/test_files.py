"""Any stretch of rows of any file equals the same stretch of the whole."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whence.corpus.sources import Files, expand, source_of, stream
from whence.corpus.sources import files as module
from whence.corpus.sources.files import MANIFEST
from whence.errors import InputError

ROWS = [{"text": f"row {i}" + ('\nwith, a "line"' if i % 7 == 0 else ""), "n": str(i)} for i in range(100)]


def in_lines(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """A .tsv has a row per line."""
    return [{**row, "text": row["text"].replace("\n", " ")} for row in rows]


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
                table.writerows(in_lines(rows) if suffix == ".tsv" else rows)
        found += [folder / f"{part}.parquet"]
    return found


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv", "tsv"])
def test_any_stretch_of_rows(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEP", 8)
    write(tmp_path)
    source = source_of(str(tmp_path / f"*.{kind}"))
    rows = in_lines(ROWS) if kind == "tsv" else ROWS
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
        assert source.read(start, stop) == rows[start:stop]
    assert list(stream(expand(str(tmp_path / f"*.{kind}")) or [])) == rows


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
    (tmp_path / "short.csv").write_text("text,n\na\nb,2,\n")
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


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet"])
def test_a_change_anywhere_is_other_data(tmp_path: Path, kind: str) -> None:
    """Also far from both ends of a file, and where its length stays."""
    file = tmp_path / f"a.{kind}"
    rows = [{"text": f"{i:04d} {'x' * 400}"} for i in range(1000)]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), file, compression="none", use_dictionary=False)
    else:
        file.write_text("\n".join(map(json.dumps, rows) if kind == "jsonl" else ["text", *(r["text"] for r in rows)]))
    before = source_of(file).identity()
    content = file.read_bytes()
    middle = content.index(b"xx", len(content) // 2)
    file.write_bytes(content[:middle] + b"y" + content[middle + 1 :])
    assert source_of(file).identity() != before
    file.write_bytes(content)
    assert source_of(file).identity() == before


QUOTES = 'text\tlabel\n"good film\t1\nbad film\t0\nnice "film"\t1\n"so ""so"""\t0\n'


def test_a_quote_in_a_tsv_swallows_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(QUOTES)
    found = source_of(tmp_path / "a.tsv").read(0, 4)
    assert [r["text"] for r in found] == ['"good film', "bad film", 'nice "film"', 'so "so"']
    assert [r["label"] for r in found] == list("1010")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (
            "a.csv",
            "text,label\nGood, but long,1\nfine,0\n",
            "record 1: the header names 2 columns and.* has 3; put a text",
        ),
        ("a.csv", "text,label\ngo\rod,1\nfine,0\n", "record 1 cannot be read: new-line character .* into quotes"),
        ("a.tsv", "text\tlabel\ngood\tfilm\t1\nfine\t0\n", "record 1: the header names 2 .* has 3; in a .tsv"),
        ("a.tsv", 'text\tlabel\n"good\nfilm"\t1\nfine\t0\n', "record 1: the header names 2 .* has 1; in a .tsv"),
        ("a.jsonl", '{"id": ' + "9" * 5000 + '}\n{"text": "fine"}\n', "record 1 is not JSON: Exceeds the limit"),
        ("a.jsonl", "[" * 100_000 + "]" * 100_000 + '\n{"text": "fine"}\n', "record 1 is not JSON: maximum recursion"),
    ],
)
def test_a_bad_line_costs_only_itself(tmp_path: Path, name: str, content: str, says: str) -> None:
    (tmp_path / name).write_bytes(content.encode())
    source = source_of(tmp_path / name)
    first, *others = source.read(0, len(source))
    with pytest.raises(InputError, match=says):
        raise first
    assert others[-1]["text"] == "fine"
    with pytest.raises(InputError, match=says):
        list(stream([tmp_path / name]))


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_any_stretch_of_rows_some_of_them_bad(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEP", 4)
    good, bad, blank = {
        "csv": ("{}", "a\rb", ""),
        "tsv": ("{}", "a\tb", ""),
        "jsonl": ('{{"text": "{}"}}', "{{oops", " \t"),
    }[kind]
    body = [line for i in range(30) for line in ((bad if i % 3 == 0 else good).format(i), *([blank] * (i % 2)))]
    (tmp_path / f"a.{kind}").write_text("\n".join((["text"] if kind != "jsonl" else []) + body) + "\n", newline="")
    source = source_of(tmp_path / f"a.{kind}")
    assert len(source) == 30
    for start in range(30):
        for i, record in enumerate(source.read(start, 30), start):
            if i % 3:
                assert record == {"text": str(i)}
            else:
                assert f"record {i + 1}" in str(record)


@pytest.mark.parametrize(("name", "header"), [("a.csv", "text,label,text"), ("a.tsv", "text\tlabel\ttext")])
def test_two_columns_of_one_name_are_refused(tmp_path: Path, name: str, header: str) -> None:
    (tmp_path / name).write_text(header + "\n")
    with pytest.raises(InputError, match=rf"{name} has several columns 'text': rename all but one"):
        source_of(tmp_path / name)
    two = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    pq.write_table(two, tmp_path / "a.parquet")
    with pytest.raises(InputError, match="several columns 'text'"):
        list(stream([tmp_path / "a.parquet"]))
    (tmp_path / "a.csv").write_text("text,,\ngood,,\n")  # as spreadsheets write empty columns
    assert source_of(tmp_path / "a.csv").read(0, 1) == [{"text": "good", "": ""}]


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_line_ends_of_carriage_returns_alone_are_a_sentence(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"a.{suffix}").write_bytes(b"text\rgood\rbad\r")
    with pytest.raises(InputError, match="carriage returns alone; save the file with line feeds"):
        source_of(tmp_path / f"a.{suffix}")


def test_a_run_below_the_data_is_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write(tmp_path)
    run = tmp_path / "results" / "out"
    run.mkdir(parents=True)
    shard = run / "shard-000000.parquet"
    shard.write_bytes(files[0].read_bytes())
    everywhere = str(tmp_path / "**" / "*.parquet")
    assert shard in (expand(tmp_path) or [])
    assert expand(everywhere) == [*files, shard]
    (run / MANIFEST).write_text("{}")
    assert shard not in (expand(tmp_path) or [])
    assert expand(everywhere) == files
    assert expand(str(run / "*.parquet")) == expand(run) == [shard]  # what is named is meant
    monkeypatch.chdir(tmp_path)
    assert expand("**/*.parquet") == [Path(f.name) for f in files]
    with pytest.raises(InputError, match=r"holds no file .*does not count"):
        expand(tmp_path / "results")


def test_an_empty_name_is_no_directory() -> None:
    with pytest.raises(InputError, match="an empty name names no data"):
        expand("")


def test_datasets_objects() -> None:
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_list(ROWS)
    source = source_of(made)
    assert source.read(10, 12) == ROWS[10:12]
    assert source.identity() == source_of(datasets.Dataset.from_list(ROWS)).identity()
    with pytest.raises(InputError, match="several splits"):
        source_of(datasets.DatasetDict({"test": made}))


def test_repeated_names_within_a_parquet_column_are_a_sentence(tmp_path: Path) -> None:
    twice = pa.StructArray.from_arrays(
        [pa.array(["a", "b"])] * 2, fields=[pa.field("x", pa.string()), pa.field("x", pa.string())]
    )
    deep = pa.StructArray.from_arrays([twice], names=["inner"])
    lists = pa.ListArray.from_arrays([0, 1, 2], deep)
    for column, where in ((twice, "more"), (deep, r"more\.inner"), (lists, r"more\.inner")):
        file = tmp_path / "a.parquet"
        pq.write_table(pa.table({"text": ["good", "bad"], "more": column}), file)
        for reading in (source_of, lambda path: list(stream([path]))):
            with pytest.raises(
                InputError, match=rf"a\.parquet has several fields 'x' within the column '{where}': rename all but one"
            ):
                reading(file)
    same = pa.array([{"x": {"x": 1}, "text": "x"}] * 2)  # one name at several depths
    pq.write_table(pa.table({"text": ["good", "bad"], "more": same}), file)
    assert source_of(file).read(1, 2) == [{"text": "bad", "more": {"x": {"x": 1}, "text": "x"}}]


def test_a_parquet_value_that_cannot_be_read_costs_its_row(tmp_path: Path) -> None:
    offsets = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, 4, 8, 11)))
    texts = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"goodb\xffadsad")])
    dates = pa.array([2**62, 0, 0], pa.timestamp("us"))
    pq.write_table(pa.table({"text": texts, "at": dates}), tmp_path / "a.parquet", row_group_size=2)
    source = source_of(tmp_path / "a.parquet")
    first, second, third = source.read(0, 3)
    assert str(first).startswith("a.parquet, record 1 cannot be read: date value out of range; mend the value")
    assert "a.parquet, record 2 cannot be read: 'utf-8' codec" in str(second)
    assert third["text"] == "sad"
    source.columns = ("text",)
    assert source.read(0, 1) == [{"text": "good"}]
    with pytest.raises(InputError, match="record 1 cannot be read"):
        list(stream([tmp_path / "a.parquet"]))


def test_broken_pages_of_parquet_are_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"film {i}" for i in range(5000)]}), file)
    data = bytearray(file.read_bytes())
    data[4:2000] = bytes(1996)
    file.write_bytes(data)
    with pytest.raises(InputError, match=r"a\.parquet cannot be read as Parquet: "):
        source_of(file).read(0, 5000)
