"""What a disk, a copy or a hand does to a finished run: refused in a sentence, or made again, and never read as other numbers."""

from __future__ import annotations

import json
import random
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

import whence
import whence.corpus
from tests import architectures
from tests.corpus.common import METHODS, checkpoint, shards, texts
from whence.corpus import cluster
from whence.corpus.sources import run_records
from whence.corpus.sources.files import MANIFEST
from whence.corpus.sources.runs import manifest_of
from whence.errors import InputError, WhenceError
from whence.evaluate.data import read as read_examples

SMALL: dict[str, Any] = {"shard_rows": 4, "batch_tokens": 128, "progress": False}
ROWS: list[Any] = [{"text": text, "stars": i} for i, text in enumerate([*texts(9, longest=8), ""])]
SHARD = "shard-000001.parquet"


@pytest.fixture(scope="module")
def tiny() -> whence.Explainer:
    return whence.load(architectures.model("bert", torch.float32), architectures.tokenizer())


@pytest.fixture(scope="module")
def sound(tiny: whence.Explainer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten rows in three shards, the last row in error."""
    folder = tmp_path_factory.mktemp("run") / "out"
    again(folder, tiny)
    return folder


@pytest.fixture
def out(sound: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(sound, tmp_path / "out"))


def again(folder: Path, explainer: whence.Explainer, **more: Any) -> Any:
    return whence.corpus.run(ROWS, folder, explainer, METHODS, keep=["stars"], **{**SMALL, **more})


def everything(folder: Path) -> Any:
    """All that a run can be asked."""
    saved = whence.corpus.open(folder)
    explanations = [e.to_dict() for method in saved.methods for e in saved[method]]
    about = saved.manifest["model"], saved.manifest["labels"]
    return len(saved), explanations, list(saved.errors()), list(saved.column("stars")), list(run_records(folder)), about


def flipped(content: bytes, byte: int, bit: int) -> bytes:
    return content[:byte] + bytes([content[byte] ^ 1 << bit]) + content[byte + 1 :]


# ---- reading ------------------------------------------------------------------------------------------------------


def test_no_bit_of_a_shard_can_turn_unseen(out: Path) -> None:
    """Magic, pages and their headers, statistics, metadata, the sums, the length of the footer."""
    file = out / SHARD
    whole = file.read_bytes()
    for byte in (*range(0, len(whole) - 16, 11), *range(len(whole) - 16, len(whole))):
        file.write_bytes(flipped(whole, byte, byte % 8))
        with pytest.raises(InputError, match=rf"{SHARD}' is no shard of a run \(.*\): delete it, and it is made again"):
            list(whence.corpus.open(out)["gae"])
    file.write_bytes(whole)
    assert len(whence.corpus.open(out)) == len(ROWS)


def test_no_bit_of_a_manifest_can_turn_unseen(sound: Path, tmp_path: Path) -> None:
    """Refused, or white space."""
    whole, right = (sound / MANIFEST).read_bytes(), manifest_of(sound)
    harmless, ways_on = 0, r"`whence corpus` command|this version of whence reads"
    for byte in range(len(whole)):
        for bit in (byte % 8, (byte + 3) % 8):
            (tmp_path / MANIFEST).write_bytes(flipped(whole, byte, bit))
            try:
                found = manifest_of(tmp_path)
            except InputError as error:
                found = right if re.search(ways_on, str(error)) else {}
            else:
                harmless += 1
            assert found == right
    assert harmless < len(whole) / 10


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "200 zeroes": lambda c: c[:900] + bytes(200) + c[1100:],
    "zeroes at the end": lambda c: c[:-200] + bytes(200),
    "one byte more": lambda c: c + b"\0",
    "one byte before": lambda c: b"\0" + c,
    "cut off": lambda c: c[:-1],
    "half": lambda c: c[: len(c) // 2],
    "empty": lambda c: b"",
    "nothing but an end": lambda c: c[-8:],
    "two pages in turn": lambda c: c[:100] + c[300:500] + c[100:300] + c[500:],
    "a page twice": lambda c: c[:300] + c[100:300] + c[500:],
    "other bytes": lambda c: random.Random(0).randbytes(len(c)),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_what_reads_a_damaged_shard_says_so(out: Path, damage: Callable[[bytes], bytes]) -> None:
    file = out / SHARD
    file.write_bytes(damage(file.read_bytes()))
    reads: list[Callable[[], Any]] = [
        lambda: list(whence.corpus.open(out)),
        lambda: whence.corpus.open(out)["gae"][5],
        lambda: list(whence.corpus.open(out).column("stars")),
        lambda: list(run_records(out)),
        lambda: read_examples(out),
        lambda: whence.corpus.run(out, out.parent / "x", "sentiment", "gae", **SMALL),  # its shards as plain files
        lambda: read_examples(file),
    ]
    for read in reads:
        with pytest.raises(InputError, match=rf"{SHARD}' is no shard of a run"):
            read()


def test_shards_that_changed_places_are_found_out(out: Path) -> None:
    first, second = (out / f"shard-{i:06d}.parquet" for i in range(2))
    first.write_bytes(second.read_bytes())
    with pytest.raises(InputError, match="is of another run, or of another place in this one"):
        everything(out)


def test_a_shard_that_another_program_wrote_anew_is_found_out(out: Path, tiny: whence.Explainer) -> None:
    before = shards(out)
    pq.write_table(pq.read_table(out / SHARD), out / SHARD)
    with pytest.raises(InputError, match=r"its checksum differs|carries no checksum"):
        everything(out)
    with pytest.warns(UserWarning, match="1 of the 3 shards .* are damaged, and are made again"):
        again(out, tiny)
    assert shards(out) == before


def test_a_text_that_looks_like_a_checksum(tiny: whence.Explainer, tmp_path: Path) -> None:
    """A column's least and greatest texts stand in the footer too."""
    rows = [f'good film "whence sha256": "{"0" * 128}"', 'zzz {"whence sha256": "']
    whence.corpus.run(rows, tmp_path / "out", tiny, "gae", keep=[], **SMALL)
    assert [e.text for e in whence.corpus.open(tmp_path / "out")] == rows


# ---- going on -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_shard_is_made_again_and_said(
    out: Path, tiny: whence.Explainer, damage: Callable[[bytes], bytes]
) -> None:
    before, file = shards(out), out / SHARD
    file.write_bytes(damage(file.read_bytes()))
    with pytest.warns(UserWarning, match=rf"1 of the 3 shards in .* are damaged, and are made again \({SHARD}: it"):
        done = again(out, tiny)
    assert (done.rows, done.errors, done.made) == (10, 1, 4)
    assert shards(out) == before
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert again(out, tiny).made == 0


