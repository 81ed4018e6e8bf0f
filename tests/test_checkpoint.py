"""Weights are read as safetensors only, from inside the checkpoint: whatever an index, a configuration, an adapter or a link says."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch
import transformers.utils.hub
from safetensors.torch import save_file

import whence
from tests import architectures
from whence.models import checkpoint as checkpoint_files

State = dict[str, torch.Tensor]
INDEX = "model.safetensors.index.json"


@pytest.fixture(autouse=True)
def nothing_is_unpickled(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **named: Any) -> Any:
        raise SystemExit(f"something was unpickled: {given[:1]}")

    monkeypatch.setattr(torch, "load", refuse)
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)


@pytest.fixture(scope="module")
def state() -> State:
    return {k: v.contiguous() for k, v in architectures.model("bert", torch.float32).state_dict().items()}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A directory with everything but weights."""
    return described(tmp_path / "mine")


def described(directory: Path) -> Path:
    config = architectures.config("bert", architectures=["BertForSequenceClassification"])
    config.save_pretrained(directory)
    architectures.tokenizer().save_pretrained(directory)
    return directory


def write_index(directory: Path, keys: Any, *names: Any) -> None:
    """An index whose weights are dealt out to the named files in turn."""
    weight_map = {key: names[i % len(names)] for i, key in enumerate(keys)}
    (directory / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))


def edit_config(directory: Path, **more: Any) -> None:
    file = directory / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **more}))


def refused(directory: Any, says: str, **named: Any) -> None:
    with pytest.raises(whence.WhenceError, match=says) as error:
        whence.load(directory, **named)
    assert "\n" not in str(error.value)


FORMAT = r"as weights, and whence reads safetensors only, because other formats can run code: "


@pytest.mark.parametrize(
    "names",
    [
        ("weights.bin",),
        ("pytorch_model-00001-of-00001.bin",),
        ("../outside.bin",),
        ("/etc/outside.bin",),
        ("weights.safetensors.bin",),
        ("weights.SAFETENSORS",),
        ("weights",),
        ("",),
        (3,),
        (None,),
        (["a"],),
        ("model-1.safetensors", "weights.bin"),
        ("zzz.bin", "model-1.safetensors"),
    ],
)
@pytest.mark.parametrize("exists", [True, False])
def test_an_index_that_names_another_format(
    checkpoint: Path, state: State, names: tuple[Any, ...], exists: bool
) -> None:
    write_index(checkpoint, state, *names)
    save_file(state, checkpoint / "model-1.safetensors", metadata={"format": "pt"})
    if exists:
        for name in names:
            if isinstance(name, str) and name and not name.startswith("/"):
                torch.save(state, checkpoint / name)
    refused(checkpoint, rf"the index of .* names .* {FORMAT}|which is not there" if not exists else FORMAT)


@pytest.mark.parametrize(
    "name",
    ["../outside.safetensors", "{parent}/outside.safetensors", "sub/../../outside.safetensors", "..\\outside.safetensors",
     "C:\\outside.safetensors", "C:outside.safetensors", "out\0side.safetensors"],
)  # fmt: skip
def test_an_index_that_leads_out_of_the_directory(checkpoint: Path, state: State, name: str) -> None:
    save_file(state, checkpoint.parent / "outside.safetensors", metadata={"format": "pt"})
    (checkpoint / "sub").mkdir()
    write_index(checkpoint, state, name.format(parent=checkpoint.parent))
    refused(checkpoint, r"the index of .* names .* that leads out of the model's directory: copy the file into it")


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"weight_map": []}', '{"weight_map": 3}', "{", "[" * 100_000, "\udcff"]
)
def test_an_index_that_is_damaged(checkpoint: Path, content: str) -> None:
    (checkpoint / INDEX).write_text(content, errors="surrogateescape")
    refused(checkpoint, r"the index model\.safetensors\.index\.json in .* is damaged: it must be a JSON object")


def test_an_index_of_safetensors_is_read(checkpoint: Path, state: State) -> None:
    """Also in a folder of its own, and beside files of other formats that nobody reads."""
    halves = [dict(list(state.items())[i::2]) for i in (0, 1)]
    (checkpoint / "sub").mkdir()
    names = ("one.safetensors", "sub/two.safetensors")
    for name, half in zip(names, halves, strict=True):
        save_file(half, checkpoint / name, metadata={"format": "pt"})
    write_index(checkpoint, state, *names)
    for other in ("training_args.bin", "optimizer.pt", "rng_state.pth", "pytorch_model.bin", "adapter_model.bin"):
        torch.save(state, checkpoint / other)
    (checkpoint / "pytorch_model.bin.index.json").write_text('{"weight_map": {"a": "b.bin"}}')
    loaded = whence.load(checkpoint).model.state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in state.items())
    (checkpoint / names[1]).unlink()
    refused(checkpoint, r"names 'sub/two\.safetensors', which is not there: copy the model anew")


