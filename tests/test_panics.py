"""A tokenizer that panics, or raises what it likes, is an error about the text: to every caller, and to nobody else's text."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import decoders, normalizers
from transformers import PreTrainedTokenizerFast

import whence
import whence.corpus
from tests import architectures
from whence.apps.cli import main
from whence.errors import as_exception, is_panic

GOOD, BAD = "a good film", "a café"


def panicking() -> PreTrainedTokenizerFast:
    """Reads ASCII, and panics at anything else: its table of replacements ends where ASCII does."""
    tokenizer = architectures.tokenizer()
    table = normalizers.Precompiled(struct.pack("<I", 512) + bytes(512))
    before = tokenizer.backend_tokenizer.normalizer
    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence([table, before])
    return tokenizer


def explainer(task: str = "sequence-classification", architecture: str = "bert") -> whence.Explainer:
    model = architectures.model(architecture, torch.float32, task)
    return whence.load(model, panicking(), task=task)


def test_it_panics() -> None:
    """What Python sees is no Exception."""
    with pytest.raises(BaseException, match="index out of bounds") as error:
        panicking()(BAD)
    assert is_panic(error.value)
    assert not isinstance(error.value, Exception)


SAYS = (
    r"the tokenizer cannot read this text \(PanicException: index out of bounds: .*\): change the text, or load the tok"
)


@pytest.mark.parametrize(
    "call",
    [
        lambda ex: ex.explain(BAD, "gae"),
        lambda ex: ex.predict(BAD),
        lambda ex: ex.explain((GOOD, BAD), "gae"),
        lambda ex: ex.encode(BAD, ex.ask()),
        lambda ex: whence.evaluate(ex, [BAD], methods=["gae"], metrics=["aopc"]),
    ],
)
def test_a_panic_is_an_error_about_the_text(call: Callable[[whence.Explainer], Any]) -> None:
    with pytest.raises(whence.InputError, match=SAYS):
        call(explainer())


def test_the_error_names_the_input_and_its_mates_can_be_read() -> None:
    ex = explainer()
    with pytest.raises(whence.InputError, match=rf"input 1: {SAYS}"):
        ex.explain([GOOD, BAD, GOOD], "gae")
    alone = ex.explain(GOOD, "gae")
    np.testing.assert_allclose(ex.explain([GOOD, GOOD], "gae")[1].scores, alone.scores, rtol=1e-5)


@pytest.mark.parametrize("asked", [{"target": BAD}, {"continuation": BAD}])
def test_targets_are_texts_too(asked: dict[str, str]) -> None:
    ex = explainer("causal-lm", "llama")
    with pytest.raises(whence.InputError, match=SAYS):
        ex.explain(GOOD, "gradient", **asked)


def test_a_tokenizer_that_cannot_spell_what_the_model_says() -> None:
    tokenizer = architectures.tokenizer()
    tokenizer.backend_tokenizer.decoder = decoders.Strip("a", 9, 9)
    ex = whence.load(architectures.model("llama", torch.float32, "causal-lm"), tokenizer, task="causal-lm")
    with pytest.raises(whence.ModelError, match=r"a library under whence broke down \(PanicException"):
        ex.explain(GOOD, "gradient", "a")


def test_other_errors_of_a_tokenizer_are_about_the_text() -> None:
    """One that has no token for what it does not know."""
    tokenizer = architectures.tokenizer()
    data = json.loads(tokenizer.backend_tokenizer.to_str())
    data["model"]["unk_token"] = "[GONE]"
    tokenizer._tokenizer = type(tokenizer.backend_tokenizer).from_str(json.dumps(data))
    ex = whence.load(architectures.model("bert", torch.float32), tokenizer)
    with pytest.raises(whence.InputError, match=r"the tokenizer cannot read this text \(Exception: WordPiece error"):
        ex.explain("xyzzy", "gae")
    assert ex.explain(GOOD, "gae").text == GOOD


def test_a_row_of_a_corpus_is_a_bad_row(tmp_path: Path) -> None:
    done = whence.corpus.run([GOOD, BAD, GOOD], tmp_path / "out", explainer(), "gae", progress=False)
    assert (done.rows, done.errors) == (3, 1)
    saved = whence.corpus.open(tmp_path / "out")
    np.testing.assert_allclose(saved["gae"][0].scores, saved["gae"][1].scores, rtol=1e-5)


def test_the_command_line_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    model = architectures.build("bert", torch.float32)
    model.save_pretrained(tmp_path)
    panicking().save_pretrained(tmp_path)
    capfd.readouterr()
    monkeypatch.setattr(sys, "argv", ["whence", "explain", BAD, "--model", str(tmp_path), "--method", "gae"])
    with pytest.raises(SystemExit, match="2"):
        main()
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("whence: ")]
    assert len(said) == 1  # the library itself says where it panicked, above
    assert "the tokenizer cannot read this text (PanicException" in said[0]


def test_a_panic_anywhere_is_one_line_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class PanicException(BaseException):
        pass

    def panic(*given: Any, **named: Any) -> Any:
        raise PanicException("out of\nbounds")

    monkeypatch.setattr(whence, "models", panic)
    monkeypatch.setattr(sys, "argv", ["whence", "models"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr().err.startswith("whence: a library under whence broke down (PanicException: out of): ")


def test_what_a_thread_hands_on_is_an_exception() -> None:
    class PanicException(BaseException):
        pass

    assert isinstance(as_exception(PanicException("x")), whence.ModelError)
    for error in (SystemExit(3), StopIteration("x"), GeneratorExit(), BaseException()):
        assert type(as_exception(error)) is RuntimeError
    error = ValueError("x")
    assert as_exception(error) is error
