"""What a run's directory says of itself, and what is not believed."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whence.corpus.sources import run_records
from whence.corpus.sources.files import MANIFEST
from whence.corpus.sources.runs import about_shard, manifest_of
from whence.errors import InputError

SETTINGS: dict[str, Any] = {
    "methods": [{"name": "gae", "options": {}}],
    "columns": {"text": "text"},
    "keep": [],
    "scores": "float32",
}
GOOD: dict[str, Any] = {"settings": SETTINGS, "shards": 2, "runs": [], "model": "m", "task": "t", "labels": []}


def directory(folder: Path, manifest: Any) -> Path:
    (folder / MANIFEST).write_text(manifest if isinstance(manifest, str) else json.dumps(manifest))
    return folder


def test_a_manifest_comes_back_as_it_is(tmp_path: Path) -> None:
    assert manifest_of(directory(tmp_path, GOOD)) == GOOD


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        ({}, "its 'settings' are missing"),
        ([], "its 'settings' are missing"),
        (None, "its 'settings' are missing"),
        ({**GOOD, "settings": None}, "its 'settings' are missing"),
        ({**GOOD, "settings": {}}, "its 'methods' are missing"),
        ({**GOOD, "shards": "2"}, "its 'shards' are missing or of another kind"),
        ({**GOOD, "settings": {**SETTINGS, "methods": []}}, "it names no method"),
        ({**GOOD, "settings": {**SETTINGS, "methods": ["gae"]}}, "its 'name' are missing"),
        ("{oops", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_what_is_no_manifest_is_a_sentence(tmp_path: Path, manifest: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        manifest_of(directory(tmp_path, manifest))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"text"])
def test_what_is_no_shard_is_a_sentence(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "shard-000000.parquet"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"is no shard of a run \(.*\): delete it, and it is made again"):
        about_shard(file)
    pq.write_table(pa.table({"a": [1]}), file)
    with pytest.raises(InputError, match="is no shard of a run"):
        about_shard(file)


def test_what_the_system_says_is_no_reason_to_delete_a_shard(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone.parquet' cannot be read: .*No such file or directory"):
        about_shard(tmp_path / "gone.parquet")


def test_the_records_of_an_unfinished_run_say_so(tmp_path: Path) -> None:
    rows = pa.table({"row": [0], "text": ["good"], "error": pa.array([None], pa.string())})
    pq.write_table(rows, tmp_path / "shard-000000.parquet")
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        assert list(run_records(directory(tmp_path, GOOD))) == [{"text": "good"}]
    unfinished, unsealed = (str(warning.message) for warning in heard)
    assert "is not finished: 1 of 2 shards are there; the same `whence corpus` command" in unfinished
    assert "carries no checksums" in unsealed
    with pytest.warns(UserWarning, match="carries no checksums"):  # and nothing else
        assert list(run_records(directory(tmp_path, {**GOOD, "shards": 1}))) == [{"text": "good"}]
