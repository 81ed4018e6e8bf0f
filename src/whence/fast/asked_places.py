"""Run a language model's head only where it is asked: at one token of a prompt or a few of a text, not at all of them.

The head is a product with every word of the vocabulary: a third of GPT-2, and its logits at all tokens outweigh everything else in
memory. A hook on the module that Hugging Face calls the output embeddings hands it the states at the places that are read; the model
is not changed.

Nothing is believed: a model qualifies if its logits there come out the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whence.fast.first_token import logits_of, sample_inputs
from whence.inputs import Batch
from whence.models.lending import Lent, untouched
from whence.models.rounding import close

_TRIED: weakref.WeakKeyDictionary[nn.Module, tuple[weakref.ref[nn.Module], bool]] = weakref.WeakKeyDictionary()


def asked_places_only(model: PreTrainedModel, lent: Lent, batch: Batch) -> AbstractContextManager[None]:
    """Within the block the logits of a language model are (b, places, options), if the batch asks at fewer places than it has
    tokens; nothing is different for other models, and for one that carries hooks of its owner, who would see rows missing. Call it
    on a model that is lent, before hooks of whence's own are there."""
    if not 0 < batch.own_places.shape[1] < batch.own_ids.shape[1] or lent.listened_to:
        return nullcontext()
    head = head_of(model)
    return nullcontext() if head is None else cut(head, batch.places)


def head_of(model: PreTrainedModel) -> nn.Module | None:
    """The head, where it may be given some states instead of all; tried once per model and head."""
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    if not isinstance(head, nn.Module):
        return None
    tried = _TRIED.get(model)
    if tried is None or tried[0]() is not head:
        tried = weakref.ref(head), survives(model, head)
        _TRIED[model] = tried
    return head if tried[1] else None


def survives(model: PreTrainedModel, head: nn.Module) -> bool:
    """A try on two rows of four tokens, asked at two places each."""
    inputs = sample_inputs(model)
    places = torch.tensor([[2, 0], [3, 1]], device=model.device)
    try:
        with untouched(model), torch.no_grad():
            whole = logits_of(model(**inputs))
            with cut(head, places):
                found = logits_of(model(**inputs))
    except Exception:  # a head that is given something else than (b, n, d): the model runs whole
        return False
    if whole is None or whole.dim() != 3 or whole.shape[:2] != inputs["input_ids"].shape:
        return False
    return close(found, at(whole, places))


def at(values: Tensor, places: Tensor) -> Tensor:
    """(b, n, d) → (b, places, d)."""
    return values.gather(1, places[:, :, None].expand(-1, -1, values.shape[-1]))


@contextmanager
def cut(head: nn.Module, places: Tensor) -> Iterator[None]:
    def hook(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (at(args[0], places), *args[1:])

    handle = head.register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()
