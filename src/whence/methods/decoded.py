"""Saliency of a hidden layer, decoded back onto the input's tokens by a language-model head (Hou & Castanon 2023).

After a few layers position j of X^l no longer stands for token j. The head tells which tokens it stands for:
P = softmax(f(X^l)) (n, V); for the T distinct tokens of the input D[t, j] = P[j, id_t] (T, n). A layer's feature scores
α (n, d) are then summed with these weights. Every occurrence of a token gets its token's score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whence.errors import InputError, UnknownName
from whence.methods.activation import check_layer
from whence.registry import Method, get_method, method, methods_giving, methods_without, some_of
from whence.relevance.operations import RelevancePass
from whence.trace import Trace
from whence.trace.attribution import Attribution

PAPER = "Decoded saliency, Hou 2023"
POSITIONS = 2048  # how many positions, over layers and rows, go through the head at once


@dataclass(frozen=True)
class FeatureScore:
    """Scores α^l of a layer's features (Algorithm 1, line 3) and how they are put together (g)."""

    needs: frozenset[str]
    scores: Callable[[Trace, int], Tensor]  # layer l → α (b, n, d), or (b, n, 1) where features are summed already
    aggregate: Callable[[Tensor], Tensor]  # g without its ReLU: (b, ·, d) → (b, ·)
    signed: bool  # whether g ends in a ReLU


def grad_cam_features(trace: Trace, layer: int) -> Tensor:
    """α = ∂y/∂X^l ⊙ X^l (eq. 1), its features summed at once: g(Σ_j D_tj α_j) is linear up to the ReLU."""
    summed: Tensor = torch.linalg.vecdot(trace.hidden[layer], trace.hidden_grad[layer])
    return summed[..., None]


def simple_features(trace: Trace, layer: int) -> Tensor:
    """α = ∂loss/∂X^l divided by its ℓ1 norm over the text ("Simple" of AllenNLP Interpret, appendix A.2.1)."""
    grad = trace.hidden_loss_grad[layer]
    total = grad.abs().sum((1, 2), keepdim=True)
    return grad / total.clamp(min=torch.finfo(grad.dtype).tiny)


FEATURE_SCORES = {
    "grad-cam": FeatureScore(frozenset({"hidden", "hidden.grad"}), grad_cam_features, lambda a: a.sum(-1), True),
    "simple": FeatureScore(
        frozenset({"hidden", "hidden.grad:log-probability"}), simple_features, lambda a: a.abs().sum(-1), False
    ),
}


def method_to_decode(decode: str) -> tuple[Method, Mapping[str, Any]]:
    """The method called `decode`, with the options by which its layers are the outputs of the model's."""
    decoded_method = get_method(decode)
    if decoded_method.kind != "trace" or "head_mask" in decoded_method.defaults:
        what = (
            "a head mask, which cannot be given here"
            if "head_mask" in decoded_method.defaults
            else "more than one pass"
        )
        names = some_of([name for name in methods_giving("layers") if name in methods_without()])
        raise InputError(
            f"decode={decode!r} needs {what}; choose {', '.join(FEATURE_SCORES)}, or a method with layers: {names}."
        )
    return decoded_method, decoded_method.output_options or {}


def feature_score(decode: str) -> FeatureScore:
    """The feature score called `decode`: one of FEATURE_SCORES, or any registered method that has `layers`."""
    if decode in FEATURE_SCORES:
        return FEATURE_SCORES[decode]
    decoded_method, options = method_to_decode(decode)
    layers: list[Tensor] = []  # the method runs once, whatever number of layers is decoded

    def scores(trace: Trace, layer: int) -> Tensor:
        """The row of the method's layers that belongs to X^l; undeclared, L + 1 rows are X^0 … X^L and L rows X^1 … X^L."""
        if not layers:
            attribution = decoded_method(trace, **decoded_method.check(options))
            if attribution.layers is None:
                raise InputError(f"decode={decode!r}: this method gives no score per layer.")
            layers.append(attribution.layers)
        rows, start = layers[0].shape[1], decoded_method.meaning(options).layers_start
        start = len(trace.hidden) - rows if start is None else start
        if not start <= layer < start + rows:
            which = "layer 0 (the embeddings); choose 1 or more" if layer < start else f"layer {layer}"
            raise InputError(f"decode={decode!r} has no score for {which}.")
        return layers[0][:, layer - start, :, None]

    return FeatureScore(decoded_method.needs(options) | {"hidden"}, scores, lambda a: a.sum(-1), True)


