"""What a run goes on with, and with what not: another model, another version, another input."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import whence
import whence.corpus
from tests import architectures
from tests.corpus.common import checkpoint, shards, texts
from tests.corpus.test_corpus import StandIn
from whence import version
from whence.corpus import cluster, local, manifest, worker
from whence.corpus.job import Job
from whence.corpus.sources import source_of
from whence.corpus.sources.files import MANIFEST
from whence.corpus.sources.runs import manifest_of
from whence.corpus.worker import Worker
from whence.errors import InputError, ModelError, WhenceError
from whence.run.provenance import identity_of

SMALL: dict[str, Any] = {"shard_rows": 4, "batch_tokens": 128, "progress": False, "threads": 1}


@pytest.fixture(scope="module")
def tiny() -> whence.Explainer:
    return whence.load(architectures.model("bert", torch.float32), architectures.tokenizer())


# ---- another model ------------------------------------------------------------------------------------------------


def edit(folder: Path, file: str, **changes: Any) -> None:
    """Keys of a JSON file, or of an object in it as outer__inner."""
    path = folder / file
    data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name, value in changes.items():
        *outer, last = name.split("__")
        inside = data
        for key in outer:
            inside = inside[key]
        inside[last] = value
    path.write_text(json.dumps(data), encoding="utf-8")


def swap_words(folder: Path) -> None:
    vocabulary = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    edit(folder, "tokenizer.json", model__vocab={**vocabulary, "good": vocabulary["bad"], "bad": vocabulary["good"]})


CHANGES: list[tuple[str, Callable[[Path], None]]] = [
    ("config", lambda d: edit(d, "config.json", layer_norm_eps=1e-3)),
    ("config", lambda d: edit(d, "config.json", hidden_act="relu")),
    ("config", lambda d: edit(d, "config.json", problem_type="multi_label_classification")),
    ("config", lambda d: edit(d, "config.json", num_attention_heads=2)),
    ("config", lambda d: edit(d, "config.json", id2label={"0": "LABEL_1", "1": "LABEL_0", "2": "LABEL_2"})),
    ("config", lambda d: edit(d, "config.json", id2label={"0": "bad", "1": "fair", "2": "good"})),
    ("tokenizer", swap_words),
    ("tokenizer", lambda d: edit(d, "tokenizer.json", normalizer=None)),
    ("tokenizer", lambda d: edit(d, "tokenizer.json", pre_tokenizer={"type": "WhitespaceSplit"})),
    ("tokenizer", lambda d: edit(d, "tokenizer_config.json", model_max_length=12)),
    ("tokenizer", lambda d: edit(d, "tokenizer_config.json", truncation_side="left")),
    ("tokenizer", lambda d: edit(d, "tokenizer_config.json", padding_side="left")),
    ("tokenizer", lambda d: edit(d, "tokenizer_config.json", mask_token="[UNK]")),
    ("tokenizer", lambda d: edit(d, "tokenizer_config.json", split_special_tokens=True)),
    ("tokenizer", lambda d: edit(d, "tokenizer_config.json", model_input_names=["input_ids", "attention_mask"])),
    ("tokenizer", lambda d: (d / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8") and None),
]


@pytest.mark.parametrize(("name", "change"), CHANGES)
def test_another_model_with_the_same_weights_is_refused(
    tmp_path: Path, name: str, change: Callable[[Path], None]
) -> None:
    model = checkpoint(tmp_path / "model")
    whence.corpus.run(texts(9), tmp_path / "out", model, "gae", **SMALL)
    before = shards(tmp_path / "out")
    (tmp_path / "out" / "shard-000001.parquet").unlink()
    change(model)
    with pytest.raises(InputError, match=rf"(?s)other settings:\nsetting +saved +asked\n.*{name} "):
        whence.corpus.run(texts(9), tmp_path / "out", model, "gae", **SMALL)
    assert shards(tmp_path / "out").items() < before.items()


def test_what_the_language_model_generates_by_is_part_of_it(tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "model", "causal-lm", "gpt2")
    whence.corpus.run(texts(5), tmp_path / "out", model, "gradient", **SMALL)
    edit(model, "generation_config.json", temperature=0.3, do_sample=True)
    with pytest.raises(InputError, match=r"(?s)other settings:.*generation +{} +{.*temperature"):
        whence.corpus.run(texts(5), tmp_path / "out", model, "gradient", **SMALL)


def test_a_difference_of_a_long_configuration_is_shown_alone(tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "model")
    whence.corpus.run(texts(5), tmp_path / "out", model, "gae", **SMALL)
    edit(model, "config.json", layer_norm_eps=1e-3)
    with pytest.raises(InputError, match=r'config +{"layer_norm_eps": 1e-12} +{"layer_norm_eps": 0.001}'):
        whence.corpus.run(texts(5), tmp_path / "out", model, "gae", **SMALL)


def test_a_checkpoint_may_be_moved_and_used_meanwhile(tmp_path: Path) -> None:
    explainer = whence.load(checkpoint(tmp_path / "model"))
    whence.corpus.run(texts(9), tmp_path / "out", explainer, "gae", **SMALL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        explainer.explain(["good film " * 90, "bad"], "gae")
    before = identity_of(explainer.model, explainer.tokenizer)
    explainer.model.save_pretrained(tmp_path / "copy")  # which notes the class in the configuration
    assert identity_of(explainer.model, explainer.tokenizer) == before
    (tmp_path / "out" / "shard-000001.parquet").unlink()
    moved = shutil.move(tmp_path / "model", tmp_path / "elsewhere")
    assert whence.corpus.run(texts(9), tmp_path / "out", moved, "gae", **SMALL).made == 4


def test_adapters_that_are_switched_off_are_another_model(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model = architectures.build("bert", torch.float32)
    model.add_adapter(peft.LoraConfig(r=2, target_modules=["query"], init_lora_weights=False))
    explainer = whence.load(model, architectures.tokenizer())
    on = identity_of(explainer.model, explainer.tokenizer)
    model.disable_adapters()
    off = identity_of(explainer.model, explainer.tokenizer)
    assert {name for name in on if on[name] != off[name]} == {"adapters"}
    model.enable_adapters()
    assert identity_of(explainer.model, explainer.tokenizer) == on
    model.set_adapter("default")
    for layer in model.modules():
        if isinstance(getattr(layer, "scaling", None), dict):
            layer.scaling["default"] *= 2
    assert identity_of(explainer.model, explainer.tokenizer)["adapters"] not in (on["adapters"], off["adapters"])


def test_a_head_mask_is_its_content(tiny: whence.Explainer, tmp_path: Path) -> None:
    from whence.relevance.head_mask import HeadMask

    ones, other = ((1, 1, 1, 1),) * 3, ((1, 0, 1, 1),) * 3
    file = tmp_path / "mask.json"
    HeadMask((ones,)).save(file)
    out, given = tmp_path / "out", {"method": "mask-lrp", **SMALL}
    whence.corpus.run(texts(5), out, tiny, head_mask=str(file), **given)
    assert whence.corpus.run(texts(5), out, tiny, head_mask=ones, **given).made == 0
    assert whence.corpus.run(texts(5), out, tiny, head_mask=shutil.move(file, tmp_path / "b.json"), **given).made == 0
    HeadMask((other,)).save(file)
    with pytest.raises(InputError, match=r"(?s)other settings:.*head_masks "):
        whence.corpus.run(texts(5), out, tiny, head_mask=str(file), **given)


def test_another_language_model_head_is_refused(tmp_path: Path) -> None:
    def explainer(seed: int) -> whence.Explainer:
        torch.manual_seed(seed)
        head = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 70))
        return whence.load(architectures.model("bert", torch.float32), architectures.tokenizer(), lm_head=head)

    given: dict[str, Any] = {"method": "decoded-simple", "layer": 1, **SMALL}
    whence.corpus.run(texts(5), tmp_path, explainer(0), **given)
    assert whence.corpus.run(texts(5), tmp_path, explainer(0), **given).made == 0
    with pytest.raises(InputError, match=r"(?s)other settings:.*lm_heads "):
        whence.corpus.run(texts(5), tmp_path, explainer(1), **given)


def test_a_worker_with_another_tokenizer_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a machine of a cluster may have, or what was put there since the run began."""
    model = checkpoint(tmp_path / "model")

    class Late(StandIn):
        def put(self, value: Any) -> Any:
            edit(model, "tokenizer_config.json", model_max_length=12)
            edit(model, "config.json", layer_norm_eps=1e-3)
            return super().put(value)

    monkeypatch.setattr(cluster, "import_ray", Late)
    with pytest.raises(WhenceError, match=r"is another model than the run began with \(other: config, tokenizer\)"):
        whence.corpus.run(texts(9), tmp_path / "out", str(model), "gae", engine="ray", workers=1, **SMALL)
    assert not shards(tmp_path / "out")
    explainer = whence.load(str(model))
    other = SimpleNamespace(
        identity={**identity_of(explainer.model, explainer.tokenizer), "weights": "?"}, load={"model": "m"}
    )
    with pytest.raises(ModelError, match="other: weights"):
        Worker.of(cast(Job, other), explainer)


