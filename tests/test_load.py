"""load(): zoo names, directories, live models, and sentences where nothing can be loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

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
