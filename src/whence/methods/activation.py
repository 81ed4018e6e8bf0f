"""Methods that weigh hidden states by their gradient: class activation tokens and Grad-CAM."""

from __future__ import annotations

from numbers import Integral

import torch
from torch import Tensor

from whence.errors import InputError, UnknownName
from whence.registry import method
from whence.trace import Trace
from whence.trace.attribution import Attribution

ATTCAT = "AttCAT, Qiang 2022"


def activation_maps(trace: Trace) -> Tensor:
    """Σ_d (∂y/∂X^l ⊙ X^l)[j] for l = 0..L: (b, L + 1, n)."""
    pairs = zip(trace.hidden, trace.hidden_grad, strict=True)
    return torch.stack([torch.linalg.vecdot(x, g) for x, g in pairs], dim=1)


def check_layer(layer: int | None, depth: int) -> None:
    """A layer is 0 (embeddings) … L, or counted from the end with a minus."""
    if layer is not None and (
        isinstance(layer, bool) or not isinstance(layer, Integral) or not -depth - 1 <= layer <= depth
    ):
        raise InputError(f"layer={layer!r}: this model has layers 0 (the embeddings) to {depth}.")


@method(
    "cat",
    needs={"hidden", "hidden.grad"},
    signed=True,
    layers_start=1,
    family="activation",
    paper=f"{ATTCAT}, eq. 8–10",
)
def cat(trace: Trace, *, layer: int | None = None) -> Attribution:
    """Class activation tokens: Σ_l Σ_d (∂y/∂X^l ⊙ X^l)[j] over the outputs of layers 1..L; `layer` for one of 0..L.

    Args:
        layer: 0 (the embeddings) … L, or counted from the end with a minus; None (default) sums layers 1 … L.
    """
    maps = activation_maps(trace)
    check_layer(layer, maps.shape[1] - 1)
    layers = maps[:, 1:]
    return Attribution(layers.sum(1) if layer is None else maps[:, layer], layers)


@method(
    "attcat",
    needs={"attention", "hidden", "hidden.grad"},
    signed=True,
    layers_start=1,
    family="activation",
    paper=f"{ATTCAT}, eq. 11–12",
    first_choice=True,
    variants=[{"variant": "paper"}],
    output_options={"variant": "paper"},
)
def attcat(trace: Trace, *, variant: str = "released") -> Attribution:
    """Attentive class activation tokens: Σ_l a^l_j · Σ_d (∂y/∂X ⊙ X)[j], a^l_j = mean_{h,i} A^l[h, i, j]. Signed.

    Args:
        variant: "released" (default) pairs A^l with X^{l-1}, the layer's input, as the authors' code does; "paper" pairs it
            with X^l, the layer's output, as eq. 10–12 say.
    """
    if variant not in ("paper", "released"):
        raise UnknownName("variant", variant, ["paper", "released"])
    received = torch.stack([trace.mean_tokens(a, dim=1) for a in trace.mean_attention], dim=1)  # a^l: (b, L, n)
    maps = activation_maps(trace)
    layers = received * (maps[:, :-1] if variant == "released" else maps[:, 1:])
    return Attribution(layers.sum(1), layers)


@method(
    "grad-cam",
    needs={"hidden", "hidden.grad"},
    signed=False,
    layers_start=0,
    family="activation",
    paper="Decoded saliency, eq. 1–2",
)
def grad_cam(trace: Trace, *, layer: int = 0) -> Attribution:
    """Grad-CAM of one layer's hidden states: max(0, Σ_d (∂y/∂X^l ⊙ X^l)[j]); `.layers` holds all of 0..L.

    Args:
        layer: 0 (the embeddings, default) … L, or counted from the end with a minus.
    """
    layers = activation_maps(trace).clamp(min=0)
    check_layer(layer, layers.shape[1] - 1)
    return Attribution(layers[:, layer], layers)
