"""What a call believes of a model while a GPU has its work, and what happens when it was not so: the right answer all the same."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import whence
from tests import architectures
from whence.errors import ModelError
from whence.fast import meanwhile
from whence.models import Lender, Lent, ModelChanged
from whence.models.layers import layers_of
from whence.trace import recorder

TEXTS = ["a charming film", "the plot is slow , dull and never moving", "good"]
METHODS = ["gradient-x-input", "attcat", "attnlrp", "alti"]


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """As on a GPU. Gives, for every forward, whether the model's parts were believed."""
    for module in (meanwhile, recorder):
        monkeypatch.setattr(module, "launched_by_another_thread", lambda tensor: True)
    found: list[bool] = []
    believed = Lender.believed

    def noting(self: Lender, model: nn.Module) -> Lent | None:
        found.append(believed(self, model) is not None)
        return believed(self, model)

    monkeypatch.setattr(Lender, "believed", noting)
    return found


def loaded(name: str = "bert") -> whence.Explainer:
    return whence.load(architectures.build(name, torch.float64), architectures.tokenizer())


def scores(explainer: whence.Explainer, methods: list[str] = METHODS) -> dict[str, list[np.ndarray]]:
    return {name: [e.scores for e in es] for name, es in explainer.explain(TEXTS, methods).items()}


def agree(found: dict[str, list[np.ndarray]], wanted: dict[str, list[np.ndarray]]) -> None:
    for name, own in wanted.items():
        for a, b in zip(found[name], own, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12, err_msg=name)


def afresh(explainer: whence.Explainer) -> dict[str, list[np.ndarray]]:
    """What somebody finds who has never seen the model."""
    return scores(whence.load(explainer.model, explainer.tokenizer))


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "albert", "gpt2", "llama", "mpnet"])
def test_from_the_third_forward_on_a_model_is_believed_and_scores_are_the_same(name: str, late: list[bool]) -> None:
    explainer = loaded(name)
    methods = ["gradient-x-input", "attcat", "gae"]
    first = scores(explainer, methods)
    for _ in range(3):
        agree(scores(explainer, methods), first)
    assert not late[0]
    assert late[-1]


def test_a_cpu_walks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lender, "believed", lambda self, model: pytest.fail("nothing works meanwhile"))
    explainer = loaded()
    for _ in range(2):
        explainer.explain(TEXTS, METHODS)


def other_layer(model: Any) -> None:
    layers = layers_of(model)
    layers[0].attention.self.query = copy.deepcopy(layers[1].attention.self.key)


def training_layer(model: Any) -> None:
    """A layer that was taken out, put to training, and is another object than before."""
    model.bert.encoder.layer[1] = copy.deepcopy(model.bert.encoder.layer[1]).train()


def dropout_on(model: Any) -> None:
    model.bert.encoder.layer[0].output.dropout.p = 0.5
    model.bert.encoder.layer[0].output.dropout.train()


def everything_trains(model: Any) -> None:
    model.train()


def other_weights(model: Any) -> None:
    with torch.no_grad():
        model.bert.encoder.layer[0].output.dense.weight.mul_(1.5)


def other_parameter(model: Any) -> None:
    dense = model.bert.encoder.layer[0].output.dense
    dense.weight = nn.Parameter(dense.weight.detach() * 1.5)


def other_config(model: Any) -> None:
    own = copy.deepcopy(model.config)
    for module in model.bert.encoder.modules():
        if hasattr(module, "config"):
            module.config = own


def hooked(model: Any) -> None:
    model.bert.encoder.layer[0].register_forward_hook(lambda module, args, output: output)


