"""Methods that propagate relevance from the target's logit down to the tokens (layer-wise relevance propagation)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from whence.errors import InputError, UnknownName
from whence.methods.attention import rollout_rows, row_normalised
from whence.methods.attention_gradient import positive_products
from whence.registry import method
from whence.relevance.gates import HeadParts
from whence.relevance.operations import RelevancePass
from whence.relevance.rules import rule_set
from whence.trace import Trace
from whence.trace.attribution import Attribution, Share

CHEFER = "Chefer 2021 (CVPR)"
MASK_LRP = "Mask-LRP, Song 2024"


def relevance_by(rules: str, **_: Any) -> RelevancePass:
    """Relevance weighed by a gradient: by deep-taylor's rules float32 will do."""
    return RelevancePass(rule_set(rules).name, precise=is_fragile(rules))


def is_fragile(rules: str) -> bool:
    """Whether even weighed by a gradient relevance needs float64: sums near 0 are divided by and nothing is rescaled."""
    return rule_set(rules).carries == "relevance" and rules != "deep-taylor"


def precise_relevance_by(rules: str, **_: Any) -> RelevancePass:
    """Relevance read as it is: float64, unless nothing is divided."""
    return RelevancePass(rule_set(rules).name, precise=rule_set(rules).carries == "relevance")


def attnlrp_pass() -> RelevancePass:
    """Relevance by AttnLRP's rules."""
    return RelevancePass("attnlrp")


def token_relevance(trace: Trace) -> Tensor:
    """Σ_d relevance of X^l for l = 0..L: (b, L + 1, n)."""
    return torch.stack([r.sum(-1) for r in trace.hidden_relevance], dim=1)


def started_with(trace: Trace, rules: str) -> Tensor:
    """The relevance at the target's logits: 1 each (a contrast starts with as much for as against), or y itself where
    backwards carry coefficients. (b,)"""
    if rule_set(rules).carries == "coefficient":
        return trace.y
    return trace.scalar.weight.sum(-1).to(trace.y.dtype) * (1 - trace.scalar.contrastive)


def with_kept(trace: Trace, rules: str) -> Attribution:
    """Relevance at X^0 with all layers, and which share of what was started with arrived there."""
    layers = token_relevance(trace)
    started = started_with(trace, rules)
    share = Share(layers[:, 0].sum(-1).double(), started.double())
    return Attribution(layers[:, 0], layers, {"relevance_kept": share})


@method(
    "lrp",
    needs={"hidden.relevance"},
    relevance=precise_relevance_by,
    signed=True,
    layers_start=0,
    family="relevance",
    paper="Bach 2015",
)
def lrp(trace: Trace, *, rules: str = "lrp") -> Attribution:
    """Layer-wise relevance propagation: Σ_d relevance at X^0, signed; `.layers` holds X^0 … X^L.

    Starts from a one-hot 1 at the target's logit; stops at X^0, the embedding output. `relevance_kept` is the share of the
    start that arrives: 1 for deep-taylor, anything for rules that lose some by design.

    Args:
        rules: "lrp" (default; Chefer's `layers_lrp`), "deep-taylor" (what AttCAT's and Mask-LRP's released code calls LRP),
            "epsilon" or "attnlrp".
    """
    return with_kept(trace, rules)


@method(
    "attnlrp",
    needs={"hidden.relevance"},
    relevance=attnlrp_pass,
    signed=True,
    layers_start=0,
    family="relevance",
    paper="Achtibat 2024",
    first_choice=True,
)
def attnlrp(trace: Trace) -> Attribution:
    """AttnLRP: gradient × input at X^0 where products halve, activations pass relevance on and norms hold their spread fixed.

    AttnLRP's eq. 8–15 with ε → 0, in the form of its released library LXT. Relevance starts with the logit's own value.
    Departure: LXT reads relevance at the word embeddings, here it is read at X^0, where positions and segments are in.
    """
    return with_kept(trace, "attnlrp")


