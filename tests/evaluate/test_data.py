"""Data of every kind, columns guessed or named, and errors that say what to do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whence.corpus.sources import guess
from whence.errors import InputError, UnknownName, WhenceError
from whence.evaluate.data import answer_of, answer_tokens, class_of, marked_tokens, read

ROWS = [{"sentence": "good, really", "label": 1}, {"sentence": "bad", "label": 0}, {"sentence": "so-so", "label": 1}]


def files(folder: Path) -> list[Path]:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), folder / "a.parquet")
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, ROWS)) + "\n\n", encoding="utf-8")
    (folder / "a.csv").write_text('sentence,label\n"good, really",1\nbad,0\nso-so,1\n', encoding="utf-8")
    (folder / "a.tsv").write_text("sentence\tlabel\ngood, really\t1\nbad\t0\nso-so\t1\n", encoding="utf-8")
    return [folder / f"a.{kind}" for kind in ("parquet", "jsonl", "csv", "tsv")]


def test_every_kind_of_file_reads_the_same(tmp_path: Path) -> None:
    for file in files(tmp_path):
        found = read(file)
        assert [e.input for e in found] == ["good, really", "bad", "so-so"]
        assert [class_of(e.label, ("negative", "positive")) for e in found] == [1, 0, 1]
        assert len(read(str(file), limit=2)) == 2


def test_lists_and_objects() -> None:
    assert [e.input for e in read(["a", "b"])] == ["a", "b"]
    assert read([("a", "b")])[0].input == ("a", "b")
    assert [e.input for e in read(iter(ROWS))] == ["good, really", "bad", "so-so"]
    assert read([{"input_ids": [1, 2], "label": "x"}])[0].input == {"input_ids": [1, 2]}


def test_tables_of_other_libraries() -> None:
    datasets, pandas, polars, pyarrow = map(pytest.importorskip, ("datasets", "pandas", "polars", "pyarrow"))
    columns = {key: [row[key] for row in ROWS] for key in ROWS[0]}
    features = datasets.Features({"sentence": datasets.Value("string"), "label": datasets.ClassLabel(names=["n", "p"])})
    dataset = datasets.Dataset.from_dict(columns, features=features)
    for table in (
        *(dataset, dataset.to_iterable_dataset(), dataset.with_format("numpy")),
        *(pandas.DataFrame(columns), polars.DataFrame(columns), pyarrow.table(columns)),
    ):
        found = read(table, limit=2)
        assert [e.input for e in found] == ["good, really", "bad"]
        assert [class_of(e.label, ("n", "p")) for e in found] == [1, 0]
    with pytest.raises(InputError, match="several splits"):
        read(datasets.DatasetDict({"test": dataset}))


def test_datasets_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old names have a configuration after the slash, new ones an owner before it."""
    datasets = pytest.importorskip("datasets")
    known = {("imdb", None): "test", ("glue", "sst2"): "validation", ("owner/own", None): "validation"}
    asked = []

    def load_dataset(path: str, config: str | None, split: str) -> list[dict[str, object]]:
        asked.append((path, config, split))
        if known.get((path, config)) != split:
            raise datasets.exceptions.DatasetNotFoundError(f"{path} has no {split}\nand more")
        return ROWS

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert len(read("imdb", split="test")) == len(read("owner/own")) == len(read("glue/sst2")) == 3
    assert asked[-1] == ("glue", "sst2", "validation")
    with pytest.raises(WhenceError, match=r"'imdb' could not be loaded: imdb has no validation \(a split other than"):
        read("imdb")


def test_columns_are_guessed_or_named() -> None:
    assert guess(["question1", "question2", "label"]) == {"text": "question1", "pair": "question2", "label": "label"}
    assert guess(["question", "context", "answer", "start"])["context"] == "context"
    named = read([{"body": "a", "stars": 1}], columns={"text": "body", "label": "stars"})
    assert (named[0].input, named[0].label) == ("a", 1)
    with pytest.raises(InputError, match="no column 'boddy'; the data have: body"):
        read([{"body": "a"}], columns={"text": "boddy"})
    with pytest.raises(InputError, match="--column text=NAME"):
        read([{"body": "a"}])
    with pytest.raises(UnknownName, match="did you mean 'text'"):
        read([{"body": "a"}], columns={"txt": "body"})