def decoded_needs(decode: str, **_: Any) -> frozenset[str]:
    """What the feature score reads, and the head."""
    return feature_score(decode).needs | {"lm-head"}


def decoded_relevance(decode: str, **_: Any) -> RelevancePass | None:
    """The backward of relevance that the feature score reads, if it is a method that does."""
    if decode in FEATURE_SCORES:
        return None
    decoded_method, options = method_to_decode(decode)
    return decoded_method.relevance(options)


def decoded_signed(decode: str, relu: str | None, **_: Any) -> bool:
    """Without a ReLU decoded scores have signs, unless the feature score is a size."""
    return relu is None and feature_score(decode).signed


@method(
    "decoded-grad-cam",
    needs=decoded_needs,
    relevance=decoded_relevance,
    signed=decoded_signed,
    layers_start=1,
    family="decoded",
    paper=f"{PAPER}, eq. 6, Algorithm 1",
)
def decoded_grad_cam(
    trace: Trace,
    *,
    layer: int | str = "auto",
    tau: int | None = None,
    relu: str | None = "sum",
    lm_head: Any = None,
    decode: str = "grad-cam",
    auto_layer: int | None = None,
) -> Attribution:
    """Grad-CAM of a hidden layer, decoded onto the input's tokens: s_t = ReLU(Σ_j D[t, j] Σ_d (∂y/∂X^l ⊙ X^l)[j]).

    Args:
        layer: 0 (embeddings) … L; "auto" (default) is the layer that plays the revealing and the hiding game best on a sample:
            embedded classifiers know theirs, other models choose it on the texts given to `whence.load(…, sample=texts)` or by
            a recipe; without either it is round(0.55·L), the paper's best layers 6 and 7 of 12. "all" fills
            `Explanation.layers` with layers 1 … L from one trace, and scores are those of "auto".
        tau: keep only the `tau` likeliest input tokens of each position; None keeps all. Ties go to the earlier token.
        relu: "sum" applies ReLU to the sum over positions (eq. 6), "each" to every summand (Algorithm 1, line 9, as printed);
            None leaves it out, for signed scores.
        lm_head: None (the checkpoint's own head; for embedded models that of masked-lm), a model's name or directory, a live
            model, or a module from hidden states to logits. In pre-norm decoders the head starts with the final norm.
        decode: the feature score: "grad-cam", "simple", or a method that has `layers` ("attcat", "cat", …).
        auto_layer: what "auto" stands for; `whence.load` fills it in.
    """
    return decoded(trace, layer, tau, relu, lm_head, decode, auto_layer)


@method(
    "decoded-simple",
    needs=decoded_needs,
    relevance=decoded_relevance,
    signed=decoded_signed,
    layers_start=1,
    family="decoded",
    paper=f"{PAPER}, A.2.1",
)
def decoded_simple(
    trace: Trace,
    *,
    layer: int | str = "auto",
    tau: int | None = None,
    relu: str | None = "sum",
    lm_head: Any = None,
    decode: str = "simple",
    auto_layer: int | None = None,
) -> Attribution:
    """ "Simple" of a hidden layer, decoded: s_t = ‖Σ_j D[t, j] ∂loss/∂X^l_j‖₁, gradients scaled to ℓ1 norm 1 over the text.

    Args:
        relu: there is none here: "sum" takes the ℓ1 norm of the sum over positions (eq. 6), "each" of every summand
            (Algorithm 1).
        layer, tau, lm_head, decode, auto_layer: as for decoded-grad-cam.
    """
    return decoded(trace, layer, tau, relu, lm_head, decode, auto_layer)


