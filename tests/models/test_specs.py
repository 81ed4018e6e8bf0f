"""Specs are believed only after they have rebuilt the model's real numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import whence
from tests import architectures
from whence.models import SPECS, Spec, add_spec, spec_of
from whence.models.specs import epsilon, part, projection

TEXT = "a charming and funny film ."


@pytest.fixture
def specs(monkeypatch: pytest.MonkeyPatch) -> dict[str, Spec]:
    """A copy that a test may change."""
    copy = dict(SPECS)
    for name in SPECS:
        monkeypatch.setitem(SPECS, name, copy[name])
    return SPECS


@pytest.mark.parametrize("name", SPECS)
def test_every_spec_rebuilds_its_model(name: str) -> None:
    model = architectures.build(name, seed=1)
    whence.load(model, architectures.tokenizer()).explain(TEXT, "norms")  # raises where it does not


BROKEN = {
    "norm": replace(SPECS["bert"], norm="output.LayerNorm"),
    "second_norm": replace(SPECS["bert"], second_norm="attention.output.LayerNorm"),
    "output": replace(SPECS["bert"], output="attention.self.query"),
    "feed_forward": replace(SPECS["bert"], feed_forward=("intermediate.dense", "output.dense")),
    "pre-norm": replace(SPECS["bert"], norm=None),
    "rms": replace(SPECS["bert"], rms=True),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_spec_is_an_error_not_a_number(what: str, specs: dict[str, Spec]) -> None:
    ex = whence.load(architectures.build("bert"), architectures.tokenizer())
    good = specs["bert"]
    add_spec("bert", BROKEN[what])
    for _ in range(2):  # not only the first time
        with pytest.raises(whence.WhenceError, match="spec does not fit"):
            ex.explain(TEXT, "alti")
    add_spec("bert", good)
    assert len(ex.explain(TEXT, "alti"))


def test_a_spec_changed_after_use_is_checked_again(specs: dict[str, Spec]) -> None:
    ex = whence.load(architectures.build("bert"), architectures.tokenizer())
    ex.explain(TEXT, "alti")
    add_spec("bert", BROKEN["norm"])
    with pytest.raises(whence.WhenceError, match="spec does not fit"):
        ex.explain(TEXT, "alti")


def test_a_path_that_is_not_there_is_named(specs: dict[str, Spec]) -> None:
    add_spec("bert", replace(specs["bert"], norm="attention.norm"))
    with pytest.raises(whence.WhenceError, match=r"'attention.norm'.*no such part"):
        whence.load(architectures.build("bert"), architectures.tokenizer()).explain(TEXT, "alti")


def test_a_new_family_is_a_few_lines(specs: dict[str, Spec], monkeypatch: pytest.MonkeyPatch) -> None:
    model = architectures.build("bert")
    model.config.model_type = "my-bert"
    ex = whence.load(model, architectures.tokenizer())
    with pytest.raises(whence.NotSupported, match="'my-bert'"):
        ex.explain(TEXT, "alti")
    monkeypatch.setitem(SPECS, "my-bert", specs["bert"])
    assert spec_of(model) is specs["bert"]
    assert len(ex.explain(TEXT, "alti"))


def test_parts() -> None:
    gpt2, llama = (architectures.model(name) for name in ("gpt2", "llama"))
    weight, bias = projection(part(gpt2.transformer.h[0], "attn.c_proj"))
    assert weight.shape == (32, 32)
    x = torch.randn(4, 32, dtype=torch.float64)
    torch.testing.assert_close(x @ weight + bias, gpt2.transformer.h[0].attn.c_proj(x))
    assert epsilon(llama.model.norm) == llama.config.rms_norm_eps
    assert epsilon(gpt2.transformer.ln_f) == gpt2.config.layer_norm_epsilon
