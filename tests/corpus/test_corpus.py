"""A corpus run: what it writes, what it refuses, and what a bad row, a bad model or a bad disk costs."""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import resource
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
import torch

import whence
import whence.corpus
import whence.run.provenance
from tests import architectures
from tests.corpus.common import METHODS, checkpoint, made, shards, texts
from whence.corpus import cluster, plan, worker
from whence.corpus.job import MAX_PADDING
from whence.corpus.sources.files import MANIFEST
from whence.corpus.table import COLUMNS
from whence.errors import InputError, ModelError, NotSupported, UnknownName, WhenceError

SMALL: dict[str, Any] = {"shard_rows": 8, "batch_tokens": 128, "progress": False}


@pytest.fixture(scope="module")
def tiny() -> whence.Explainer:
    return whence.load(architectures.model("bert", torch.float32), architectures.tokenizer())


@pytest.fixture(scope="module")
def done(tiny: whence.Explainer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty rows, two of them poisoned, in three shards."""
    folder = tmp_path_factory.mktemp("run") / "out"
    rows: list[Any] = [{"text": t, "stars": i % 5, "more": {"a": [i]}} for i, t in enumerate(texts(20))]
    rows[3]["text"], rows[17]["text"] = "", None
    summary = whence.corpus.run(rows, folder, tiny, METHODS, keep=["stars", "more"], **SMALL)
    assert (summary.rows, summary.errors, summary.shards, summary.made) == (20, 2, 3, 20)
    return folder


# ---- what is written ----------------------------------------------------------------------------------------------


def test_explanations_come_back_as_they_were(done: Path, tiny: whence.Explainer) -> None:
    saved = whence.corpus.open(done)
    assert saved.methods == METHODS
    assert (len(saved), saved.complete) == (20, True)
    given = [t for i, t in enumerate(texts(20)) if i not in (3, 17)]
    for name in METHODS:
        assert len(saved[name]) == 18
        for e, again, expected in zip(saved[name], list(saved[name]), tiny.explain(given, name), strict=True):
            assert e == again
            np.testing.assert_allclose(e.scores, expected.scores, rtol=1e-4, atol=1e-6)
            own, other = e.to_dict(), expected.to_dict()
            for key in ("scores", "probability", "layers"):
                own.pop(key), other.pop(key)
            assert own == other
    assert saved["gae"][-1] == list(saved["gae"])[17]
    assert saved["gae"][7:9] == list(saved["gae"])[7:9]  # over the end of a shard
    assert [row for row, _ in saved.errors()] == [3, 17]
    assert "is empty" in dict(saved.errors())[3]
    assert list(saved.column("stars")) == [i % 5 for i in range(20) if i not in (3, 17)]
    with pytest.raises(UnknownName, match="did you mean 'gae'"):
        saved["gea"]


def test_the_schema_is_the_documented_one(done: Path) -> None:
    schema = pq.read_schema(done / "shard-000000.parquet")
    assert schema.names == ["row", "stars", "more", *list(COLUMNS)[1:], "scores"]
    assert schema.field("scores").type == pa.struct([(m, pa.list_(pa.float32())) for m in METHODS])
    assert schema.field("tokens").type == pa.list_(pa.string())
    page = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
    for name in (*COLUMNS, "scores"):
        assert f"`{name}`" in page
    meta = pq.ParquetFile(done / "shard-000000.parquet").metadata
    assert meta.row_group(0).column(0).compression == "ZSTD"


def test_every_reader_opens_it(done: Path) -> None:
    whole = pyarrow.dataset.dataset(done).to_table()
    assert whole["row"].to_pylist() == list(range(20))
    good = whole.filter(pa.compute.is_null(whole["error"])).to_pylist()
    assert len(good) == 18
    for line in good:
        assert len(line["tokens"]) == len(line["offsets"]) == len(line["special"]) == len(line["scores"]["gae"])
        assert line["text"][line["offsets"][1]["start"] : line["offsets"][1]["end"]].lower() == line["tokens"][1]
    first = good[0]["scores"]["gae"]
    pattern = str(done / "*.parquet")

    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(done)
    assert len(frame) == 20
    assert frame["scores"][0]["gae"].tolist() == first

    polars = pytest.importorskip("polars")
    table = polars.read_parquet(pattern)
    assert table.height == 20
    assert table["scores"].struct.field("gae")[0].to_list() == first

    duckdb = pytest.importorskip("duckdb")
    answer = duckdb.sql(
        f"select row, len(tokens), scores.gae from '{pattern}' where error is null order by row"
    ).fetchall()
    assert len(answer) == 18
    assert list(answer[0][2]) == first

    datasets = pytest.importorskip("datasets")
    loaded = datasets.load_dataset("parquet", data_files=pattern, split="train", cache_dir=str(done.parent / "cache"))
    assert loaded.num_rows == 20
    assert loaded[0]["scores"]["gae"] == first


@pytest.mark.parametrize("kind", ["float16", "float64"])
def test_scores_in_other_types(tiny: whence.Explainer, tmp_path: Path, kind: str) -> None:
    whence.corpus.run(texts(5), tmp_path / "out", tiny, "gae", scores=kind, **SMALL)
    e = next(iter(whence.corpus.open(tmp_path / "out")))
    assert e.scores.dtype == kind
    np.testing.assert_allclose(e.scores, tiny.explain(texts(5)[0], "gae").scores, rtol=2e-3, atol=1e-6)
    import pandas

    assert pandas.read_parquet(tmp_path / "out")["scores"][0]["gae"].dtype == kind


def test_padding_stays_below_five_percent(tiny: whence.Explainer, tmp_path: Path) -> None:
    done = whence.corpus.run(
        texts(400), tmp_path / "out", tiny, "gradient-x-input", shard_rows=200, batch_tokens=256, progress=False
    )
    assert 0 < done.profile.padding < MAX_PADDING
    assert done.tokens == done.profile.tokens
    assert set(done.profile.seconds) == {"read", "tokenise", "run", "write"}


# ---- once and only once -------------------------------------------------------------------------------------------


def test_a_second_run_does_what_is_missing(done: Path, tiny: whence.Explainer, tmp_path: Path) -> None:
    rows = texts(20)
    first = whence.corpus.run(rows, tmp_path, tiny, METHODS, **SMALL)
    bytes_before = shards(tmp_path)
    kept = (tmp_path / "shard-000000.parquet").stat().st_mtime_ns
    (tmp_path / "shard-000001.parquet").unlink()
    (tmp_path / ".shard-000001.parquet.1-abc.partial").write_bytes(b"half")
    again = whence.corpus.run(rows, tmp_path, tiny, METHODS, **SMALL)
    assert (again.made, again.rows, first.made) == (8, 20, 20)
    assert shards(tmp_path) == bytes_before
    assert (tmp_path / "shard-000000.parquet").stat().st_mtime_ns == kept
    assert not list(tmp_path.glob(".*"))
    assert whence.corpus.run(rows, tmp_path, tiny, METHODS, **SMALL).made == 0
    runs = json.loads((tmp_path / MANIFEST).read_text())["runs"]
    assert [r["rows"] for r in runs] == [20, 8]
    assert {"started", "seconds", "versions", "engine"} <= set(runs[0])


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"method": ["gae"]}, "methods"),
        ({"target": 1}, "asked"),
        ({"shard_rows": 9}, "shard_rows"),
        ({"data": texts(20, seed=1)}, "data"),
        ({"scores": "float16"}, "scores"),
        ({"variant": "paper"}, "methods"),
    ],
)
def test_other_settings_are_refused_and_shown(
    tiny: whence.Explainer, tmp_path: Path, change: dict[str, Any], names: str
) -> None:
    given: dict[str, Any] = {"data": texts(20), "method": ["attcat", "gae"], **SMALL}
    whence.corpus.run(output=tmp_path, model=tiny, **given)
    before = shards(tmp_path)
    with pytest.raises(InputError, match=rf"(?s)other settings:\nsetting +saved +asked\n.*{names} "):
        whence.corpus.run(output=tmp_path, model=tiny, **{**given, **change})
    assert shards(tmp_path) == before


def test_a_file_that_was_changed_is_other_data(tiny: whence.Explainer, tmp_path: Path) -> None:
    """In its middle, to rows of the same length: old and new rows are never mixed."""
    data, out = tmp_path / "data.jsonl", tmp_path / "out"
    rows = [json.dumps({"text": "good film", "more": "x" * 10_000}) for _ in range(20)]
    data.write_text("\n".join(rows), encoding="utf-8")
    whence.corpus.run(data, out, tiny, "gae", **SMALL)
    (out / "shard-000001.parquet").unlink()
    rows[10] = rows[10].replace("good", "poor")
    data.write_text("\n".join(rows), encoding="utf-8")
    with pytest.raises(InputError, match=r"(?s)other settings:.*data "):
        whence.corpus.run(data, out, tiny, "gae", **SMALL)


def test_a_run_into_a_directory_of_its_data_goes_on(tiny: whence.Explainer, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": texts(20)}), tmp_path / "data.parquet")
    out = tmp_path / "out"
    first = whence.corpus.run(tmp_path, out, tiny, "gae", **SMALL)
    (out / "shard-000001.parquet").unlink()
    again = whence.corpus.run(tmp_path, out, tiny, "gae", **SMALL)
    assert (first.made, again.made, again.rows) == (20, 8, 20)


def test_other_weights_are_refused(tiny: whence.Explainer, tmp_path: Path) -> None:
    whence.corpus.run(texts(5), tmp_path, tiny, "gae", **SMALL)
    other = architectures.build("bert").float()
    with torch.no_grad():
        other.classifier.bias += 1.0
    with pytest.raises(InputError, match="weights"):
        whence.corpus.run(texts(5), tmp_path, whence.load(other, architectures.tokenizer()), "gae", **SMALL)


def test_a_directory_of_other_things_is_refused(tiny: whence.Explainer, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="not of a run"):
        whence.corpus.run(texts(5), tmp_path, tiny, "gae", **SMALL)


def test_one_run_at_a_time(tiny: whence.Explainer, tmp_path: Path) -> None:
    from whence.corpus.manifest import held

    with held(tmp_path), pytest.raises(WhenceError, match="another run is writing"):
        whence.corpus.run(texts(5), tmp_path, tiny, "gae", **SMALL)


def test_two_processes_write_the_same(tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "model")
    rows = [*texts(40), ""]
    whence.corpus.run(rows, tmp_path / "one", model, METHODS, threads=1, **SMALL)
    two = whence.corpus.run(rows, tmp_path / "two", model, METHODS, threads=1, workers=2, **SMALL)
    assert (two.rows, two.errors, two.made) == (41, 1, 41)
    assert shards(tmp_path / "one") == shards(tmp_path / "two")
    with pytest.raises(InputError, match="give its name or directory"):
        whence.corpus.run(rows, tmp_path / "x", whence.load(model), METHODS, workers=2, **SMALL)


# ---- bad rows, bad models, bad disks ------------------------------------------------------------------------------


POISON: list[Any] = ["", "   ", None, 5, "a \ud800 film", b"bytes", ["a", "b", "c"], {"input_ids": [2, 9999, 3]}, {}]


def test_a_poisoned_row_costs_only_itself(tiny: whence.Explainer, tmp_path: Path) -> None:
    rows: list[Any] = list(texts(30))
    for i, bad in enumerate(POISON):
        rows.insert(3 * i + 1, bad)
    done = whence.corpus.run(rows, tmp_path / "out", tiny, METHODS, **SMALL)
    assert (done.rows, done.errors) == (30 + len(POISON), len(POISON))
    saved = whence.corpus.open(tmp_path / "out")
    errors = dict(saved.errors())
    assert sorted(errors) == [3 * i + 1 for i in range(len(POISON))]
    assert "outside the model's vocabulary" in errors[22]
    assert [e.text for e in saved["gae"]] == texts(30)


KEPT: list[tuple[list[Any], Any]] = [  # what a column holds, and what is kept of it
    ([1, 2.5, "z", [1], {"b": 1, "a": None}, None], ["1", "2.5", "z", "[1]", '{"a": null, "b": 1}', None]),
    ([{"a": 1}, {"a": "x"}], ['{"a": 1}', '{"a": "x"}']),
    ([2**70, 3], [str(2**70), "3"]),
    (["a", 5], ["a", "5"]),
    ([{}, {}], ["{}", "{}"]),
    (["\ud800", "a"], [None, "a"]),
]


@pytest.mark.parametrize(("given", "kept"), KEPT)
def test_kept_columns_of_no_one_type_are_text(
    tiny: whence.Explainer, tmp_path: Path, given: list[Any], kept: list[Any]
) -> None:
    rows = [{"text": "good film", "k": value} for value in given]
    done = whence.corpus.run(rows, tmp_path / "out", tiny, "gae", keep=["k"], **SMALL)
    assert (done.errors, done.unkept) == (0, kept.count(None) - given.count(None))
    assert list(whence.corpus.open(tmp_path / "out").column("k")) == kept


@pytest.mark.parametrize(("early", "late"), [(None, "7"), (1, None), ({"a": 1}, None), (2**40, None)])
def test_a_kept_value_that_comes_late(
    tiny: whence.Explainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, early: Any, late: Any
) -> None:
    """After the rows that the column's type is told from: as text in a column of text, else null, and the row says why. It
    keeps its scores."""
    monkeypatch.setattr(plan, "LOOK", 4)
    odd = {None: 7, 1: "seven", 2**40: 2**70}.get(early if not isinstance(early, dict) else 0, {"a": "x"})
    rows = [{"text": "good film", "k": early} for _ in range(4)] + [{"text": "bad film", "k": odd}]
    for _ in range(2):  # what is there is counted as it was
        done = whence.corpus.run(rows, tmp_path, tiny, "gae", keep=["k"], **SMALL)
        assert (done.errors, done.unkept) == (0, int(late is None))
    saved = whence.corpus.open(tmp_path)
    assert list(saved.column("k")) == [early] * 4 + [late]
    assert saved["gae"][4].options == saved["gae"][0].options
    facts = pq.read_table(tmp_path)["facts"].to_pylist()
    assert facts[:4] == [None] * 4
    if late is None:
        assert "as in the first rows" in json.loads(facts[4])["--keep"]["k"]


def test_lines_that_cannot_be_read_cost_only_themselves(tiny: whence.Explainer, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    lines = ['{"text": "good film", "id": ' + "9" * 5000 + "}", '{"text": "good film"}', "[" * 100_000 + "]" * 100_000]
    data.write_text("\n".join(lines), encoding="utf-8")
    done = whence.corpus.run(data, tmp_path / "out", tiny, "gae", **SMALL)
    assert (done.rows, done.errors) == (3, 2)
    errors = dict(whence.corpus.open(tmp_path / "out").errors())
    assert sorted(errors) == [0, 2]
    assert "record 1 is not JSON" in errors[0]


@pytest.mark.parametrize("rest", [0, 300])
def test_a_shard_that_was_cut_off_is_a_sentence(done: Path, tmp_path: Path, rest: int) -> None:
    shutil.copytree(done, tmp_path / "out")
    file = tmp_path / "out" / "shard-000001.parquet"
    file.write_bytes(file.read_bytes()[:rest])
    saved = whence.corpus.open(tmp_path / "out")
    reads: list[Callable[[], Any]] = [
        lambda: len(saved),
        lambda: list(saved),
        lambda: saved["gae"][8],
        lambda: list(saved.errors()),
        lambda: list(saved.column("stars")),
    ]
    for read in reads:
        with pytest.raises(InputError, match=r"shard-000001.parquet' is no shard of a run .*: delete it"):
            read()


def test_a_row_that_fails_in_its_batch(tiny: whence.Explainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoding is fine, the model chokes on one row: its mates are run again without it."""
    rows = texts(16)
    right = tiny.attribute

    def attribute(encoded: Any, *args: Any, **kwargs: Any) -> Any:
        if any(row.text == rows[5] for row in encoded if len(row) == len(rows[5].split()) + 2):
            raise RuntimeError("a shape that no kernel takes")
        return right(encoded, *args, **kwargs)

    monkeypatch.setattr(tiny, "attribute", attribute)
    monkeypatch.setattr(tiny, "explain", lambda item, names, **_: dict.fromkeys(names))
    done = whence.corpus.run(rows, tmp_path / "out", tiny, ["gae"], **SMALL)
    assert done.errors == 1
    assert list(whence.corpus.open(tmp_path / "out").errors()) == [(5, "RuntimeError: a shape that no kernel takes")]


def test_a_limit_of_a_method_is_the_rows_error(tiny: whence.Explainer, tmp_path: Path) -> None:
    rows = ["good film", "good " * 20, "bad film"]
    done = whence.corpus.run(rows, tmp_path / "out", tiny, "attention-flow", max_tokens=10, **SMALL)
    assert done.errors == 1
    assert "use rollout" in dict(whence.corpus.open(tmp_path / "out").errors())[1]


def test_a_broken_model_ends_the_run(tmp_path: Path) -> None:
    model = architectures.build("bert").float()
    with torch.no_grad():
        model.bert.encoder.layer[1].attention.self.query.weight[0, 0] = float("nan")
    broken = whence.load(model, architectures.tokenizer())
    with pytest.raises(ModelError, match=r"encoder\.layer\.1"):
        whence.corpus.run(texts(20), tmp_path / "out", broken, "gae", **SMALL)
    assert made(tmp_path / "out") == 0


def test_a_model_that_breaks_on_the_way_ends_the_run(
    tiny: whence.Explainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, calls = tiny.attribute, 0

    def attribute(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 4:
            raise ModelError("the logits are not finite numbers")
        return right(*args, **kwargs)

    monkeypatch.setattr(tiny, "attribute", attribute)
    with pytest.raises(ModelError, match="not finite"):
        whence.corpus.run(texts(40), tmp_path / "out", tiny, "gae", **SMALL)


def test_what_every_row_would_meet_is_said_at_once(tiny: whence.Explainer, tmp_path: Path) -> None:
    def run(**changes: Any) -> Any:
        given: dict[str, Any] = {"data": texts(5), "method": "gae", **SMALL, **changes}
        return whence.corpus.run(output=tmp_path / "out", model=tiny, **given)

    with pytest.raises(UnknownName, match="did you mean 'gae'"):
        run(method="gea")
    with pytest.raises(UnknownName, match="option"):
        run(layre=3)
    with pytest.raises(UnknownName, match="engine"):
        run(engine="spark")
    with pytest.raises(NotSupported, match="language-model head"):
        run(method="decoded-grad-cam")
    with pytest.raises(InputError, match=r"none of the first 5 rows can be explained.*out of range"):
        run(target=99)
    with pytest.raises(InputError, match="no rows"):
        run(data=[])
    with pytest.raises(InputError, match="by row number"):
        run(data=iter(texts(5)))
    with pytest.raises(InputError, match="no column 'body'"):
        run(data=[{"text": "a"}], columns={"text": "body"})
    with pytest.raises(InputError, match="no column 'stars' to keep"):
        run(data=[{"text": "a"}], keep=["stars"])
    with pytest.raises(InputError, match="of its own: rename"):
        run(data=[{"text": "good", "target": 1}], keep=["target"])
    with pytest.raises(InputError, match="shard_rows=0"):
        run(shard_rows=0)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_error_loses_nothing_finished(
    tiny: whence.Explainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    rows, right, calls = texts(40), os.fsync, 0

    def fsync(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 6:  # manifest and directory, then two shards and directory
            raise OSError(number, os.strerror(number))
        right(handle)

    monkeypatch.setattr(whence.run.provenance.os, "fsync", fsync)
    says = {errno.ENOSPC: "no space left", errno.EROFS: "nothing may be written", errno.EIO: "cannot be used"}[number]
    with pytest.raises(WhenceError, match=says):
        whence.corpus.run(rows, tmp_path / "out", tiny, METHODS, **SMALL)
    there = shards(tmp_path / "out")
    assert len(there) == 2
    assert not list((tmp_path / "out").glob(".*"))
    monkeypatch.undo()
    whence.corpus.run(rows, tmp_path / "out", tiny, METHODS, **SMALL)
    whence.corpus.run(rows, tmp_path / "whole", tiny, METHODS, **SMALL)
    assert shards(tmp_path / "out") == shards(tmp_path / "whole")
    assert there.items() <= shards(tmp_path / "whole").items()


def test_a_file_size_limit_is_a_full_disk(tiny: whence.Explainer, tmp_path: Path) -> None:
    """The system itself refuses to write on: no mock."""
    import signal

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        with pytest.raises(WhenceError, match="no space left"):
            whence.corpus.run(texts(40), tmp_path / "out", tiny, METHODS, **SMALL)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert made(tmp_path / "out") == 0
    assert whence.corpus.run(texts(40), tmp_path / "out", tiny, METHODS, **SMALL).made == 40


@pytest.mark.skipif(os.geteuid() != 0, reason="needs mount")
def test_a_tiny_disk_and_a_read_only_one(tiny: whence.Explainer, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(WhenceError, match="no space left"):
            whence.corpus.run(texts(200), disk, tiny, METHODS, **SMALL)
        there = shards(disk)
        assert there
        subprocess.run(["mount", "-o", "remount,ro,size=48k", disk], check=True)
        with pytest.raises(WhenceError, match="nothing may be written"):
            whence.corpus.run(texts(200), disk, tiny, METHODS, **SMALL)
        subprocess.run(["mount", "-o", "remount,rw,size=8m", disk], check=True)
        whence.corpus.run(texts(200), disk, tiny, METHODS, **SMALL)
        assert there.items() <= shards(disk).items()
        assert made(disk) == 25
        subprocess.run(["mount", "-o", "remount,ro,size=8m", disk], check=True)
        done = whence.corpus.run(texts(200), disk, tiny, METHODS, **SMALL)
        assert (done.rows, done.made) == (200, 0)
    finally:
        subprocess.run(["umount", disk], check=True)


def make_read_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call that would write below a folder fails as on a read-only disk; root may write whatever a directory's mode says."""

    def refusing(call: Any, writes: Callable[..., bool] = lambda *_: True) -> Any:
        def refused(path: Any, *args: Any, **more: Any) -> Any:
            below = isinstance(path, (str, Path)) and Path(path).is_relative_to(folder)
            if below and writes(*args, *more.values()):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            return call(path, *args, **more)

        return refused

    monkeypatch.setattr(io, "open", refusing(io.open, lambda mode="r", *_: bool(set(mode) & set("wax+"))))
    monkeypatch.setattr(
        os, "open", refusing(os.open, lambda flags, *_: bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)))
    )
    for name in ("replace", "rename", "unlink", "mkdir", "rmdir"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))


def test_a_complete_run_is_complete_on_a_read_only_disk(
    tiny: whence.Explainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, out = texts(20), tmp_path / "out"
    whence.corpus.run(rows, out, tiny, METHODS, **SMALL)
    (out / "_lock").unlink()  # as in a copy
    with monkeypatch.context() as disk:
        make_read_only(out, disk)
        done = whence.corpus.run(rows, out, tiny, METHODS, **SMALL)
        assert (done.rows, done.shards, done.made) == (20, 3, 0)
        with pytest.raises(InputError, match="other settings"):
            whence.corpus.run(rows, out, tiny, "gae", **SMALL)
    whole = (out / MANIFEST).read_bytes()
    for name, content in (("shard-000001.parquet", b"PAR1"), (MANIFEST, whole[:-20])):
        (out / name).write_bytes(content)
        with monkeypatch.context() as disk:
            make_read_only(out, disk)
            with pytest.raises(WhenceError, match="nothing may be written into"):
                whence.corpus.run(rows, out, tiny, METHODS, **SMALL)


def test_a_lock_that_may_not_be_taken_lets_nothing_be_written(
    tiny: whence.Explainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory that may be written to: another run could have the lock."""
    right = io.open

    def refused(path: Any, *args: Any, **more: Any) -> Any:
        if str(path).endswith("_lock"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return right(path, *args, **more)

    monkeypatch.setattr(io, "open", refused)
    with pytest.raises(WhenceError, match="nothing may be written into"):
        whence.corpus.run(texts(5), tmp_path, tiny, "gae", **SMALL)
    assert not list(tmp_path.iterdir())


# ---- tasks --------------------------------------------------------------------------------------------------------


def test_all_targets_have_a_line_each(tiny: whence.Explainer, tmp_path: Path) -> None:
    whence.corpus.run(texts(9), tmp_path, tiny, "gae", target="all", **SMALL)
    table = pq.read_table(tmp_path)
    assert table["row"].to_pylist() == [i for i in range(9) for _ in tiny.labels]
    assert table["target"].to_pylist() == list(tiny.labels) * 9
    assert len(whence.corpus.open(tmp_path)["gae"]) == 27


def test_pairs_and_targets_from_columns(tiny: whence.Explainer, tmp_path: Path) -> None:
    rows = [{"premise": t, "hypothesis": "good film", "gold": tiny.labels[i % 3]} for i, t in enumerate(texts(9))]
    done = whence.corpus.run(
        rows,
        tmp_path,
        tiny,
        "gae",
        columns={"text": "premise", "pair": "hypothesis", "target": "gold"},
        limit=7,
        **SMALL,
    )
    assert done.rows == 7
    found = list(whence.corpus.open(tmp_path))
    assert [e.target for e in found] == [tiny.labels[i % 3] for i in range(7)]
    assert {e.pair for e in found} == {"good film"}


def test_questions_masks_and_drawn_methods(tmp_path: Path) -> None:
    qa = whence.load("qa")
    rows = [{"question": "Who wrote it?", "context": "It was written by Anna Smith in Rome."}] * 2
    whence.corpus.run(rows, tmp_path / "qa", qa, "gradient-x-input", **SMALL)
    e = next(iter(whence.corpus.open(tmp_path / "qa")))
    assert (e.text, e.pair) == (rows[0]["question"], rows[0]["context"])
    assert e.target == qa.explain(rows[0], "gradient-x-input").target
    mask = whence.load(architectures.model("bert", torch.float32, "masked-lm"), architectures.tokenizer())
    done = whence.corpus.run(
        ["a good [MASK] .", "no mask here"],
        tmp_path / "mask",
        mask,
        ["integrated-gradients", "random"],
        seed=3,
        **SMALL,
    )
    assert done.errors == 1
    saved = whence.corpus.open(tmp_path / "mask")
    expected = mask.explain("a good [MASK] .", ["integrated-gradients", "random"], seed=3)
    assert saved["random"][0].options == {"seed": 3}
    assert saved["random"][0].scores.tolist() == expected["random"].scores.tolist()
    assert set(saved["integrated-gradients"][0].options) == set(expected["integrated-gradients"].options)


def test_long_texts_are_cut_and_counted_without_a_warning(tiny: whence.Explainer, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = whence.corpus.run(["good " * 100, "good"], tmp_path / "a", tiny, "gae", **SMALL)
    assert done.truncated == 1
    assert [e.truncated for e in whence.corpus.open(tmp_path / "a")] == [True, False]
    refused = whence.corpus.run(["good", "good " * 100], tmp_path / "b", tiny, "gae", on_long="error", **SMALL)
    assert refused.errors == 1


def test_stages_overlap_and_memory_is_bounded(tiny: whence.Explainer, tmp_path: Path) -> None:
    """No more shards are read than the model has asked for, and two ahead."""
    read: list[int] = []
    most = 0
    lock = threading.Lock()

    class Watched(list[str]):
        def __getitem__(self, index: Any) -> Any:
            nonlocal most
            if isinstance(index, slice) and index.stop - index.start == 8:
                with lock:
                    read.append(index.start)
                    most = max(most, len(read) - made(tmp_path / "out"))
            return super().__getitem__(index)

    whence.corpus.run(Watched(texts(160)), tmp_path / "out", tiny, "gae", **SMALL)
    assert len(read) == 20
    assert most <= 6  # two tokenised, one on the model, two or three on their way to the disk


class Died(Exception):
    """What a stand-in for Ray says of an actor that is gone."""


class StandIn:
    """Ray in this process: actors whose calls run on threads of its own, as Ray's do, and which may die at a call."""

    exceptions = SimpleNamespace(RayError=Died)

    def __init__(self, dies: Callable[[int, Any], bool] = lambda actor, shard: False) -> None:
        self.dies, self.made, self.killed = dies, 0, 0
        self.callers = ThreadPoolExecutor(4, "ray")

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def put(self, value: Any) -> Any:
        return pickle.loads(pickle.dumps(value))

    def remote(self, kind: Any) -> Any:
        def actor(*given: Any) -> Any:
            number, self.made = self.made, self.made + 1
            inside = kind(*given)

            def call(name: str, *given: Any) -> Any:
                if self.dies(number, given[-1] if given else None):
                    raise Died("the actor died unexpectedly")
                return getattr(inside, name)(*given)

            def method(name: str) -> Any:
                return SimpleNamespace(remote=lambda *given: self.callers.submit(call, name, *given))

            return SimpleNamespace(ready=method("ready"), make=method("make"))

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=actor))

    def wait(self, awaited: list[Any]) -> Any:
        done = next(futures.as_completed(awaited))
        return [done], [a for a in awaited if a is not done]

    def get(self, done: Any) -> Any:
        return done.result()

    def kill(self, actor: Any) -> None:
        self.killed += 1


def test_an_actor_computes_on_one_thread_whoever_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it loads: every thread that computes keeps a team of helpers, and too many of these fall asleep."""
    seen: set[str] = set()

    def noting(function: Any) -> Any:
        def noted(*args: Any, **more: Any) -> Any:
            seen.add(threading.current_thread().name)
            return function(*args, **more)

        return noted

    monkeypatch.setattr(worker, "load_model", noting(worker.load_model))
    monkeypatch.setattr(worker, "compute", noting(worker.compute))
    monkeypatch.setattr(cluster, "import_ray", StandIn)
    model = str(checkpoint(tmp_path / "model"))
    found = whence.corpus.run(texts(40), tmp_path / "ray", model, "gae", engine="ray", threads=1, **SMALL)
    assert found.rows == 40
    assert seen == {"model_0"}
    whence.corpus.run(texts(40), tmp_path / "local", model, "gae", threads=1, **SMALL)
    assert shards(tmp_path / "ray") == shards(tmp_path / "local")


def test_the_shards_of_actors_that_die_go_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = str(checkpoint(tmp_path / "model"))
    whence.corpus.run(texts(80), tmp_path / "local", model, "gae", threads=1, **SMALL)
    ray = StandIn(lambda actor, shard: (actor, shard) in ((0, 3), (1, 5), (3, None)))  # the fourth never comes up
    monkeypatch.setattr(cluster, "import_ray", lambda: ray)
    found = whence.corpus.run(texts(80), tmp_path / "ray", model, "gae", engine="ray", workers=2, threads=1, **SMALL)
    assert (found.rows, found.made) == (80, 80)
    assert shards(tmp_path / "ray") == shards(tmp_path / "local")
    again = whence.corpus.run(texts(80), tmp_path / "ray", model, "gae", engine="ray", workers=2, threads=1, **SMALL)
    assert again.made == 0
    assert ray.killed >= ray.made  # those that died, and the rest at the end; the second run asked for none
    actors = ray.made
    whence.corpus.run(texts(80), tmp_path / "ray", model, "gae", engine="ray", workers=2, threads=1, **SMALL)
    assert ray.made == actors


def test_an_idle_actor_takes_what_a_dead_one_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Near the end, where there is no room for another."""

    alone, told = threading.Event(), []

    class Full(StandIn):
        def get(self, done: Any) -> Any:
            told.append(done)
            if len(told) >= 11:  # that two actors are there, and all shards but one
                alone.set()
            return super().get(done)

        def remote(self, kind: Any) -> Any:
            made = super().remote(kind)
            if self.made < 2:
                return made
            nothing = SimpleNamespace(remote=lambda *_: futures.Future())  # a third actor is asked for, and never comes
            actor = SimpleNamespace(ready=nothing, make=nothing)
            return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *_: actor))

    def dies(actor: int, shard: Any) -> bool:
        return shard == 0 and alone.wait(60) and actor == 0

    ray = Full(dies)
    monkeypatch.setattr(cluster, "import_ray", lambda: ray)
    model = str(checkpoint(tmp_path / "model"))
    found = whence.corpus.run(texts(80), tmp_path / "ray", model, "gae", engine="ray", workers=2, threads=1, **SMALL)
    assert found.rows == 80


@pytest.mark.parametrize(("dies", "said"), [(4, "survived shard 4"), (None, "came up")])
def test_what_kills_every_actor_ends_the_run(
    dies: int | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(checkpoint(tmp_path / "model"))
    monkeypatch.setattr(cluster, "import_ray", lambda: StandIn(lambda actor, shard: shard == dies))
    with pytest.raises(whence.WhenceError, match=said):
        whence.corpus.run(texts(80), tmp_path / "ray", model, "gae", engine="ray", workers=1, threads=1, **SMALL)
    monkeypatch.setattr(cluster, "import_ray", StandIn)
    found = whence.corpus.run(texts(80), tmp_path / "ray", model, "gae", engine="ray", workers=1, threads=1, **SMALL)
    assert found.rows == 80
    assert found.made < 80 or dies is None  # what was finished is kept


def test_a_cluster_that_was_made_is_taken_down_also_when_it_is_too_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Small(StandIn):
        there, ended = False, 0

        def is_initialized(self) -> bool:
            return self.there

        def shutdown(self) -> None:
            self.ended += 1

    ray = Small()
    monkeypatch.setattr(cluster, "import_ray", lambda: ray)
    monkeypatch.setattr(cluster, "connect", lambda *_: None)
    model = str(checkpoint(tmp_path / "model"))
    with pytest.raises(WhenceError, match="one worker asks for 3 CPUs"):
        whence.corpus.run(texts(8), tmp_path / "ray", model, "gae", engine="ray", threads=3, **SMALL)
    with pytest.raises(WhenceError, match="one worker asks for 3 CPUs"):  # and would never come up
        whence.corpus.run(texts(8), tmp_path / "ray", model, "gae", engine="ray", workers=1, threads=3, **SMALL)
    assert (ray.made, ray.ended) == (0, 2)
    whence.corpus.run(texts(8), tmp_path / "ray", model, "gae", engine="ray", threads=1, **SMALL)
    assert ray.ended == 3


def test_no_ray_no_arrow_are_sentences(tmp_path: Path) -> None:
    script = (
        "import sys\nsys.modules['ray'] = None\nimport whence, whence.corpus\n"
        f"whence.corpus.run(['a good film'], {str(tmp_path / 'x')!r}, engine='ray', method='gradient')"
    )
    source = str(Path(whence.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": source}
    )
    assert "pip install 'whence[ray]'" in done.stderr
