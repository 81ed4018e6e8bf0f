"""Methods that weigh attention by its gradient G^l = ∂y/∂A^l."""

from __future__ import annotations

import torch
from torch import Tensor

from whence.errors import UnknownName
from whence.fast.fused import fusible
from whence.registry import method
from whence.trace import Trace
from whence.trace.attribution import Attribution


def positive_products(g: Tensor, a: Tensor) -> Tensor:
    """mean_h max(0, G ⊙ A): (b, H, n, n) twice → (b, n, n); one look at each on CUDA where Triton is there."""
    if fusible(g, a):
        from whence.fast.attention_triton import positive_products_fused

        return positive_products_fused(g, a)
    return (g * a).clamp_(min=0).mean(1)


@method(
    "grads",
    needs={"attention.grad:last"},
    signed=False,
    family="attention gradient",
    paper="AttCAT 'Grads', Mask-LRP 'CAM'",
)
def grads(trace: Trace) -> Tensor:
    """Positive part of the last layer's attention gradient, mean over heads and queries: max(0, mean_{h,i} G^L[h, i, j])."""
    return trace.mean_tokens(trace.attention_grad[-1].mean(1), dim=1).clamp(min=0)


@method(
    "attgrads",
    needs={"attention", "attention.grad"},
    signed=False,
    layers_start=1,
    family="attention gradient",
    paper="Grad-SAM, Barkan 2021",
)
def attgrads(trace: Trace) -> Attribution:
    """Grad-SAM: mean over layers, heads and queries of A^l ⊙ max(0, G^l), column j. (A ≥ 0, so that is max(0, G^l ⊙ A^l).)"""
    maps = zip(trace.attention, trace.attention_grad, strict=True)
    layers = torch.stack([trace.mean_tokens(positive_products(g, a), dim=1) for a, g in maps], dim=1)
    return Attribution(layers.mean(1), layers)


@method(
    "attention-gradcam",
    needs={"attention", "attention.grad:last", "readout"},
    signed=False,
    family="attention gradient",
    paper="AttCAT & Mask-LRP 'GradCAM'",
)
def attention_gradcam(trace: Trace, *, variant: str = "paper") -> Tensor:
    """Grad-CAM over heads: w_h = mean_{i,j} G^L_h; P = max(0, mean_h w_h A^L_h); row r of P.

    Args:
        variant: "paper" (default), or "released", which also scales P to [0, 1] by its smallest and largest entry, as the
            authors' code does. Departure: where theirs divides 0 by 0 (P constant) the scores are zeros here.
    """
    if variant not in ("paper", "released"):
        raise UnknownName("variant", variant, ["paper", "released"])
    weights = trace.mean_tokens(trace.mean_tokens(trace.attention_grad[-1], dim=3), dim=2)  # (b, H)
    cam = (weights[:, :, None, None] * trace.attention[-1]).mean(1).clamp(min=0)  # (b, n, n)
    if variant == "released":
        cam = min_max_scaled(cam, trace.valid)
    return trace.at_readout(cam)


def min_max_scaled(matrix: Tensor, valid: Tensor) -> Tensor:
    """(M − min M) / (max M − min M) over each row's real tokens; zeros where M is constant. (b, n, n)"""
    pairs = valid[:, :, None] & valid[:, None, :]
    low = matrix.masked_fill(~pairs, float("inf")).amin((1, 2), keepdim=True)
    high = matrix.masked_fill(~pairs, -float("inf")).amax((1, 2), keepdim=True)
    spread = high - low
    return ((matrix - low) / spread).masked_fill(~(spread > 0), 0.0)


@method(
    "gae",
    needs={"attention", "attention.grad", "readout"},
    signed=False,
    layers_start=1,
    family="attention gradient",
    paper="Chefer 2021 (ICCV)",
    first_choice=True,
)
def gae(trace: Trace) -> Attribution:
    """Generic attention explainability: R = I, then R += mean_h max(0, G^l ⊙ A^l)·R for l = 1..L; row r of R."""
    relevance = trace.eye.expand(len(trace.lengths), -1, -1)  # (b, n, n)
    layers = []
    for a, g in zip(trace.attention, trace.attention_grad, strict=True):
        relevance = relevance + positive_products(g, a) @ relevance
        layers.append(trace.at_readout(relevance))
    return Attribution(layers[-1], torch.stack(layers, dim=1))
