"""load(): zoo names, directories, live models, and sentences where nothing can be loaded."""

from __future__ import annotations

import pickle
import re
import shutil
from pathlib import Path
from typing import Any

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


COMPLETE = [
    (name, task)
    for name in architectures.NAMES
    for task in architectures.AUTO
    if (task == "causal-lm") == (name in architectures.DECODERS) or task not in ("causal-lm", "masked-lm")
]


@pytest.mark.parametrize(("name", "task"), COMPLETE)
def test_what_transformers_saves_is_complete(name: str, task: str, tmp_path: Path) -> None:
    """Tied weights are saved once, and buffers not at all: neither is missing."""
    model = architectures.build(name, torch.float32, task=task)
    model.save_pretrained(tmp_path)
    assert whence.load(tmp_path).model.state_dict().keys() == model.state_dict().keys()


def test_weights_that_would_be_drawn_at_random(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    transformers.BertModel(architectures.config("bert")).save_pretrained(tmp_path)
    capfd.readouterr()
    with pytest.raises(
        whence.WhenceError, match=r"no weights for classifier\.bias, classifier\.weight of a BertForSeq"
    ):
        whence.load(tmp_path, task="sequence-classification")
    assert capfd.readouterr().err == ""


def test_weights_of_another_size(directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    config = architectures.config("bert", num_labels=5, architectures=["BertForSequenceClassification"])
    config.save_pretrained(tmp_path)
    with pytest.raises(whence.WhenceError, match=r"could not be loaded|no weights for classifier"):
        whence.load(tmp_path)


def test_an_adapter_is_named(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(whence.WhenceError, match=r"holds an adapter, not a model: .*merge_and_unload"):
        whence.load(tmp_path)


def test_a_wrapped_model_is_named() -> None:
    class PeftModel:
        def merge_and_unload(self) -> None: ...

    with pytest.raises(whence.InputError, match=r"got PeftModel: give what its merge_and_unload\(\) returns"):
        whence.load(PeftModel())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dtype": 3}, "dtype=3: give one of float64"),
        ({"dtype": torch.int8}, "dtype=torch.int8: give one of float64"),
        ({"tokenizer": "bert"}, "load() takes a tokenizer of transformers, got str"),
        ({"recipe": 3}, "recipe= takes a file that `whence tune` wrote, got int"),
        ({"lm_head": 3}, "lm_head= takes a name, a directory, a live model or a module, got int"),
    ],
)
def test_arguments_of_another_kind(given: dict[str, Any], said: str) -> None:
    with pytest.raises(whence.InputError, match=re.escape(said)):
        whence.load("sentiment", **given)


def test_a_tokenizer_of_a_larger_model() -> None:
    small = architectures.build("bert", torch.float32, vocab_size=24)
    explainer = whence.load(small, architectures.tokenizer())
    assert explainer.explain("this is the film").scores.shape == (6,)
    with pytest.raises(whence.InputError, match=r"makes 'journey' token \d+, and the model knows 24 only"):
        explainer.explain("this journey")
    with pytest.raises(whence.InputError, match="input 1: the tokenizer makes"):
        explainer.explain(["this film", "this journey"])


def test_models_without_numbers() -> None:
    with torch.device("meta"):
        nowhere = transformers.BertForSequenceClassification(architectures.config("bert"))
    with pytest.raises(whence.InputError, match="holds no numbers"):
        whence.load(nowhere, architectures.tokenizer())


def test_models_made_under_inference_mode() -> None:
    with torch.inference_mode():
        made = architectures.build("bert", torch.float32)
    with pytest.raises(whence.InputError, match="inference_mode"):
        whence.load(made, architectures.tokenizer())


def test_an_explainer_can_be_pickled(sentiment: whence.Explainer) -> None:
    sentiment.explain("a good film", "decoded-grad-cam")  # the head that it found is not pickled, and found again
    again = pickle.loads(pickle.dumps(sentiment))
    for method in ("attnlrp", "decoded-grad-cam"):
        np.testing.assert_array_equal(
            again.explain("a good film", method).scores, sentiment.explain("a good film", method).scores
        )
