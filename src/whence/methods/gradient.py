"""Methods that need only the gradient at the word embeddings x."""

from __future__ import annotations

import torch
from torch import Tensor

from whence.errors import UnknownName
from whence.registry import method
from whence.trace import Trace

GRADIENT_OF = {
    "logit": "embeddings.grad",
    "probability": "embeddings.grad:log-probability",
    "loss": "embeddings.grad:log-probability",
}


def gradient_need(of: str) -> str:
    """The need that records the gradient of this scalar."""
    if of not in GRADIENT_OF:
        raise UnknownName("scalar of=", of, GRADIENT_OF)
    return GRADIENT_OF[of]


def feature_norm(values: Tensor, order: int = 2) -> Tensor:
    """(b, n, d) → (b, n)."""
    norms: Tensor = torch.linalg.vector_norm(values, order, dim=-1)
    return norms


def l1_shares(gradient: Tensor) -> Tensor:
    """‖·‖₁ of each token's features as a share of their sum: (b, n, d) → (b, n)."""
    norms = gradient.abs().sum(-1)
    return norms / norms.sum(-1, keepdim=True).clamp(min=1e-300 if norms.element_size() == 8 else 1e-38)


@method(
    "simple",
    needs={"embeddings.grad:log-probability"},
    signed=False,
    sums_to="1",
    family="gradient",
    paper="AllenNLP Interpret, Wallace 2019",
)
def simple(trace: Trace) -> Tensor:
    """‖∂loss/∂x_j‖₁ of the target's cross-entropy, normalised to sum 1."""
    return l1_shares(trace.embeddings_grad("loss"))


@method(
    "gradient",
    needs=lambda of, **_: {gradient_need(of)},
    signed=False,
    family="gradient",
    paper="Simonyan 2014; ALTI eq. 14",
)
def gradient(trace: Trace, *, norm: int = 2, of: str = "probability") -> Tensor:
    """‖∂p/∂x_j‖₂, how fast the answer moves with the token; `norm` 1 or 2, `of` "probability", "logit" or "loss".

    Args:
        norm: 1 or 2.
        of: "probability", "logit", or "loss", the target's cross-entropy.
    """
    if norm not in (1, 2):
        raise UnknownName("norm", str(norm), ["1", "2"])
    return feature_norm(trace.embeddings_grad(of), norm)


@method(
    "gradient-x-input",
    needs=lambda of, **_: {"embeddings", gradient_need(of)},
    signed=lambda aggregate, **_: aggregate == "sum",
    family="gradient",
    paper="Denil 2014; ALTI eq. 15",
    first_choice=True,
    variants=[{"aggregate": "sum"}],
)
def gradient_x_input(trace: Trace, *, aggregate: str = "l2", of: str = "logit") -> Tensor:
    """∂y/∂x_j ⊙ x_j, put together over features by `aggregate`: "l2" (norm), "mean" (of absolute values) or "sum" (signed).

    Args:
        aggregate: "l2" (default), "mean" or "sum".
        of: "logit", "probability", or "loss", the target's cross-entropy.
    """
    product = trace.embeddings_grad(of) * trace.embeddings
    if aggregate == "l2":
        return feature_norm(product)
    if aggregate == "mean":
        return product.abs().mean(-1)
    if aggregate == "sum":
        return product.sum(-1)
    raise UnknownName("aggregate", aggregate, ["l2", "mean", "sum"])
