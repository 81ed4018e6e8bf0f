"""Hooks that keep a model's states while it runs: the word embeddings, as a leaf of the graph, and what each layer reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whence.errors import NotSupported
from whence.models import layers_of


@contextmanager
def leaf_embeddings(model: PreTrainedModel, kept: list[Tensor], points: Tensor | None = None) -> Iterator[None]:
    """Make the word embeddings, or `points` in their place, a leaf of the graph: what `inputs_embeds` would take, with the
    ids still seen by the model."""

    def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        leaf = output.detach() if points is None else points.detach().to(output.dtype)
        if torch.is_grad_enabled():
            leaf.requires_grad_(True)
        kept.append(leaf)
        return leaf

    table: Any = model.get_input_embeddings()
    handle = table.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def layer_states(model: PreTrainedModel, modules: Sequence[nn.Module], kept: list[Tensor]) -> Iterator[None]:
    """Keep the input of every layer and the output of the last: X^0 … X^L, before any final norm. modules: the model's."""
    layers = layers_of(model, modules)
    if not layers:
        raise NotSupported(
            f"the layers of {type(model).__name__} cannot be told; methods that need none still work: raw-attention, rollout, "
            "grads, attgrads, attention-gradcam, gae, simple, gradient, gradient-x-input."
        )
    output_of_last: list[
        Tensor
    ] = []  # a module that serves several layers is left more than once: the last time counts

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        kept.append(args[0] if args else kwargs["hidden_states"])

    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        output_of_last[:] = [output[0] if isinstance(output, tuple) else output]

    distinct = list(dict.fromkeys(layers))
    handles = [m.register_forward_pre_hook(before, with_kwargs=True) for m in distinct]
    handles.append(layers[-1].register_forward_hook(after))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        kept += output_of_last