CHANGES = [
    other_layer,
    training_layer,
    dropout_on,
    everything_trains,
    other_weights,
    other_parameter,
    other_config,
    hooked,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_has_changed_since_is_explained_as_it_is(change: Callable[[Any], None], late: list[bool]) -> None:
    explainer = loaded()
    explainer.model.config.attention_probs_dropout_prob = explainer.model.config.hidden_dropout_prob = 0.3
    for _ in range(2):
        scores(explainer)
    change(explainer.model)
    flags = [module.training for module in explainer.model.modules()]
    found = scores(explainer)
    assert [module.training for module in explainer.model.modules()] == flags
    agree(found, afresh(explainer))
    agree(scores(explainer), found)


def test_what_was_found_out_late_is_run_again_once(late: list[bool]) -> None:
    explainer = loaded()
    for _ in range(2):
        explainer.explain(TEXTS, "gradient-x-input")
    late.clear()
    training_layer(explainer.model)
    explainer.model.bert.encoder.layer[1].eval()
    explainer.explain(TEXTS, "gradient-x-input")
    assert late == [True, False]  # believed, and wrongly; then looked at first


def test_a_layer_that_trains_draws_no_random_number(late: list[bool]) -> None:
    explainer = loaded()
    for _ in range(2):
        explainer.explain(TEXTS, "gradient-x-input")
    dropout_on(explainer.model)
    before = torch.get_rng_state()
    explainer.explain(TEXTS, "gradient-x-input")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_new_hook_is_called_once_and_sees_whole_rows(late: list[bool]) -> None:
    explainer = loaded()
    for _ in range(2):
        explainer.explain(TEXTS, "gradient-x-input")
    seen: list[tuple[int, ...]] = []
    model: Any = explainer.model
    model.bert.encoder.layer[-1].output.register_forward_hook(lambda module, args, output: seen.append(output.shape))
    batch = explainer.session.collate(explainer.rows(TEXTS, [explainer.ask()] * len(TEXTS), "error", 8192))
    explainer.explain(TEXTS, "gradient-x-input")
    assert seen == [(*batch.input_ids.shape, 32)]


def test_weights_that_are_no_numbers_are_found_in_parts_that_are_new(late: list[bool]) -> None:
    explainer = loaded()
    for _ in range(2):
        explainer.explain(TEXTS, "gradient-x-input")
    model: Any = explainer.model
    broken = copy.deepcopy(model.bert.encoder.layer[0].output.dense)
    with torch.no_grad():
        broken.weight[0, 0] = torch.nan
    model.bert.encoder.layer[0].output.dense = broken
    with pytest.raises(ModelError, match=r"layer\.0\.output\.dense\.weight"):
        explainer.explain(TEXTS, "gradient-x-input")


def test_an_interrupt_is_not_kept_waiting_by_a_model_that_has_changed(
    late: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    explainer = loaded()
    for _ in range(2):
        explainer.explain(TEXTS, "gradient-x-input")
    other_layer(explainer.model)

    def interrupted(*given: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(recorder.Recording, "toward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        explainer.explain(TEXTS, "gradient-x-input")


def test_a_batch_is_run_again_where_the_model_had_changed() -> None:
    explainer, runs = loaded(), []
    rows = explainer.rows(TEXTS, [explainer.ask()] * len(TEXTS), "error", 8192)

    batches = explainer.session.batches(rows, 8192)
    for numbers in batches:
        with batches.fitting(numbers):
            runs.append(numbers)
            if len(runs) == 1:
                raise ModelChanged
    assert len(runs) == 2
    assert runs[0] == runs[1]


def test_nothing_is_remembered_of_another_model() -> None:
    lender, one, other = Lender(), loaded().model, loaded().model
    lender.confirm(Lent.of(one), Lent.of(one))
    assert lender.believed(one) is not None
    assert lender.believed(other) is None
    lender.confirm(Lent.of(other), Lent.of(other))
    assert lender.believed(one) is None


def test_copies_and_pickles_remember_nothing(late: list[bool]) -> None:
    explainer = loaded()
    for _ in range(2):
        wanted = scores(explainer)
    twin = copy.deepcopy(explainer.session)
    assert twin.lender.believed(twin.model) is None
    assert pickle.loads(pickle.dumps(explainer.session.lender)).believed(explainer.model) is None
    agree(scores(explainer), wanted)


def test_two_threads_explain_one_model(late: list[bool]) -> None:
    explainer = loaded()
    wanted = scores(explainer)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                agree(scores(explainer), wanted)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