def test_answers_of_squad() -> None:
    squad = {"question": "q", "context": "the cat sat", "answers": {"text": ["cat"], "answer_start": [4]}}
    assert read([squad])[0].answer == (4, 7)
    plain = {"question": "q", "context": "the cat sat", "answer": "cat", "start": 4}
    assert read([plain])[0].answer == (4, 7)
    assert read([{**plain, "answer": "", "start": -1}])[0].answer is None
    offsets = ((0, 0), (0, 1), (0, 0), (0, 3), (4, 7), (8, 11))
    segments = (None, 0, None, 1, 1, 1)
    assert answer_tokens((4, 7), offsets, segments) == (4,)
    assert answer_tokens((40, 47), offsets, segments) is None


def test_rationales_mark_tokens() -> None:
    text = "a really dull film"
    offsets, segments = ((0, 0), (0, 1), (2, 8), (9, 11), (11, 13), (14, 18)), (None, 0, 0, 0, 0, 0)
    expected = [False, False, False, True, True, False]
    assert marked_tokens([[2, 3]], text, offsets, segments).tolist() == expected  # type: ignore[union-attr]
    assert marked_tokens([0, 0, 1, 0], text, offsets, segments).tolist() == expected  # type: ignore[union-attr]
    assert marked_tokens([], text, offsets, segments) is None


def test_labels() -> None:
    names = ("World", "Sports")
    assert [class_of(x, names) for x in ("sports", "1", 1, np.int64(0), None, -1)] == [1, 1, 1, 0, None, None]
    assert class_of(float("nan"), names) is None
    with pytest.raises(UnknownName, match="did you mean 'Sports'"):
        class_of("sport", names)
    with pytest.raises(InputError, match="label 5 in the data"):
        class_of(5, names)


def test_errors_name_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="there is no file"):
        read(tmp_path / "missing.csv")
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{oops\n', encoding="utf-8")
    with pytest.raises(InputError, match="record 2 is not JSON"):
        read(tmp_path / "bad.jsonl")
    (tmp_path / "a.txt").write_text("a", encoding="utf-8")
    with pytest.raises(InputError, match=r"ends in \.parquet"):
        read(tmp_path / "a.txt")
    with pytest.raises(InputError, match="hold no rows"):
        read([])
    with pytest.raises(InputError, match="several splits"):
        read({"train": [], "test": []})
    for module in ("datasets", "pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(WhenceError, match="pip install datasets"):
        read("glue/sst2")
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(WhenceError, match="pip install pyarrow"):
        read(tmp_path / "a.parquet")


def test_a_random_sample_is_drawn_by_its_seed() -> None:
    many = [f"text {i}" for i in range(50)]
    one, again, other = (read(many, limit=5, shuffle=True, seed=s) for s in (0, 0, 1))
    assert one == again
    assert one != other


def test_where_an_answer_stands() -> None:
    rows: list[dict[str, Any]] = [
        {"answer": "Rome", "start": 3},
        {"answer": ["Rome", "in Rome"], "start": [3, 0]},
        {"answer": np.array(["Rome"]), "start": np.array([3])},
        {"answer": {"text": ["Rome"], "answer_start": [3]}},
    ]
    assert {answer_of(row) for row in rows} == {(3, 7)}
    nothing: list[dict[str, Any]] = [
        {},
        {"answer": [], "start": []},
        {"answer": [None], "start": []},  # found by fuzzing
        {"answer": ["Rome"], "start": []},
        {"answer": "Rome", "start": -1},
        {"answer": {"text": [], "answer_start": []}},
    ]
    assert {answer_of(row) for row in nothing} == {None}
    with pytest.raises(InputError, match="start of an answer"):
        answer_of({"answer": "Rome", "start": "three"})