# ---- another version ----------------------------------------------------------------------------------------------


def test_another_version_goes_on_when_it_is_told_to(
    tiny: whence.Explainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whence.corpus.run(texts(9), tmp_path, tiny, "gae", **SMALL)
    before = version.__version__
    (tmp_path / "shard-000001.parquet").unlink()
    monkeypatch.setattr(version, "__version__", "9.9.9")
    for _ in range(2):
        with pytest.raises(InputError, match=rf"made by whence {before}, and this is whence 9\.9\.9.*--accept-version"):
            whence.corpus.run(texts(9), tmp_path, tiny, "gae", **SMALL)
    with pytest.warns(UserWarning, match=rf"begun with other versions \(whence {before}, now 9\.9\.9\)"):
        assert whence.corpus.run(texts(9), tmp_path, tiny, "gae", accept_version=True, **SMALL).made == 4
    made_by = [json.loads(pq.read_schema(f).metadata[b"whence"])["whence"] for f in sorted(tmp_path.glob("shard-*"))]
    assert made_by == [before, "9.9.9", before]
    assert [v["whence"] for v in manifest_of(tmp_path)["versions"]] == [before, "9.9.9"]
    assert manifest_of(tmp_path)["runs"][-1]["versions"]["whence"] == "9.9.9"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what was accepted once is accepted
        assert whence.corpus.run(texts(9), tmp_path, tiny, "gae", **SMALL).made == 0
    monkeypatch.setattr(version, "__version__", "10")
    (tmp_path / MANIFEST).write_bytes(b"")
    with pytest.raises(InputError, match="--accept-version"):
        whence.corpus.run(texts(9), tmp_path, tiny, "gae", **SMALL)


def test_another_torch_is_said(tiny: whence.Explainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whence.corpus.run(texts(9), tmp_path, tiny, "gae", **SMALL)
    (tmp_path / "shard-000001.parquet").unlink()
    right = manifest.versions
    monkeypatch.setattr(manifest, "versions", lambda: {**right(), "torch": "9.9"})
    with pytest.warns(UserWarning, match=r"begun with other versions \(torch .*, now 9\.9\)"):
        assert whence.corpus.run(texts(9), tmp_path, tiny, "gae", **SMALL).made == 4


# ---- another input ------------------------------------------------------------------------------------------------


def write(file: Path, rows: list[str]) -> Path:
    """The same number of bytes for rows of the same length, whatever the format."""
    if file.suffix == ".parquet":
        pq.write_table(pa.table({"text": rows}), file, compression="none", use_dictionary=False, write_statistics=False)
    elif file.suffix == ".jsonl":
        file.write_text("\n".join(json.dumps({"text": row}) for row in rows), encoding="utf-8")
    else:
        file.write_text("text\n" + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    return file


BEFORE = ["good film story"] * 40
AFTER = ["dull film story"] * 40


def in_place(file: Path) -> None:
    """With the size and the time that it had."""
    times = os.stat(file)
    write(file, AFTER)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def another_file(file: Path) -> None:
    times = os.stat(file)
    beside = write(file.with_name(f"beside{file.suffix}"), AFTER)
    os.utime(beside, ns=(times.st_atime_ns, times.st_mtime_ns))
    os.replace(beside, file)


def grown(file: Path) -> None:
    write(file, [*BEFORE, "one more"])


WAYS = {"in place": in_place, "replaced": another_file, "grown": grown, "gone": Path.unlink}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv", ".parquet"])
@pytest.mark.parametrize("engine", ["local", "ray"])
def test_an_input_that_changes_while_it_is_read_is_found_out(
    engine: str,
    suffix: str,
    way: Callable[[Path], None],
    tiny: whence.Explainer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, out = write(tmp_path / f"data{suffix}", BEFORE), tmp_path / "out"
    right, calls = worker.compute, []

    def compute(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            way(data)
        return right(*args)

    given: dict[str, Any] = {"model": tiny, **SMALL}
    if engine == "ray":
        monkeypatch.setattr(cluster, "import_ray", StandIn)
        given |= {"model": str(checkpoint(tmp_path / "model")), "engine": "ray", "workers": 1}
    with monkeypatch.context() as patched:
        patched.setattr(worker, "compute", compute)
        with pytest.raises(
            WhenceError, match=rf"the input file .*data{suffix}' (was changed or replaced|cannot be read)"
        ):
            whence.corpus.run(data, out, method="gradient", **given)
    written = shards(out)
    assert 0 < len(written) < 10
    if data.exists():
        with pytest.raises(InputError, match="other settings"):
            whence.corpus.run(data, out, method="gradient", **given)
    write(data, BEFORE)
    whence.corpus.run(data, out, method="gradient", **given)
    assert {e.text for e in whence.corpus.open(out)} == {BEFORE[0]}
    assert written.items() <= shards(out).items()


def test_a_file_that_was_only_touched_goes_on(
    tiny: whence.Explainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, right, calls = write(tmp_path / "data.parquet", BEFORE), worker.compute, []

    def compute(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            os.utime(data)
        if len(calls) == 4:
            os.replace(shutil.copy(data, tmp_path / "copy"), data)
        return right(*args)

    monkeypatch.setattr(worker, "compute", compute)
    assert whence.corpus.run(data, tmp_path / "out", tiny, "gradient", **SMALL).made == 40


def test_a_worker_process_reads_what_the_run_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, model = write(tmp_path / "data.jsonl", BEFORE), checkpoint(tmp_path / "model")
    right = local.Team.start

    def start(team: Any, device: Any) -> None:
        another_file(data)
        right(team, device)

    monkeypatch.setattr(local.Team, "start", start)
    with pytest.raises(WhenceError, match=r"the input file .* was changed or replaced"):
        whence.corpus.run(data, tmp_path / "out", model, "gradient", workers=2, **SMALL)
    assert not shards(tmp_path / "out")


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_file_that_changed_and_was_put_back_while_rows_were_read(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source: Any = source_of(write(tmp_path / f"data{suffix}", BEFORE))
    right, calls = type(source)._read, []

    def read(*args: Any) -> Any:
        calls.append(args)
        if len(calls) > 1:
            return right(*args)
        write(source.parts[0].path, AFTER)
        rows = right(*args)
        write(source.parts[0].path, BEFORE)
        return rows

    monkeypatch.setattr(type(source), "_read", read)
    assert source.read(0, 2) == [{"text": BEFORE[0]}] * 2
    assert len(calls) == 2


def test_a_change_within_one_tick_of_the_clock_is_seen(tmp_path: Path) -> None:
    """A file that has just been written when a run begins."""
    for _ in range(5):
        source: Any = source_of(write(tmp_path / "data.jsonl", BEFORE))
        in_place(source.parts[0].path)
        with pytest.raises(InputError, match="was changed or replaced"):
            source.read(0, 2)


def test_a_file_of_another_machine_is_known_by_size_and_time(tmp_path: Path) -> None:
    source: Any = pickle.loads(pickle.dumps(source_of(write(tmp_path / "data.jsonl", BEFORE))))
    part = source.parts[0]
    there = {**vars(part.state), "host": "elsewhere", "number": 7, "touched": 7}
    object.__setattr__(part, "state", type(part.state)(**there))
    assert source.read(0, 1) == [{"text": BEFORE[0]}]
    in_place(part.path)
    with pytest.raises(InputError, match="was changed or replaced"):
        source.read(0, 1)


class Rows:
    """What has a length and can be cut, and is no list."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: Any) -> Any:
        return self.rows[part]


def test_rows_in_memory_are_known_by_all_they_hold() -> None:
    long = np.arange(5000)
    other = long.copy()
    other[2500] = 0
    given: list[list[Any]] = [["a"], ["b"], [{"input_ids": long}], [{"input_ids": other}]]
    assert len({source_of(kind(rows)).identity() for rows in given for kind in (list, Rows)}) == len(given)