@pytest.mark.parametrize("other", ["pytorch_model.bin", "pytorch_model.bin.index.json"])
def test_a_checkpoint_of_another_format(checkpoint: Path, state: State, other: str) -> None:
    torch.save(state, checkpoint / "pytorch_model.bin")
    if other != "pytorch_model.bin":
        weight_map = dict.fromkeys(state, "pytorch_model.bin")
        (checkpoint / other).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
        (checkpoint / "pytorch_model.bin").rename(checkpoint / "part.bin")
    refused(checkpoint, "could not be loaded")


@pytest.mark.parametrize("named", ["adapter_model.bin", "../outside.bin", "weights.pt", 3, ["a.bin"]])
def test_a_configuration_that_names_another_format(checkpoint: Path, state: State, named: Any) -> None:
    edit_config(checkpoint, transformers_weights=named)
    torch.save(state, checkpoint / "adapter_model.bin")
    save_file(state, checkpoint / "model.safetensors", metadata={"format": "pt"})
    refused(checkpoint, f"the configuration of .* {FORMAT}")


def test_a_configuration_that_names_a_file_of_safetensors(checkpoint: Path, state: State) -> None:
    save_file(state, checkpoint / "other.safetensors", metadata={"format": "pt"})
    edit_config(checkpoint, transformers_weights="other.safetensors")
    assert whence.load(checkpoint).task == "sequence-classification"
    edit_config(checkpoint, transformers_weights="../mine/other.safetensors")
    refused(checkpoint, "leads out of the model's directory")
    edit_config(checkpoint, transformers_weights="other.safetensors.index.json")
    weight_map = {"metadata": {}, "weight_map": dict.fromkeys(state, "weights.bin")}
    (checkpoint / "other.safetensors.index.json").write_text(json.dumps(weight_map))
    refused(checkpoint, FORMAT)


def test_an_adapter_beside_a_model(checkpoint: Path, state: State) -> None:
    """transformers would put it onto the model, from `adapter_model.bin` if need be."""
    save_file(state, checkpoint / "model.safetensors", metadata={"format": "pt"})
    settings = {"peft_type": "LORA", "r": 2, "target_modules": ["query"], "base_model_name_or_path": "/elsewhere"}
    (checkpoint / "adapter_config.json").write_text(json.dumps(settings))
    torch.save({}, checkpoint / "adapter_model.bin")
    refused(checkpoint, r"holds an adapter, not a model: .*merge_and_unload")


def test_links_that_lead_out_of_the_directory(checkpoint: Path, state: State) -> None:
    outside = checkpoint.parent / "outside.safetensors"
    save_file(state, outside, metadata={"format": "pt"})
    (checkpoint / "model.safetensors").symlink_to(outside)
    refused(checkpoint, r"'model\.safetensors' in .* is a link that leads out of the model's directory")
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / "sub").symlink_to(checkpoint.parent)
    write_index(checkpoint, state, "sub/outside.safetensors")
    refused(checkpoint, r"is a link that leads out of the model's directory")
    (checkpoint / "model.safetensors").symlink_to("weights.safetensors")  # inside, and the directory reached by a link
    outside.rename(checkpoint / "weights.safetensors")
    (checkpoint.parent / "elsewhere").symlink_to(checkpoint)
    assert whence.load(checkpoint.parent / "elsewhere").task == "sequence-classification"


