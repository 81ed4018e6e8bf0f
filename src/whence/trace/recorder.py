"""Run the unmodified model once and keep, in the graph, what the methods asked for."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whence.errors import NotSupported
from whence.inputs import Batch
from whence.models import (
    Lender,
    Lent,
    asked_places_only,
    first_token_only,
    reads_forward,
    untouched,
    uses_attention_interface,
)
from whence.models.lm_head import LMHead
from whence.tasks import Scalar, Task
from whence.trace.attention import NAME, Attended, Shown, asked_for_mask, attention_tape, hides_nothing, unasked
from whence.trace.blocks import Block, LayerRun, layer_runs, make_blocks, precise
from whence.trace.checks import check_finite, check_weights, was_checked, weights_stamp
from whence.trace.graph import follows_gradients, put_rules
from whence.trace.maps import Maps, fits
from whence.trace.meanwhile import Later, Meanwhile, launched_by_another_thread
from whence.trace.operations import RelevancePass, Run
from whence.trace.relevance import relevance_ready
from whence.trace.rules import RuleSet, rule_set
from whence.trace.taps import layer_states, leaf_embeddings
from whence.trace.trace import Tensors, Trace

# What a backward lets go of is freed under Python's lock: it would wait for what is done meanwhile instead of running beside it. So the
# graph is kept while it runs. What methods make of maps and states then stands beside it, so there it is not kept of batches with more
# tokens, of which a GPU has enough to do for the wait not to matter.
KEPT_TOKENS = 1 << 13

_NOT_ON_GRAPH: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # models with operations that `graph` has no rule for


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
                    "this model answers with a number, not with probabilities: use of='logit' with gradient, or a method "
                    "that explains the logit (gradient-x-input, attcat, …)."
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
        return gradients(scalar, inputs, keep=(beside and light) or not last)

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
        scalar = trace.scalar
        with self.run.carrying(wanted.heads, rule_set(wanted.rules)):
            if self.run.rules.carries == "coefficient":
                coefficients = gradients(self.y(scalar).sum(), flat, keep=not last)
                found = list(torch._foreach_mul(coefficients, [t.detach() for t in flat]))
            else:
                contrastive = scalar.any_contrast
                found = gradients(scalar.chosen(self.logits).sum(), flat, keep=contrastive or not last)
                if contrastive:
                    against = gradients(scalar.rejected(self.logits).sum(), flat, keep=not last)
                    found = [a - b for a, b in zip(found, against, strict=True)]
        relevances = iter(found)
        recorded: dict[str, Tensors] = {need: [next(relevances) for _ in tensors] for need, tensors in inputs.items()}
        maps: dict[str, Tensors] = {}
        if "attention.relevance" in recorded:
            at_handles = recorded.pop("attention.relevance")
            layers = self.layers[-len(at_handles) :]
            make = [partial(layer.relevance, r, self.run) for layer, r in zip(layers, at_handles, strict=True)]
            maps["attention.relevance"] = self.maps(make)
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


def gradients(scalar: Tensor, inputs: list[Tensor], *, keep: bool) -> list[Tensor]:
    """∂scalar/∂inputs; rows do not mix, so the sum over the batch gives every row its own gradient."""
    found = torch.autograd.grad(scalar, inputs, retain_graph=keep, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True)]


def neutral_padding(recorded: dict[str, Tensors], batch: Batch) -> dict[str, Tensors]:
    """States (b, n, d) at least in float32, and 0 at padded tokens."""
    tokens = batch.valid[:, :, None] if batch.padded else None

    def clean(tensor: Tensor) -> Tensor:
        return precise(tensor) if tokens is None else precise(tensor) * tokens

    return {name: [clean(t) for t in tensors] for name, tensors in recorded.items()}


@contextmanager
def record(
    model: PreTrainedModel,
    task: Task,
    batch: Batch,
    needs: frozenset[str],
    rules: str | RuleSet | None = None,
    dtype: torch.dtype | None = None,
    lm_heads: Mapping[Any, LMHead] | None = None,
    points: Tensor | None = None,
    gradients: bool = False,
    shared: bool = True,
    lender: Lender | None = None,
) -> Iterator[Recording]:
    """One forward of `batch`, with the model lent for as long as the block lasts; ready for relevance by `rules`, if any.

    gradients: ready for true gradients too, where no need says so: other rules that follow gradients will be carried.

    dtype: run with a copy of the weights in another dtype than the model's own; the model keeps its weights.
    points: (b, n, d) to take the place of the word embeddings; the model still sees the ids (positions, padding).
    shared: attention is looked at more than once, so that maps are worth keeping.
    lender: remembers the model's parts; with one, whoever calls must be ready to run again (`ModelChanged`).
    """
    wants_attention = any(need.startswith(("attention", "blocks")) for need in needs)
    # a rule set without a rule for the fused kernel needs the attention written out
    wants_attention |= rules is not None and rule_set(rules).fused_attention is None
    through_interface = uses_attention_interface(model)
    seen = NAME if through_interface else "eager"
    implementation = seen if wants_attention else unasked(model, batch.input_ids.device)
    # a GPU that has seen these weights gets its work first
    late = launched_by_another_thread(batch.input_ids) and was_checked(model)
    lender = lender or Lender()
    with untouched(model, attention=implementation, pad_id=batch.pad_id, lender=lender if late else None) as lent:
        if not late:
            check_weights(model, weights_stamp(lent.parameters))
        run = partial(
            forward,
            model,
            lent,
            task,
            batch,
            needs,
            wants_attention,
            through_interface,
            rules,
            dtype,
            points,
            gradients,
            shared,
        )
        on_graph = rules is not None and follows_gradients(rule_set(rules))
        on_graph &= through_interface and model not in _NOT_ON_GRAPH
        look = Later(partial(looked_at, model))

        def look_again() -> None:
            if late:
                found, stamp = look()
                check_weights(model, stamp)
                lender.confirm(lent, found)

        try:
            recording = run(on_graph=on_graph)
            if recording is None:
                _NOT_ON_GRAPH.add(model)
                recording = run(on_graph=False)
                assert recording is not None
            recording.lm_heads = lm_heads
            if late:
                recording.meanwhile.add(look)
            yield recording
        except Exception:  # of two errors the one about the model is the cause
            look_again()
            raise
        look_again()


def looked_at(model: PreTrainedModel) -> tuple[Lent, int]:
    """What a model is made of, and the stamp of its weights."""
    found = Lent.of(model)
    return found, weights_stamp(found.parameters)


def forward(
    model: PreTrainedModel,
    lent: Lent,
    task: Task,
    batch: Batch,
    needs: frozenset[str],
    attention: bool,
    through_interface: bool,
    rules: str | RuleSet | None = None,
    dtype: torch.dtype | None = None,
    points: Tensor | None = None,
    gradients: bool = False,
    shared: bool = True,
    *,
    on_graph: bool = False,
) -> Recording | None:
    """on_graph: the rules are put onto the graph afterwards; None if they do not cover it."""
    embeddings: list[Tensor] = []
    hidden: list[Tensor] = []
    inputs = model_inputs(model, batch, lent.modules)
    fall_back = attention and not through_interface
    if fall_back:
        inputs["output_attentions"] = True
    with ExitStack() as stack:
        if not (rules and rule_set(rules).paired):
            # what is kept of attention lies before the first cut, states and blocks behind it
            if not any(need.startswith(("hidden", "blocks")) for need in needs):
                stack.enter_context(first_token_only(model, lent))
            stack.enter_context(asked_places_only(model, lent, batch))
        backward = rules is not None or any(".grad" in need for need in needs)
        stack.enter_context(torch.set_grad_enabled(backward))
        if backward or points is not None or any(need.startswith("embeddings") for need in needs):
            stack.enter_context(leaf_embeddings(model, embeddings, points))
        if any(need.startswith("hidden") for need in needs):
            stack.enter_context(layer_states(model, lent.modules, hidden))
        runs: list[LayerRun] = []
        if "blocks" in needs:
            stack.enter_context(layer_runs(model, runs))
        tape = stack.enter_context(attention_tape())
        run = None
        if rules is not None:
            gradients_too = gradients or any(".grad" in need for need in needs)
            rows = len(batch.input_ids)
            run = stack.enter_context(
                relevance_ready(model, lent.modules, rules, rows, gradients_too, on_graph=on_graph)
            )
        if dtype is None or dtype == model.dtype:
            output = model(**inputs)
        else:
            output = torch.func.functional_call(model, weights_in(model, dtype), (), inputs)
    if run is not None and on_graph and not put_rules([t for t in output.values() if isinstance(t, Tensor)], run):
        return None
    shown = [Shown(a) for a in getattr(output, "attentions", None) or ()] if fall_back else []
    layers: Sequence[Attended | Shown] = shown if fall_back else tape
    if attention and not layers:
        raise NotSupported(
            f"{type(model).__name__} lets nobody see its attention; methods that read none still work: cat, grad-cam, "
            "simple, gradient, gradient-x-input."
        )
    logits = task.logits(output, batch)  # (b, places, options)
    if not logits.is_cuda:  # a GPU would have to be waited for: there it is asked with the answers (`Recording.check`)
        check_finite(torch.isfinite(logits).all())
    recording = Recording(
        task=task,
        batch=batch,
        needs=needs,
        logits=logits,
        layers=layers,
        hidden=hidden,
        embeddings=embeddings,
        run=run,
        forward_only=any(need.startswith("attention.grad") for need in needs) and reads_forward(model, lent.modules),
        shared=shared,
        meanwhile=Meanwhile(in_python=run is not None),
    )
    if "blocks" in needs:
        recording.blocks = make_blocks(model, runs, tape, recording.attention, batch.valid)
    return recording


def weights_in(model: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    """Every floating-point parameter and buffer, converted."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return {name: t.detach().to(dtype) for name, t in tensors if t.is_floating_point()}


def model_inputs(model: PreTrainedModel, batch: Batch, modules: Sequence[nn.Module] | None = None) -> dict[str, Any]:
    """What the model is called with. modules: the model's, where they are at hand."""
    inputs: dict[str, Any] = {"input_ids": batch.input_ids}
    if batch.attention_mask is not None:  # transformers would look into it, and a GPU be waited for
        inputs["attention_mask"] = batch.attention_mask
    elif asked_for_mask(model, batch.input_ids.device, modules):
        inputs["attention_mask"] = hides_nothing(batch.input_ids)
    if batch.token_type_ids is not None:
        inputs["token_type_ids"] = batch.token_type_ids
    if batch.position_ids is not None:
        inputs["position_ids"] = batch.position_ids
    if may_cache(type(model).forward):
        inputs["use_cache"] = False
    return inputs


@lru_cache
def may_cache(forward: Callable[..., Any]) -> bool:
    """Whether a forward can be told not to keep its keys and values."""
    return "use_cache" in inspect.signature(forward).parameters
