"""Run the unmodified model once and keep, in the graph, what the methods asked for."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whence.errors import NotSupported, WhenceError
from whence.fast.asked_places import asked_places_only
from whence.fast.first_token import first_token_only
from whence.fast.graph import follows_gradients, put_rules
from whence.fast.halves import storages
from whence.fast.meanwhile import Later, Meanwhile, launched_by_another_thread
from whence.inputs import Batch
from whence.models import (
    Lender,
    Lent,
    known_reads,
    may_cache,
    reads_forward,
    reads_of,
    untouched,
    uses_attention_interface,
    with_names,
)
from whence.models.lending import DTYPE_CLASH
from whence.models.lm_head import LMHead
from whence.relevance.cuts import follower, remember
from whence.relevance.operations import Run
from whence.relevance.pass_through import relevance_ready, switched_on
from whence.relevance.rules import RuleSet, rule_set
from whence.tasks import Task
from whence.trace.attention import (
    NAME,
    Attended,
    Shown,
    asked_for_mask,
    attention_tape,
    check_attended,
    hides_nothing,
    unasked,
)
from whence.trace.blocks import LayerRun, layer_runs, make_blocks
from whence.trace.checks import check_finite, check_weights, was_checked, weights_stamp
from whence.trace.differences import first_row, gradient_gap
from whence.trace.recording import Recording
from whence.trace.taps import layer_states, leaf_embeddings

PRECISE_WEIGHTS = 1 << 28  # more of them are not copied into another dtype to try gradients
_NOT_ON_GRAPH: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # models with operations that `graph` has no rule for


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
    reads_of(model)  # tried before the model is lent
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
    reads_maps = any(need.startswith(("attention", "blocks")) for need in needs)
    if fall_back:
        inputs["output_attentions"] = True
    backward = rules is not None or any(".grad" in need for need in needs)
    seen_by = None if rules is None or on_graph else rule_set(rules).name
    way = lent.configs and lent.configs[0]._attn_implementation_internal, rules is not None, seen_by is not None
    followed = follower(model, lent, way, partial(weights_stamp, lent.parameters), seen_by) if backward else None
    with ExitStack() as stack:
        # what is kept of attention lies before the first cut, states and blocks behind it
        if not any(need.startswith(("hidden", "blocks")) for need in needs):
            stack.enter_context(first_token_only(model, lent))
        stack.enter_context(head_where_asked(model, lent, task, batch))
        stack.enter_context(torch.set_grad_enabled(backward))
        if backward or points is not None or any(need.startswith("embeddings") for need in needs):
            stack.enter_context(leaf_embeddings(model, embeddings, batch.input_ids, points))
        if any(need.startswith("hidden") for need in needs):
            stack.enter_context(layer_states(model, lent.modules, hidden, batch.input_ids))
        runs: list[LayerRun] = []
        if "blocks" in needs:
            stack.enter_context(layer_runs(model, runs))
        tape = stack.enter_context(attention_tape())
        run = None
        if rules is not None:
            gradients_too = gradients or followed is not None or any(".grad" in need for need in needs)
            rows = len(batch.input_ids)
            run = stack.enter_context(
                relevance_ready(model, lent.modules, rules, rows, gradients_too, on_graph=on_graph)
            )
        if followed is not None:  # on top of the rules' mode: it sees what the model asks for
            stack.enter_context(followed.following())
            stack.enter_context(followed.listening())
            stack.enter_context(switched_on(followed))
        output = output_in(model, lent, dtype, inputs, run)
    with nullcontext() if followed is None else switched_on(followed):
        logits = task.logits(output, batch)  # (b, places, options)
    if followed is not None:
        followed.check_seen(logits)
        clean = followed.judge(logits, partial(gap_of, model, lent, task, batch))
        remember(model, lent, way, None if clean else weights_stamp(lent.parameters))
    if run is not None and on_graph and not put_rules([t for t in output.values() if isinstance(t, Tensor)], run):
        return None
    shown = [Shown(a) for a in getattr(output, "attentions", None) or ()] if fall_back else []
    layers: Sequence[Attended | Shown] = shown if fall_back else tape
    if attention:
        check_attended(model, layers, batch.input_ids, one_each=reads_maps)
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
        forward_only=any(need.startswith("attention.grad") for need in needs) and reads_forward(model),
        shared=shared,
        meanwhile=Meanwhile(in_python=run is not None),
    )
    if "blocks" in needs:
        recording.blocks = make_blocks(model, runs, tape, recording.attention, batch.valid)
    return recording


def output_in(
    model: PreTrainedModel, lent: Lent, dtype: torch.dtype | None, inputs: dict[str, Any], run: Run | None = None
) -> Any:
    """What the model, or a copy of it in a dtype, makes of its inputs."""
    if dtype is None or {p.dtype for p in lent.parameters if p.is_floating_point()} <= {dtype}:
        return model(**inputs)
    weights = weights_in(model, dtype)
    if run is not None and dtype == torch.float32 and all(p.dtype == torch.bfloat16 for p in lent.parameters):
        run.made.exact = storages(weights.values())
    try:
        return torch.func.functional_call(model, weights, (), inputs)
    except RuntimeError as error:
        if isinstance(error, WhenceError) or not DTYPE_CLASH.search(str(error)):
            raise
        reason = str(error).strip().split("\n")[0]
        raise NotSupported(
            f"this method runs in {str(dtype).removeprefix('torch.')}, and a part of {type(model).__name__} does not "
            f"({reason}): use a method that runs in the model's own dtype."
        ) from error


def gap_of(model: PreTrainedModel, lent: Lent, task: Task, batch: Batch) -> float:
    """How far the model's gradients are from differences of its answers to the first row, of their size."""
    row = first_row(batch)

    def answer(points: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        leaves: list[Tensor] = []
        with leaf_embeddings(model, leaves, row.input_ids, points):
            output = output_in(model, lent, dtype, model_inputs(model, row, lent.modules))
        return leaves[0], task.logits(output, row)

    light = sum(p.numel() for p in lent.parameters) <= PRECISE_WEIGHTS
    return gradient_gap(answer, (torch.float64, torch.float32) if light else ())


def weights_in(model: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    """Every floating-point parameter and buffer, converted."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return {name: t.detach().to(dtype) for name, t in tensors if t.is_floating_point()}


def head_where_asked(model: PreTrainedModel, lent: Lent, task: Task, batch: Batch) -> AbstractContextManager[None]:
    """A language model's head runs at the batch's places alone, if that is all that the task reads of it."""
    return asked_places_only(model, lent, batch) if task.reads_places_only else nullcontext()


def model_inputs(model: PreTrainedModel, batch: Batch, modules: Sequence[nn.Module] | None = None) -> dict[str, Any]:
    """What the model is called with. modules: the model's, where they are at hand."""
    inputs: dict[str, Any] = {"input_ids": batch.input_ids, **with_names(model)}
    if batch.attention_mask is not None:  # transformers would look into it, and a GPU be waited for
        inputs["attention_mask"] = batch.attention_mask
    elif wants_mask(model):
        inputs["attention_mask"] = torch.ones_like(batch.input_ids)
    elif asked_for_mask(model, batch.input_ids.device, modules):
        inputs["attention_mask"] = hides_nothing(batch.input_ids)
    if batch.token_type_ids is not None:
        inputs["token_type_ids"] = batch.token_type_ids
    if batch.position_ids is not None:
        inputs["position_ids"] = batch.position_ids
    if may_cache(type(model).forward):
        inputs["use_cache"] = False
    return inputs


def wants_mask(model: PreTrainedModel) -> bool:
    """Whether it answers differently without a mask that hides nothing (XLM takes every token of the padding's id for padding)."""
    reads = known_reads(model)
    return reads is not None and reads.mask