def snapshot(cache: Path, files: Callable[[Path], None]) -> Path:
    """A model in a cache as the hub's library lays it out: snapshots of links into the blobs."""
    repository = cache / "models--me--mine"
    content, directory, blobs = repository / "made", repository / "snapshots" / ("0" * 40), repository / "blobs"
    for folder in (directory, blobs, repository / "refs"):
        folder.mkdir(parents=True)
    files(described(content))
    (repository / "refs" / "main").write_text("0" * 40)
    for number, file in enumerate(sorted(content.iterdir())):
        file.rename(blobs / str(number))
        (directory / file.name).symlink_to(Path("../../blobs") / str(number))
    return directory


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (huggingface_hub.constants, transformers.utils.hub.constants):
        monkeypatch.setattr(module, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_of_the_hub_is_read(cache: Path, state: State) -> None:
    """By the model's name, and by the directory of the snapshot."""

    def files(directory: Path) -> None:
        save_file(state, directory / "part.safetensors", metadata={"format": "pt"})
        write_index(directory, state, "part.safetensors")

    directory = snapshot(cache, files)
    assert whence.load("me/mine").explain("good film", "gae").model == "me/mine"
    assert whence.load(directory).task == "sequence-classification"


@pytest.mark.parametrize("name", ["part.bin", "../../../../outside.bin", "../../../../outside.safetensors"])
def test_the_cache_of_the_hub_is_trusted_no_more(cache: Path, state: State, name: str) -> None:
    def files(directory: Path) -> None:
        torch.save(state, directory / "part.bin")
        write_index(directory, state, name)

    directory = snapshot(cache, files)
    torch.save(state, cache.parent / "outside.bin")
    for given in ("me/mine", directory):
        refused(given, "whence reads safetensors only|leads out of the model's directory")
    decoder = whence.load(architectures.model("bert"), architectures.tokenizer(), lm_head="me/mine")
    with pytest.raises(whence.WhenceError, match=r"whence reads safetensors only|leads out of the model's directory"):
        decoder.explain("good film", "decoded-simple")


def test_weights_that_the_hub_has_converted(cache: Path, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model with other formats alone, transformers reads what the hub's bot made of them: it is looked at too."""
    from transformers import safetensors_conversion

    def files(directory: Path) -> None:
        torch.save(state, directory / "pytorch_model.bin")

    snapshot(cache, files)
    refused("me/mine", "could not be loaded")  # offline, nobody converts
    converted = cache / "models--me--mine" / "snapshots" / ("1" * 40)
    described(converted)
    (cache / "models--me--mine" / "refs" / "refs" / "pr").mkdir(parents=True)
    (cache / "models--me--mine" / "refs" / "refs" / "pr" / "1").write_text("1" * 40)
    monkeypatch.setattr(safetensors_conversion, "auto_conversion", lambda name: (None, f"of {name}", False))
    with monkeypatch.context() as online:
        online.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        assert checkpoint_files.converted("me/mine") == "of me/mine"
    monkeypatch.setattr(checkpoint_files, "converted", lambda name: "refs/pr/1")
    write_index(converted, state, "part.bin")
    refused("me/mine", FORMAT)
    (converted / INDEX).unlink()
    save_file(state, converted / "model.safetensors", metadata={"format": "pt"})
    assert whence.load("me/mine").task == "sequence-classification"


@pytest.mark.parametrize("argument", ["model", "lm_head"])
def test_a_single_file_is_no_model(checkpoint: Path, state: State, argument: str) -> None:
    torch.save(state, checkpoint / "weights.bin")
    for name in ("weights.bin", "config.json"):
        says = "is a file: give the directory that it is in"
        if argument == "model":
            refused(checkpoint / name, says)
            continue
        live = whence.load(architectures.model("bert"), architectures.tokenizer(), lm_head=checkpoint / name)
        with pytest.raises(whence.InputError, match=says):
            live.explain("good film", "decoded-simple")


def test_code_that_comes_with_a_tokenizer_is_not_run(checkpoint: Path, state: State) -> None:
    save_file(state, checkpoint / "model.safetensors", metadata={"format": "pt"})
    written = checkpoint / "ran"
    (checkpoint / "mine.py").write_text(f"open({str(written)!r}, 'w').close()\n")
    settings = {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": ["mine.Mine", "mine.Mine"]}}
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(settings))
    assert type(whence.load(checkpoint).tokenizer).__module__.startswith("transformers.")  # tokenizer.json alone
    (checkpoint / "tokenizer.json").unlink()
    refused(checkpoint, "the tokenizer in .* could not be loaded")
    edit_config(checkpoint, auto_map={"AutoModelForSequenceClassification": "mine.Mine", "AutoConfig": "mine.Mine"})
    with pytest.raises(whence.WhenceError):
        whence.load(checkpoint)
    assert not written.exists()


def test_complex_weights_are_refused(checkpoint: Path, state: State) -> None:
    """transformers would read their real parts, and go on."""
    key = "classifier.weight"
    save_file({**state, key: state[key] * 1j}, checkpoint / "model.safetensors", metadata={"format": "pt"})
    refused(checkpoint, r"the weight 'classifier\.weight' in .* is complex \(C64\)")
    live = architectures.build("bert", torch.float32)
    live.classifier.weight = torch.nn.Parameter(live.classifier.weight.detach() * 1j)
    with pytest.raises(whence.InputError, match=r"parameter 'classifier\.weight' is complex"):
        whence.load(live, architectures.tokenizer())
