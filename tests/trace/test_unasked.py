"""What keeps a GPU from being waited for changes no answer: batches without a mask, and a mask that nobody looks into."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function, eager_mask

import whence
from tests.architectures import NAMES, model, tokenizer
from whence.inputs import Batch
from whence.models import untouched, uses_attention_interface
from whence.tasks import Question
from whence.trace.attention import (
    NAME,
    UNASKED,
    asked_for_mask,
    hides_nothing,
    mask_written_out,
    unasked,
    without_what_hides_nothing,
)
from whence.trace.recorder import model_inputs

TEXTS = ["a good film", "the plot is not very long , but the music was great !", "dull"]


def batch_of(explainer: whence.Explainer, texts: list[str]) -> Batch:
    rows = [explainer.encode(text, Question())[0] for text in texts]
    return explainer.session.collate(rows)


def logits(
    explainer: whence.Explainer, inputs: dict[str, torch.Tensor], pad: int, attention: str | None
) -> torch.Tensor:
    with untouched(explainer.model, attention=attention, pad_id=pad), torch.no_grad():
        found: torch.Tensor = explainer.model(**inputs).logits
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_mask_that_hides_nothing_is_left_out_and_nothing_changes(name: str) -> None:
    ex = whence.load(model(name), tokenizer())
    batch = batch_of(ex, [TEXTS[0]] * 2)
    assert batch.attention_mask is None
    assert not batch.padded
    inputs = model_inputs(ex.model, batch)
    assert "attention_mask" not in inputs
    there = logits(ex, {**inputs, "attention_mask": torch.ones_like(batch.input_ids)}, batch.pad_id, None)
    torch.testing.assert_close(logits(ex, inputs, batch.pad_id, None), there, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("texts", [TEXTS, [TEXTS[0]] * 2])
def test_a_mask_that_nobody_looks_into_hides_the_same(name: str, texts: list[str]) -> None:
    ex = whence.load(model(name), tokenizer())
    if not uses_attention_interface(ex.model):
        pytest.skip("its attention is its own")
    batch = batch_of(ex, texts)
    assert (batch.attention_mask is None) == (not batch.padded)
    inputs = model_inputs(ex.model, batch)
    expected = logits(ex, inputs, batch.pad_id, "sdpa")
    torch.testing.assert_close(logits(ex, inputs, batch.pad_id, UNASKED), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("attention", [NAME, UNASKED])
def test_a_mask_that_says_it_hides_nothing_is_no_mask(name: str, attention: str) -> None:
    ex = whence.load(model(name), tokenizer())
    if not uses_attention_interface(ex.model):
        pytest.skip("its attention is its own")
    batch = batch_of(ex, [TEXTS[0]] * 2)
    inputs = model_inputs(ex.model, batch)
    there = {**inputs, "attention_mask": hides_nothing(batch.input_ids)}
    expected = logits(ex, inputs, batch.pad_id, attention)
    torch.testing.assert_close(logits(ex, there, batch.pad_id, attention), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "wanted"), [("gpt2", True), ("llama", True), ("bert", False)])
def test_decoders_on_a_gpu_are_told_that_nothing_is_hidden(name: str, wanted: bool) -> None:
    """Without a mask they would look for padding in their ids, and for packed texts in their positions."""
    ex, cuda = whence.load(model(name), tokenizer()), torch.device("cuda")
    assert not asked_for_mask(ex.model, cuda)  # it runs as its owner has set it
    with untouched(ex.model, attention=UNASKED):
        assert asked_for_mask(ex.model, cuda) == wanted
        assert not asked_for_mask(ex.model, torch.device("cpu"))


def test_a_mask_knows_by_its_strides_whether_it_hides_anything() -> None:
    ids = torch.zeros(2, 3, dtype=torch.int64)
    assert without_what_hides_nothing({"attention_mask": hides_nothing(ids).view(2, -1)}) == {"attention_mask": None}
    for mask in (torch.ones(2, 3, dtype=torch.bool), torch.ones(1, 1, dtype=torch.bool)):
        assert without_what_hides_nothing({"attention_mask": mask})["attention_mask"] is mask


def test_only_torchs_own_kernel_on_a_gpu_is_asked_in_our_way() -> None:
    bert = model("bert")
    assert bert.config._attn_implementation == "sdpa"
    assert unasked(bert, torch.device("cuda")) == UNASKED
    assert unasked(bert, torch.device("cpu")) is None
    with untouched(bert, attention="eager"):
        assert unasked(bert, torch.device("cuda")) is None


def test_a_row_that_hides_a_token_keeps_its_mask() -> None:
    ex = whence.load(model("bert"), tokenizer())
    row = ex.encode({"input_ids": [2, 6, 7, 3], "attention_mask": [1, 0, 1, 1]}, Question())[0]
    batch = ex.session.collate([row])
    assert batch.attention_mask is not None
    assert batch.attention_mask.tolist() == [[1, 0, 1, 1]]
    assert not batch.padded


def test_a_batch_knows_its_texts_on_the_host() -> None:
    ex = whence.load(model("bert"), tokenizer())
    rows = [ex.encode(text, Question())[0] for text in TEXTS]
    assert ex.session.collate(rows).texts() == [list(row.input_ids) for row in rows]


@pytest.mark.parametrize("function", [bidirectional_mask_function, causal_mask_function])
@pytest.mark.parametrize("padded", [True, False])
def test_the_mask_that_is_written_out_is_that_of_transformers(function: Any, padded: bool) -> None:
    """It is made in another way, without a question to the device."""
    seen = torch.tensor([[True] * 5, [True] * 3 + [False] * 2]) if padded else torch.ones(2, 5, dtype=torch.bool)
    given = {"batch_size": 2, "q_length": 5, "kv_length": 5, "mask_function": function, "attention_mask": seen}
    for dtype in (torch.float32, torch.bfloat16):
        found = mask_written_out(**given, dtype=dtype, device=torch.device("cpu"))
        expected = eager_mask(**given, dtype=dtype, device=torch.device("cpu"))
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected.expand(found.shape), rtol=0, atol=0)
