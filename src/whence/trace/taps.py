"""Hooks that keep a model's states while it runs: the word embeddings, as a leaf of the graph, and what each layer reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whence.errors import NotSupported
from whence.models import known_reads, layers_of, two_part


@contextmanager
def leaf_embeddings(
    model: PreTrainedModel, kept: list[Tensor], ids: Tensor, points: Tensor | None = None
) -> Iterator[None]:
    """Make the word embeddings of `ids`, or `points` in their place, a leaf of the graph: what `inputs_embeds` would take, with the
    ids still seen by the model."""
    reads = known_reads(model)
    overwritten = reads is not None and reads.overwrites

    def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        found = output[0] if isinstance(output, (tuple, list)) else output
        if kept or not has_states(found, ids, model):
            raise no_embeddings(model)
        leaf = found.detach() if points is None else points.detach().to(found.dtype)
        if torch.is_grad_enabled():
            leaf.requires_grad_(True)
        kept.append(leaf)
        leaf = leaf.clone() if overwritten else leaf
        return type(output)((leaf, *output[1:])) if isinstance(output, (tuple, list)) else leaf

    table: Any = model.get_input_embeddings()
    handle = table.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
    if not kept:
        raise no_embeddings(model)


def has_states(states: Any, ids: Tensor, model: PreTrainedModel) -> bool:
    """(b, n, d), which (n, b, d) may look like"""
    reads = known_reads(model)
    fits = isinstance(states, Tensor) and states.dim() == 3 and states.shape[:2] == ids.shape
    return fits and not (reads is not None and reads.turned)


def no_embeddings(model: PreTrainedModel) -> NotSupported:
    """The error of a model whose word embeddings are not one vector for each token of the text."""
    return NotSupported(
        f"{type(model).__name__} does not look its tokens up once, as one vector each, so nothing can be explained by its word embeddings",
        lacks=("trace",) if two_part(model) else ("embeddings", "hidden"),
    )


@contextmanager
def layer_states(
    model: PreTrainedModel, modules: Sequence[nn.Module], kept: list[Tensor], ids: Tensor
) -> Iterator[None]:
    """Keep the input of every layer and the output of the last: X^0 … X^L of `ids`, before any final norm. modules: the model's."""
    layers = layers_of(model, modules)
    if not layers:
        raise NotSupported(f"the layers of {type(model).__name__} cannot be told", lacks=("hidden",))
    output_of_last: list[
        Tensor
    ] = []  # a module that serves several layers is left more than once: the last time counts

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        kept.append(checked(args[0] if args else kwargs.get("hidden_states")))

    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        output_of_last[:] = [checked(output[0] if isinstance(output, (tuple, list)) else output)]

    def checked(states: Any) -> Tensor:
        if not has_states(states, ids, model):
            raise no_states(model)
        return states  # type: ignore[no-any-return]

    distinct = list(dict.fromkeys(layers))
    handles = [m.register_forward_pre_hook(before, with_kwargs=True) for m in distinct]
    handles.append(layers[-1].register_forward_hook(after))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        kept += output_of_last
    if len(kept) < 2:  # the modules are there, but something else is run
        raise no_states(model)


def no_states(model: PreTrainedModel) -> NotSupported:
    """The error of a model whose layers work on something else than the tokens of the text; nor is its attention between these."""
    return NotSupported(
        f"the layers of {type(model).__name__} do not hand on one vector for each token, in the order of the text",
        lacks=("hidden", "attention"),
    )
