"""load(): zoo names, directories, live models, and sentences where nothing can be loaded."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import whence
from tests import architectures


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    architectures.build("bert", torch.float32).save_pretrained(path)
    architectures.tokenizer().save_pretrained(path)
    return path


def test_a_directory(directory: Path) -> None:
    explainer = whence.load(directory)
    assert explainer.task == "sequence-classification"
    assert explainer.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    live = whence.load(architectures.build("bert", torch.float32), architectures.tokenizer())
    np.testing.assert_allclose(explainer.explain("good film").scores, live.explain("good film").scores, rtol=1e-4)


def test_dtypes(directory: Path) -> None:
    assert whence.load(directory, dtype="float64").explain("good film").scores.dtype == np.float64
    half = whence.load(directory, dtype=torch.bfloat16).explain("good film", ["attcat", "rollout", "gradient"])
    exact = whence.load(directory, dtype="float64").explain("good film", ["attcat", "rollout", "gradient"])
    for name, e in half.items():
        assert e.scores.dtype == np.float32
        assert np.abs(e.scores - exact[name].scores).max() < 0.1 * np.abs(exact[name].scores).max()
    with pytest.raises(whence.UnknownName, match="did you mean 'float64'"):
        whence.load(directory, dtype="float46")


def test_unknown_name_offline() -> None:
    with pytest.raises(whence.WhenceError) as error:
        whence.load("sentimnet")
    message = str(error.value)
    assert "did you mean 'sentiment'" in message
    assert "topics" in message
    assert "\n" not in message


def test_a_directory_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(whence.WhenceError, match="holds no Hugging Face model"):
        whence.load(tmp_path)


def test_a_directory_without_weights(tmp_path: Path) -> None:
    architectures.config("bert", architectures=["BertForSequenceClassification"]).save_pretrained(tmp_path)
    with pytest.raises(whence.WhenceError, match="could not be loaded"):
        whence.load(tmp_path)


def test_a_task_that_cannot_be_told(tmp_path: Path) -> None:
    architectures.config("bert").save_pretrained(tmp_path)
    with pytest.raises(whence.InputError, match="pass task="):
        whence.load(tmp_path)
    with pytest.raises(whence.UnknownName, match="did you mean 'sequence-classification'"):
        whence.load(tmp_path, task="sequence-clasification")


def test_live_models_keep_their_dtype_and_device() -> None:
    with pytest.raises(whence.InputError, match="keeps its dtype"):
        whence.load(architectures.model("bert"), architectures.tokenizer(), dtype="float32")
    with pytest.raises(whence.InputError, match="stays on its device"):
        whence.load(architectures.model("bert"), architectures.tokenizer(), device="meta")
    with pytest.raises(whence.InputError, match="got int"):
        whence.load(3)  # type: ignore[arg-type]


def test_the_embedded_model(sentiment: whence.Explainer) -> None:
    found = sentiment.explain("it 's a charming and often affecting journey .", ["attcat", "gradient", "rollout"])
    for e in found.values():
        assert e.target == "positive"
        assert np.isfinite(e.scores).all()
        assert e.scores.std() > 0.05 * np.abs(e.scores).max()


def test_a_folder_that_only_shares_a_name_is_passed_over(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sentiment").mkdir()
    (tmp_path / "masked-lm").touch()
    assert whence.load("sentiment").labels == ("negative", "positive")
    assert np.isfinite(whence.load("sentiment").explain("good film", "decoded-simple").scores).all()
    shutil.copytree(directory, tmp_path / "topics")
    assert whence.load("topics").labels == ("LABEL_0", "LABEL_1", "LABEL_2"), "a model of the user's own goes before"


@pytest.mark.parametrize("device", ["tpu", "", "meta", "cuda:99", "mps:7", "hpu", 3.5])
def test_devices_that_are_not_there(device: str) -> None:
    with pytest.raises(whence.InputError, match=r"this machine has cpu.*: give one of them, or leave it out\."):
        whence.load("sentiment", device=device)
    assert whence.load("sentiment", device="cpu").device.type == "cpu"
    if device != "meta":
        with pytest.raises(whence.InputError):
            whence.load(architectures.model("bert"), architectures.tokenizer(), device=device)


@pytest.mark.parametrize(
    ("task", "served"),
    [("question-answering", "masked-lm"), ("masked-lm", "causal-lm"), ("sequence-classification", "masked-lm")],
)
def test_a_task_that_the_class_cannot_serve(task: str, served: str) -> None:
    live = (
        architectures.model("bert", task=served) if served != "causal-lm" else architectures.model("llama", task=served)
    )
    with pytest.raises(whence.InputError, match=rf"is made for {served}, not for {task}: leave task= out"):
        whence.load(live, architectures.tokenizer(), task=task)
    with pytest.raises(whence.InputError, match="not for question-answering"):
        whence.load("sentiment", task="qa")


def test_a_class_whose_name_does_not_say_is_believed() -> None:
    class Judge(transformers.BertForSequenceClassification):
        """Of somebody's own."""

    config = architectures.config("bert")
    live = Judge(config).eval()
    with pytest.raises(whence.InputError, match="cannot tell the task"):
        whence.load(live, architectures.tokenizer())
    explainer = whence.load(live, architectures.tokenizer(), task="classification")
    assert len(explainer.explain("good film", "gradient")) == 4

    class XLMWithLMHeadModel(transformers.BertForMaskedLM):
        """As transformers calls one that fills in masks."""

    assert (
        whence.load(XLMWithLMHeadModel(config).eval(), architectures.tokenizer(), task="masked-lm").task == "masked-lm"
    )


def test_damaged_files_are_a_sentence(directory: Path, tmp_path: Path) -> None:
    for name, content, says in (
        ("model.safetensors", b"\xff" * 64, "the model in"),
        ("model.safetensors", b"", "the model in"),
        ("tokenizer.json", b"{}", "the tokenizer in"),
        ("config.json", b'{"model_type": "bert", "hidden_size": "x"}', "could not be loaded"),
        ("config.json", b"[]", "could not be loaded|holds no Hugging Face model"),
    ):
        broken = tmp_path / "broken"
        shutil.copytree(directory, broken)
        (broken / name).write_bytes(content)
        with pytest.raises(whence.WhenceError, match=says) as error:
            whence.load(broken, task="sequence-classification")
        assert "\n" not in str(error.value)
        shutil.rmtree(broken)


def test_no_name_at_all() -> None:
    with pytest.raises(whence.InputError, match="the model's name is empty"):
        whence.load("")
