"""Models made in several threads at once: each is what it is when made alone, and the process is as it was."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers.utils.logging
from transformers import BertConfig, BertForSequenceClassification, GPT2LMHeadModel, PreTrainedModel

import whence
from tests import architectures
from whence.models import zoo
from whence.models.zoo import loading

PATIENCE = 1.0  # seconds for the other thread to come as far as it can, if nothing holds it


def interleaved(monkeypatch: pytest.MonkeyPatch, kind: type[PreTrainedModel], *work: Callable[[], Any]) -> list[Any]:
    """What two calls give that make models of a class in two threads: the second begins while the first is in the middle, and
    ends after it (wherever nothing keeps the two apart)."""
    make: Any = kind.__init__
    inside = [threading.Event(), threading.Event()]
    found: list[Any] = [None, None]

    def run(place: int) -> None:
        found[place] = work[place]()

    threads = [threading.Thread(target=run, args=(place,)) for place in (0, 1)]

    def slowly(self: Any, *args: Any, **more: Any) -> None:
        place = threads.index(threading.current_thread())
        inside[place].set()
        if place == 0:
            inside[1].wait(PATIENCE)
        else:
            threads[0].join(60)
        make(self, *args, **more)

    monkeypatch.setattr(kind, "__init__", slowly)
    threads[0].start()
    assert inside[0].wait(60)
    threads[1].start()
    for thread in threads:
        thread.join(60)
    monkeypatch.undo()
    return found


def fresh() -> dict[str, torch.Tensor]:
    """The weights of a model as transformers fills them."""
    torch.manual_seed(0)
    weights: dict[str, torch.Tensor] = BertForSequenceClassification(architectures.config("bert")).state_dict()
    return weights


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[key], other[key]) for key in one)


@pytest.fixture
def process_wide() -> Any:
    """What transformers changes for all threads while it makes a model; put back here, so that no other test suffers."""
    methods = {name: getattr(PreTrainedModel, name) for name in ("init_weights", "tie_weights")}
    fills = {name: getattr(torch.nn.init, name) for name in ("normal_", "uniform_", "kaiming_uniform_", "ones_")}
    dtype, bars = torch.get_default_dtype(), transformers.utils.logging.is_progress_bar_enabled()

    def now() -> tuple[Any, ...]:
        return (
            *(getattr(PreTrainedModel, name) for name in methods),
            torch.get_default_dtype(),
            transformers.utils.logging.is_progress_bar_enabled(),
        )

    yield now
    for name, method in methods.items():
        setattr(PreTrainedModel, name, method)
    for name, fill in fills.items():
        setattr(torch.nn.init, name, fill)
    torch.set_default_dtype(dtype)
    if bars:
        transformers.utils.logging.enable_progress_bar()


def test_embedded_models_in_two_threads(monkeypatch: pytest.MonkeyPatch, process_wide: Any) -> None:
    before, filled, alone = process_wide(), fresh(), zoo.load("sentiment")[0].state_dict()
    load = [lambda: whence.load("sentiment"), lambda: whence.load("sentiment", dtype="float64")]
    one, other = interleaved(monkeypatch, BertForSequenceClassification, *load)
    assert process_wide() == before
    assert (one.model.dtype, other.model.dtype) == (torch.float32, torch.float64)
    assert same(one.model.state_dict(), alone)
    assert same({key: value.to(alone[key].dtype) for key, value in other.model.state_dict().items()}, alone)
    assert same(fresh(), filled)  # a model made afterwards is filled


def test_checkpoints_in_two_threads(monkeypatch: pytest.MonkeyPatch, process_wide: Any, tmp_path: Path) -> None:
    """A language model whose head is its embedding: were it not tied, it would have no head at all."""
    before = process_wide()
    model = architectures.build("gpt2", torch.float32, task="causal-lm")
    model.save_pretrained(tmp_path)
    load = [lambda: whence.load(tmp_path, dtype="float32"), lambda: whence.load(tmp_path, dtype="float64")]
    for kind, found in zip(
        (torch.float32, torch.float64), interleaved(monkeypatch, GPT2LMHeadModel, *load), strict=True
    ):
        assert {parameter.dtype for parameter in found.model.parameters()} == {kind}
        assert found.model.lm_head.weight is found.model.transformer.wte.weight
        assert torch.equal(found.model.lm_head.weight.float(), model.get_input_embeddings().weight)
    assert process_wide() == before


def test_who_makes_a_model_while_an_embedded_one_is_loaded(monkeypatch: pytest.MonkeyPatch, process_wide: Any) -> None:
    """A server's worker loads a language model when it is first asked for a method that needs one: a model that its owner makes
    meanwhile has its weights nevertheless."""
    filled = fresh()
    reached, go_on = threading.Event(), threading.Event()

    class Paused(BertForSequenceClassification):
        def __init__(self, config: Any) -> None:
            reached.set()
            assert go_on.wait(60)
            super().__init__(config)

    monkeypatch.setattr(loading, "_classes", lambda task: (BertConfig, Paused))
    loader = threading.Thread(target=zoo.load, args=("sentiment",))
    loader.start()
    assert reached.wait(60)
    meanwhile = fresh()
    go_on.set()
    loader.join(60)
    assert same(meanwhile, filled)