def test_flipped_bits_are_made_again(out: Path, tiny: whence.Explainer) -> None:
    before, chance = shards(out), random.Random(0)
    for _ in range(12):
        names = chance.sample(sorted(before), 2)
        for name in names:
            whole = (out / name).read_bytes()
            (out / name).write_bytes(flipped(whole, chance.randrange(len(whole)), chance.randrange(8)))
        with pytest.warns(UserWarning, match="2 of the 3 shards"):
            again(out, tiny)
        assert shards(out) == before


def test_ray_makes_a_damaged_shard_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.corpus.test_corpus import StandIn

    model = str(checkpoint(tmp_path / "model"))
    given: dict[str, Any] = {"threads": 1, "engine": "ray", "workers": 1, **SMALL}
    monkeypatch.setattr(cluster, "import_ray", StandIn)
    whence.corpus.run(texts(12), tmp_path / "out", model, "gae", **given)
    before, file = shards(tmp_path / "out"), tmp_path / "out" / SHARD
    whole = file.read_bytes()
    file.write_bytes(flipped(whole, len(whole) // 2, 3))
    with pytest.warns(UserWarning, match="1 of the 3 shards"):
        assert whence.corpus.run(texts(12), tmp_path / "out", model, "gae", **given).made == 4
    assert shards(tmp_path / "out") == before


SPOILT: dict[str, Callable[[bytes], bytes | None]] = {
    "empty": lambda c: b"",
    "half": lambda c: c[: len(c) // 2],
    "another label": lambda c: c.replace(b"LABEL_1", b"LABEL_3", 1),
    "another method": lambda c: c.replace(b'"gae"', b'"gad"', 1),
    "other JSON": lambda c: b"{}",
    "gone": lambda c: None,
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT.keys())
def test_a_damaged_manifest_is_written_again(
    out: Path, tiny: whence.Explainer, spoil: Callable[[bytes], bytes | None]
) -> None:
    manifest = out / MANIFEST
    before, whole = shards(out), json.loads(manifest.read_text(encoding="utf-8"))
    content = spoil(manifest.read_bytes())
    if content is None:
        manifest.unlink()
    else:
        manifest.write_bytes(content)
    with pytest.raises(InputError, match=r"the same `whence corpus` command|holds no run"):
        everything(out)
    (out / SHARD).unlink()
    with pytest.warns(UserWarning, match="manifest of .* was damaged or lost, and is written again"):
        assert again(out, tiny).made == 4
    found = manifest_of(out)
    assert {**found, "runs": None} == {**whole, "runs": None}
    assert shards(out) == before


def test_a_damaged_manifest_over_shards_of_other_settings_is_refused(out: Path, tiny: whence.Explainer) -> None:
    before = shards(out)
    (out / MANIFEST).write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="other settings"):
        again(out, tiny, scores="float16")
    for file in out.glob("shard-*"):
        file.unlink()
    with pytest.raises(InputError, match="cannot be read"):  # nothing tells whose it was
        again(out, tiny)
    assert before
    assert (out / MANIFEST).read_text(encoding="utf-8") == ""


# ---- formats ------------------------------------------------------------------------------------------------------


def test_another_format_is_refused(out: Path, tiny: whence.Explainer) -> None:
    manifest = out / MANIFEST
    found = json.loads(manifest.read_text(encoding="utf-8"))
    manifest.write_text(json.dumps({**found, "format": 3}), encoding="utf-8")
    for read in (lambda: everything(out), lambda: again(out, tiny)):
        with pytest.raises(InputError, match="is of format 3, and this version of whence reads 1 to 2"):
            read()


def as_format_1(folder: Path) -> None:
    """As it was written before there were checksums."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    manifest.pop("whence sha256")
    (folder / MANIFEST).write_text(json.dumps({**manifest, "format": 1}), encoding="utf-8")
    for file in folder.glob("shard-*"):
        table = pq.read_table(file)
        about = json.loads(table.schema.metadata[b"whence"])
        for name in ("format", "whence", "whence sha256"):
            about.pop(name)
        pq.write_table(table.replace_schema_metadata({"whence": json.dumps(about)}), file)


def test_a_run_of_format_1_is_read_and_not_gone_on_with(sound: Path, out: Path, tiny: whence.Explainer) -> None:
    as_format_1(out)
    with pytest.warns(UserWarning, match="made by an older version of whence and carries no checksums"):
        assert everything(out) == everything(sound)
    with pytest.raises(WhenceError, match=r"begun by an older version of whence \(format 1, without checksums"):
        again(out, tiny)