@method(
    "partial-lrp",
    needs={"attention.relevance:last", "readout"},
    relevance=precise_relevance_by,
    signed=False,
    family="relevance",
    paper="Voita 2019",
)
def partial_lrp(trace: Trace, *, rules: str = "lrp") -> Tensor:
    """Relevance of the last layer's attention: mean_h max(0, cam^L)[r, j].

    Args:
        rules: as for lrp; "deep-taylor" is what AttCAT's and Mask-LRP's released code does.
    """
    return trace.at_readout(trace.attention_relevance[-1].clamp(min=0).mean(1))


def relevance_rollout(trace: Trace, factor: float = 1.0) -> Attribution:
    """Row r of B^L···B^1, B^l = rownorm(factor · mean_h max(0, G^l ⊙ cam^l) + I); `.layers` holds the rows up to each layer."""
    pairs = zip(trace.attention_grad, trace.attention_relevance, strict=True)
    maps = [positive_products(g, cam).mul_(factor) for g, cam in pairs]  # (b, n, n)
    eye = torch.eye(maps[0].shape[-1], dtype=maps[0].dtype, device=maps[0].device)
    layers = rollout_rows(trace, [row_normalised(m + eye) for m in maps])
    return Attribution(layers[:, -1], layers)


TRANSATT_NEEDS = {"attention.grad", "attention.relevance", "readout"}


@method(
    "transatt",
    needs=TRANSATT_NEEDS,
    relevance=relevance_by,
    signed=False,
    sums_to="1",
    layers_start=1,
    family="relevance",
    paper=CHEFER,
)
def transatt(trace: Trace, *, rules: str = "deep-taylor") -> Attribution:
    """Transformer attribution: rollout of mean_h max(0, G^l ⊙ cam^l), cam^l the relevance of the attention; row r.

    Gradient and relevance come from one forward. Mask-LRP's released code calls this "GAE".

    Args:
        rules: as for lrp.
    """
    return relevance_rollout(trace)


def through_heads(head_mask: Any, variant: str, rules: str, **_: Any) -> RelevancePass:
    """Relevance through the heads of a mask; through all of them while none has been given."""
    if variant not in ("paper", "released"):
        raise UnknownName("variant", variant, ["paper", "released"])
    if rule_set(rules).carries != "relevance":
        raise InputError(f"mask-lrp cannot use rules={rules!r}: choose deep-taylor, lrp or epsilon.")
    heads = None if head_mask is None else HeadParts(head_mask.parts, keep_sum=variant == "paper")
    return RelevancePass(rules, heads, is_fragile(rules))


@method(
    "mask-lrp",
    needs=TRANSATT_NEEDS,
    relevance=through_heads,
    signed=False,
    sums_to="1",
    layers_start=1,
    family="relevance",
    paper=MASK_LRP,
)
def mask_lrp(trace: Trace, *, head_mask: Any = None, variant: str = "paper", rules: str = "deep-taylor") -> Attribution:
    """`transatt` with relevance let through syntactic and positional heads only: eq. 6–11.

    Departures of the variant "paper": where the two parts' sums differ in sign, Σ|·| replaces |Σ·| (the printed equations
    would not conserve); rows of M + I are normalised as in the released code; a block with no head in its mask passes relevance
    on unmasked.

    Args:
        head_mask: (layers × heads) counts, a mask file of `whence heads`, or None for the one that comes with an embedded
            model.
        variant: "paper" (default): at each block the relevance of the context is multiplied by ℳ and its syntactic and
            positional parts rescaled by §4.3, so that the sum is conserved; all-ones equals `transatt`. "released": what the
            authors' code does: masked, not rescaled, and the map of a block is read unmasked and whole (not halved), so that
            its mask acts on the blocks below only.
        rules: "deep-taylor" (default), "lrp" or "epsilon".
    """
    result = relevance_rollout(trace, 2.0 if variant == "released" else 1.0)
    return Attribution(result.scores, result.layers, {"head_mask": head_mask.to_dict()})