def decoded(
    trace: Trace,
    layer: int | str,
    tau: int | None,
    relu: str | None,
    lm_head: Any,
    decode: str,
    auto_layer: int | None,
) -> Attribution:
    """Algorithm 1 with these options (see `decoded_grad_cam`)."""
    if relu not in ("sum", "each", None):
        raise UnknownName("relu", str(relu), ["sum", "each", "None"])
    if tau is not None and (isinstance(tau, bool) or not isinstance(tau, int) or tau < 1):
        raise InputError(f"tau={tau!r}: give how many tokens each position may count for (1 or more), or None for all.")
    depth = len(trace.hidden) - 1
    chosen, computed = choose_layers(layer, depth, auto_layer)
    feature, head = feature_score(decode), trace.lm_head(lm_head)
    first = first_occurrence(trace)
    scores = []
    for group in in_groups(computed, max(1, POSITIONS // trace.input_ids.numel())):
        hidden = torch.stack([trace.hidden[i] for i in group])  # (layer, b, n, d)
        logp = head.log_probabilities(hidden, trace.input_ids)  # (layer, b, n position, n token)
        for number, index in enumerate(group):
            weights = token_weights(logp[number], first, trace.valid, tau)
            scores.append(decode_layer(weights, feature.scores(trace, index), feature, relu).gather(1, first))
    facts = {"layer": layer if layer == "all" else chosen, "lm_head": head.name}
    if layer == "all":
        return Attribution(scores[computed.index(chosen)], torch.stack(scores, 1), {**facts, "scores_of_layer": chosen})
    return Attribution(scores[0], options=facts)


def choose_layers(layer: int | str, depth: int, auto_layer: int | None = None) -> tuple[int, list[int]]:
    """The layer whose scores are given, and those to compute.

    >>> choose_layers("auto", 12), choose_layers("auto", 12, 5), choose_layers(-1, 12)
    ((7, [7]), (5, [5]), (12, [12]))
    """
    if auto_layer is not None and not 1 <= auto_layer <= depth:
        raise InputError(f"auto_layer={auto_layer!r}: give 1 to {depth}, or None.")
    auto = auto_layer or max(1, round(0.55 * depth))
    if layer == "all":
        return auto, list(range(1, depth + 1))
    if layer == "auto":
        return auto, [auto]
    if isinstance(layer, str):
        raise InputError(f"layer={layer!r}: give 0 (the embeddings) to {depth}, 'auto' or 'all'.")
    check_layer(layer, depth)
    index = layer % (depth + 1)
    return index, [index]


def in_groups(items: Sequence[int], size: int) -> list[Sequence[int]]:
    """Cut into groups of at most `size`."""
    return [items[i : i + size] for i in range(0, len(items), size)]


def first_occurrence(trace: Trace) -> Tensor:
    """Where each token occurs for the first time in its row, padding left out: (b, n)."""
    equal = (trace.input_ids[:, :, None] == trace.input_ids[:, None, :]) & trace.valid[:, None, :]
    return equal.int().argmax(-1)


def token_weights(logp: Tensor, first: Tensor, valid: Tensor, tau: int | None) -> Tensor:
    """D[t, j] with the τ largest entries of each column j kept; rows of repeated tokens are 0. (b, n token, n position)"""
    positions = torch.arange(valid.shape[1], device=valid.device)
    distinct = (first == positions) & valid  # (b, n)
    weights = logp.transpose(1, 2).exp() * distinct[:, :, None]
    if tau is None:
        return weights
    order = weights.masked_fill(~distinct[:, :, None], -1).argsort(dim=1, descending=True, stable=True)
    likeliest = torch.zeros_like(weights).scatter_(1, order[:, :tau], 1.0)
    return weights * likeliest


def decode_layer(weights: Tensor, alpha: Tensor, feature: FeatureScore, relu: str | None) -> Tensor:
    """s_t = g(Σ_j D[t, j] α_j), or Σ_j g(D[t, j] α_j) = Σ_j D[t, j] g(α_j) as D ≥ 0: (b, n)."""

    def g(values: Tensor) -> Tensor:
        summed = feature.aggregate(values)
        return summed.clamp(min=0) if feature.signed and relu is not None else summed

    if relu == "each":
        return (weights @ g(alpha)[..., None]).squeeze(-1)
    return g(weights @ alpha.to(weights.dtype))
