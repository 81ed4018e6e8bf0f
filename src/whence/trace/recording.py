"""A forward that has run: what methods may ask of it, and the backwards that follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from whence.errors import NotSupported
from whence.fast.meanwhile import Meanwhile
from whence.inputs import Batch
from whence.models.lm_head import LMHead
from whence.relevance.operations import RelevancePass, Run
from whence.relevance.rules import rule_set
from whence.tasks import Scalar, Task
from whence.trace.attention import Attended, Shown
from whence.trace.blocks import Block, precise
from whence.trace.checks import check_finite
from whence.trace.maps import Maps, fits
from whence.trace.trace import Tensors, Trace

# What a backward lets go of is freed under Python's lock: it would wait for what is done meanwhile instead of running beside it. So the
# graph is kept while it runs. What methods make of maps and states then stands beside it, so there it is not kept of batches with more
# tokens, of which a GPU has enough to do for the wait not to matter.
KEPT_TOKENS = 1 << 13


@dataclass
class Recording:
    """One forward pass of a batch, still in the graph; `toward` adds the backward for a target."""

    task: Task
    batch: Batch
    needs: frozenset[str]
    logits: Tensor  # (b, places, options), in the graph
    layers: Sequence[Attended | Shown]  # the attention of every layer
    hidden: list[Tensor]
    embeddings: list[Tensor]
    blocks: tuple[Block, ...] | None = None
    lm_heads: Mapping[Any, LMHead] | None = None
    run: Run | None = None  # the forward ran ready to carry relevance
    forward_only: bool = False  # a token sees only itself and what stands before it
    shared: bool = True  # maps are looked at by several methods, or for several targets: those that fit are kept
    meanwhile: Meanwhile = field(default_factory=Meanwhile)  # what is done while a backward is launched
    _start: tuple[Scalar, Tensor] | None = None  # the last scalar that was asked for, and its y

    @cached_property
    def attention(self) -> Maps:
        """A^1 … A^L."""
        return self.maps([layer.probabilities for layer in self.layers])

    def maps(self, make: Sequence[Callable[[], Tensor]], *, future: bool = False) -> Maps:
        """At least float32, and 0 wherever a padded token takes part; with `future` also where a query would look ahead:
        its attention is 0 there whatever the input, but the gradient at that 0 is not."""
        neutral = self._neutral_pairs(future and self.forward_only)

        def clean(one: Callable[[], Tensor]) -> Tensor:
            made = precise(one())
            return made if neutral is None else made * neutral

        rows, n = self.batch.own_valid.shape
        heads = self.layers[0].handle.shape[1] if self.layers else 0
        keep = self.shared and fits((rows, heads, n, n), len(make), self.logits.dtype, self.logits.device)
        return Maps([lambda one=one: clean(one) for one in make], keep)  # type: ignore[misc]

    def _neutral_pairs(self, no_future: bool) -> Tensor | None:
        """(b, 1, n, n), False where a padded token takes part or a query looks ahead; None if there are none of these."""
        if not (no_future or self.batch.padded):
            return None
        valid = self.batch.valid
        pairs = valid[:, None, :, None] & valid[:, None, None, :]
        return pairs.tril() if no_future else pairs

    @cached_property
    def log_probabilities(self) -> Tensor | None:
        """(b, places, options), in the graph; made when first asked for."""
        logits = self.logits
        return self.task.log_probabilities(logits.to(torch.promote_types(logits.dtype, torch.float32)))

    @property
    def finite(self) -> Tensor:
        """Whether all logits are numbers, on the device."""
        return torch.isfinite(self.logits.detach()).all()

    def check(self) -> None:
        """Refuse logits that are not numbers."""
        check_finite(self.finite)

    def y(self, scalar: Scalar) -> Tensor:
        """What is explained, in the graph: (b,). Every backward of a scalar starts here."""
        if self._start is None or self._start[0] is not scalar:
            logs = self.log_probabilities if scalar.any_logarithm else None
            self._start = scalar, scalar.y(self.logits, logs)
        return self._start[1]

    def log_probability(self, scalar: Scalar) -> Tensor | None:
        """log p of what is explained, in the graph: (b,)."""
        return scalar.log_probability(self.logits, self.log_probabilities)

    def probability(self, scalar: Scalar) -> Tensor | None:
        """p of what is explained: (b,)."""
        log_probability = self.log_probability(scalar)
        return None if log_probability is None else log_probability.detach().exp()

    def toward(self, scalar: Scalar, *, last: bool = True) -> Trace:
        """The trace that explains each row's own scalar. `last` frees the graph: no further scalar follows."""
        recorded: dict[str, Tensors] = {}
        y = self.y(scalar)
        inputs = self._inputs_of_logit()
        more = self._inputs_of_log_probability()
        maps: dict[str, Tensors] = {}
        if inputs:
            flat = [t for tensors in inputs.values() for t in tensors]
            grads = iter(self._gradients(y.sum(), flat, last=last and not more))
            recorded |= {need: [next(grads) for _ in tensors] for need, tensors in inputs.items()}
            if "attention.grad" in recorded:
                found = recorded.pop("attention.grad")
                layers = self.layers[-len(found) :]
                make = [partial(layer.gradient, g) for layer, g in zip(layers, found, strict=True)]
                maps["attention.grad"] = self.maps(make, future=True)
        if more:
            log_probability = self.log_probability(scalar)
            if log_probability is None:
                raise NotSupported(
                    "this model answers with a number, not with probabilities: use of='logit' where a method takes it",
                    lacks=("probabilities",),
                )
            flat = [t for tensors in more.values() for t in tensors]
            grads = iter(self._gradients(log_probability.sum(), flat, last=last))
            recorded |= {need: [next(grads) for _ in tensors] for need, tensors in more.items()}
        for name, tensors in (("hidden", self.hidden), ("embeddings", self.embeddings)):
            if name in self.needs:
                recorded[name] = [t.detach() for t in tensors]
        if "attention" in self.needs:
            maps["attention"] = self.attention
        return Trace(
            batch=self.batch,
            scalar=scalar,
            y=y.detach(),
            chance=partial(self.probability, scalar),
            recorded={**neutral_padding(recorded, self.batch), **maps},
            layer_blocks=self.blocks,
            lm_heads=self.lm_heads,
        )

    def _gradients(self, scalar: Tensor, inputs: list[Tensor], *, last: bool) -> list[Tensor]:
        beside = self.meanwhile.begin_with(scalar)
        light = self.batch.own_ids.size <= KEPT_TOKENS or not (self.layers or self.hidden)
        shown = [layer.handle for layer in self.layers if isinstance(layer, Shown)]
        return gradients(scalar, inputs, keep=(beside and light) or not last, shown=shown)

    def with_relevance(self, trace: Trace, wanted: RelevancePass, needs: frozenset[str], *, last: bool) -> Trace:
        """`trace` with the relevance that `needs` name, from one more backward.

        Relevance starts with a one-hot 1 at every logit of the target. Rules that rescale by sums are not linear in where
        relevance starts, so the relevance of a difference is the difference of two backwards. Rules that carry
        coefficients are linear, and start from the scalar itself.
        """
        inputs: dict[str, list[Tensor]] = {}
        if "attention.relevance" in needs:
            inputs["attention.relevance"] = [layer.handle for layer in self.layers]
        elif "attention.relevance:last" in needs:
            inputs["attention.relevance"] = [self.layers[-1].handle]
        if "hidden.relevance" in needs:
            inputs["hidden.relevance"] = self.hidden
        assert self.run is not None
        flat = [t for tensors in inputs.values() for t in tensors]
        if wanted.heads is not None:
            wanted.heads.check([layer.handle for layer in self.layers], self.run.gates.layers)
        scalar, rules = trace.scalar, rule_set(wanted.rules)
        with self.run.carrying(wanted.heads, rules):
            if rules.carries == "coefficient":
                found = gradients(self.y(scalar).sum(), flat, keep=not last)
            else:
                contrastive = scalar.any_contrast
                found = gradients(scalar.chosen(self.logits).sum(), flat, keep=contrastive or not last)
                if contrastive:
                    against = gradients(scalar.rejected(self.logits).sum(), flat, keep=not last)
                    found = [a - b for a, b in zip(found, against, strict=True)]
        carried = iter(found)
        recorded: dict[str, Tensors] = {need: [next(carried) for _ in tensors] for need, tensors in inputs.items()}
        maps: dict[str, Tensors] = {}
        if "attention.relevance" in recorded:
            at_handles = recorded.pop("attention.relevance")
            layers = self.layers[-len(at_handles) :]
            make = [partial(layer.relevance, r, rules) for layer, r in zip(layers, at_handles, strict=True)]
            maps["attention.relevance"] = self.maps(make)
        if rules.carries == "coefficient":  # R = x ⊙ c
            for need, coefficients in recorded.items():
                recorded[need] = torch._foreach_mul(list(coefficients), [t.detach() for t in inputs[need]])
        return replace(trace, recorded={**trace.recorded, **neutral_padding(recorded, self.batch), **maps})

    def _inputs_of_logit(self) -> dict[str, list[Tensor]]:
        """Which tensors the gradient of the logit is wanted for."""
        inputs: dict[str, list[Tensor]] = {}
        if "attention.grad" in self.needs:
            inputs["attention.grad"] = [layer.handle for layer in self.layers]
        elif "attention.grad:last" in self.needs:
            inputs["attention.grad"] = [self.layers[-1].handle]
        if "hidden.grad" in self.needs:
            inputs["hidden.grad"] = self.hidden
        if "embeddings.grad" in self.needs:
            inputs["embeddings.grad"] = self.embeddings
        return inputs

    def _inputs_of_log_probability(self) -> dict[str, list[Tensor]]:
        """Which tensors the gradient of log p is wanted for."""
        known = {"embeddings": self.embeddings, "hidden": self.hidden}
        wanted = {f"{name}.grad:log-probability": tensors for name, tensors in known.items()}
        return {need: tensors for need, tensors in wanted.items() if need in self.needs}


def gradients(scalar: Tensor, inputs: list[Tensor], *, keep: bool, shown: Sequence[Tensor] = ()) -> list[Tensor]:
    """∂scalar/∂inputs; rows do not mix, so the sum over the batch gives every row its own gradient. shown: maps that a model handed
    out, which may be copies of what it worked with."""
    found = torch.autograd.grad(scalar, inputs, retain_graph=keep, allow_unused=True)
    of_maps = [g for g, x in zip(found, inputs, strict=True) if any(x is a for a in shown)]
    if of_maps and all(g is None for g in of_maps):
        raise NotSupported(
            "the attention that this model hands out is a copy of what it works with, so it has no gradient",
            lacks=("attention.grad",),
        )
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True)]


def neutral_padding(recorded: dict[str, Tensors], batch: Batch) -> dict[str, Tensors]:
    """States (b, n, d) at least in float32, and 0 at padded tokens."""
    tokens = batch.valid[:, :, None] if batch.padded else None

    def clean(tensor: Tensor) -> Tensor:
        return precise(tensor) if tokens is None else precise(tensor) * tokens

    return {name: [clean(t) for t in tensors] for name, tensors in recorded.items()}
