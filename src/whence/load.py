"""load(): a zoo name, a directory, a hub id or a live model → an Explainer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whence.errors import InputError, UnknownName
from whence.explainer import Explainer
from whence.inputs import Encoder
from whence.models import (
    check_causal,
    is_causal,
    lock_of,
    max_length,
    pad_id,
    padding_ids,
    special_ids,
    type_vocab_size,
    uncompiled,
    vocab_size,
    zoo,
)
from whence.models.pretrained import first_line, from_pretrained
from whence.models.zoo.catalogue import find
from whence.render.table import Table
from whence.run import interrupts
from whence.run.plan import Defaults
from whence.tasks import (
    TASKS,
    CausalLM,
    MaskedLM,
    QuestionAnswering,
    SequenceClassification,
    Task,
    TokenClassification,
    Vocabulary,
    labels_of,
    task_of,
)

if TYPE_CHECKING:
    from whence.evaluate.recipe import Recipe

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(
    model: str | Path | PreTrainedModel = "sentiment",
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    task: str | None = None,
    lm_head: str | Path | nn.Module | None = None,
    recipe: str | Path | Recipe | None = None,
    sample: Any = None,
    trust_remote_code: bool = False,
) -> Explainer:
    """Make a model ready to explain.

    model: the name of an embedded model (`whence.models()`), a directory, a hub id, or a live `PreTrainedModel` given with
        its tokenizer. Weights are read as safetensors only.
    device: where to put the model; by default where it is (live) or the CPU.
    dtype: "float32" (default), "float64", "bfloat16" or "float16". A live model keeps its own.
    task: needed only when it cannot be told from the checkpoint's architecture.
    lm_head: what decodes hidden layers (decoded-grad-cam, decoded-simple) where the model has no language-model head of its
        own: the name or directory of the checkpoint it was fine-tuned from, a live model, or a module from hidden states
        to logits. Embedded models know theirs.
    recipe: what `whence tune` wrote: its method is used where none is named, and the options that it found best for a method
        (a layer, say) become that method's defaults.
    sample: texts like those to be explained (a list, or whatever `whence.evaluate` takes; at most 48 are used, without their
        labels). The layer that `layer="auto"` of decoded saliency stands for is chosen on them at once, by the revealing and
        the hiding game. Embedded classifiers have theirs already; a recipe goes before both.

    >>> import whence
    >>> ex = whence.load("sentiment")
    >>> ex.labels
    ('negative', 'positive')
    >>> ex.predict("a charming journey").label
    'positive'
    """
    interrupts.begin()
    model = uncompiled(model)
    if isinstance(model, PreTrainedModel):
        if dtype is not None:
            raise InputError(
                "a live model keeps its dtype: convert it yourself (model.to(torch.float64)) before load()."
            )
        if device is not None and as_device(device) != model.device:
            raise InputError("a live model stays on its device: move it yourself (model.to(device)) before load().")
        with lock_of(model):  # while another thread has it, its configuration is not its owner's
            return follow(explainer(model, tokenizer, task, type(model).__name__, lm_head=lm_head), recipe, sample)
    if not isinstance(model, (str, Path)):
        raise InputError(
            f"load() takes a name, a directory, a hub id or a live model of transformers, got {type(model).__name__}"
            + (
                ": give what its merge_and_unload() returns, with its tokenizer."
                if hasattr(model, "merge_and_unload")
                else "."
            )
        )
    if not str(model):
        raise InputError(f"the model's name is empty; give one of {', '.join(zoo.names())}, a directory or a hub id.")
    kind = as_dtype(dtype)
    place = None if device is None else usable(as_device(device))
    embedded = zoo.is_embedded(model)
    if embedded:
        live, own = found_in_zoo(str(model), kind)
        lm_head = zoo_head(str(model)) if lm_head is None else lm_head
    else:
        live, own = from_pretrained(str(model), kind, task, trust_remote_code)
    if place is not None:
        live.to(place)  # type: ignore[arg-type]
    live.train(False)
    ready = explainer(live, tokenizer or own, task, type(live).__name__, str(model), lm_head)
    if embedded:
        tuned = auto_layers(zoo.layers(str(model)))
        ready.defaults = Defaults(tuned=tuned, head_mask=zoo.head_mask(str(model)))
    return follow(ready, recipe, sample)


def follow(ready: Explainer, recipe: str | Path | Recipe | None, sample: Any) -> Explainer:
    """The explainer with a recipe's method and options for its own, and layers chosen on a sample."""
    if sample is not None:
        from whence.evaluate.layers import choose_layers

        ready.defaults = replace(ready.defaults, tuned=auto_layers(choose_layers(ready, sample)))
    if recipe is not None:
        from whence.evaluate.recipe import read_recipe

        chosen = read_recipe(recipe)
        tuned = {**ready.defaults.tuned, **chosen.tuned}
        ready.defaults = replace(ready.defaults, method=chosen.method, options=chosen.options, tuned=tuned)
    return ready


def auto_layers(layers: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """What "auto" stands for, as options of the methods that have it."""
    return {name: {"auto_layer": layer} for name, layer in layers.items()}


def models() -> Table:
    """A table of the embedded models: name, task, labels, size, figure.

    >>> [row["name"] for row in models()][:2]
    ['sentiment', 'topics']
    """
    return Table(
        {
            "name": m.name,
            "task": m.task,
            "labels": ", ".join(m.labels) or "—",
            "MB": f"{m.size_mb:.1f}",
            "measured": m.figure,
            "description": m.description,
        }
        for m in zoo.models()
    )


def as_dtype(dtype: str | torch.dtype | None) -> torch.dtype:
    if dtype is None:
        return torch.float32
    if isinstance(dtype, str):
        if dtype not in DTYPES:
            raise UnknownName("dtype", dtype, DTYPES)
        return DTYPES[dtype]
    if dtype not in DTYPES.values():
        raise InputError(f"dtype={dtype!r}: give one of {', '.join(DTYPES)}.")
    return dtype


def as_device(device: str | torch.device) -> torch.device:
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InputError(
            f"device={device!r} is no device; this machine has {', '.join(devices())}: give one of them, or leave it out."
        ) from error


def usable(device: torch.device) -> torch.device:
    """A device that this torch and this machine can put a model on; said before the model is read."""
    try:
        if device.type == "meta":
            raise RuntimeError("it holds no numbers")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:  # a torch without CUDA asserts that it has it
        reason = first_line(error).split(". ")[0]
        raise InputError(
            f"device={str(device)!r} cannot be used here ({reason}); this machine has {', '.join(devices())}: "
            "give one of them, or leave it out."
        ) from error
    return device


def devices() -> list[str]:
    """The names of the devices that models can be put on.

    >>> devices()[0]
    'cpu'
    """
    cards = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    return ["cpu", *cards, *["mps"] * torch.backends.mps.is_available(), *["xpu"] * torch.xpu.is_available()]


def explainer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    task: str | None,
    class_name: str,
    name: str | None = None,
    lm_head: Any = None,
) -> Explainer:
    if not (tokenizer is None or hasattr(tokenizer, "convert_ids_to_tokens")):
        raise InputError(
            f"load() takes a tokenizer of transformers, got {type(tokenizer).__name__}: AutoTokenizer.from_pretrained(name) reads one."
        )
    known = task_of(model.config, class_name, task)
    served = served_by(class_name)
    if served and known not in served:
        raise InputError(
            f"a {class_name} is made for {' and '.join(served)}, not for {known}: leave task= out, or load a model that was "
            f"trained for {known}."
        )
    if known == "causal-lm":
        check_causal(model)
    made = make_task(known, model, tokenizer)
    return Explainer(model, tokenizer, made, name, lm_head, language_model)


def served_by(class_name: str) -> tuple[str, ...]:
    """The tasks that a model's class serves as its name says; none where the name does not say, and then the user is believed.

    >>> served_by("BertForQuestionAnswering"), served_by("MyEncoder")
    (('question-answering',), ())
    """
    if class_name.endswith("LMHeadModel"):  # GPT-2's writes on, XLM's and Flaubert's fill in masks
        return ("causal-lm", "masked-lm")
    return tuple(name for name, suffix in TASKS.items() if class_name.endswith(suffix))


def language_model(name: str, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """A checkpoint to take the language-model head from; an error if what it holds is no language model."""
    if zoo.is_embedded(name):
        live, _ = found_in_zoo(name, dtype)
    else:
        live, _ = from_pretrained(name, dtype, None, False)
    live.to(device)  # type: ignore[arg-type]
    live.train(False)
    return live


def zoo_head(name: str) -> str | None:
    """Embedded models that are adapters on the base share it with masked-lm, whose head decodes their layers."""
    return "masked-lm" if find(name).adapter is not None else None


def make_task(name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> Task:
    encoder = Encoder(
        tokenizer=tokenizer,
        max_length=max_length(model, tokenizer),
        vocab_size=vocab_size(model),
        special_ids=special_ids(model.config, tokenizer),
        type_vocab_size=type_vocab_size(model.config),
        padding_ids=padding_ids(model.config, tokenizer),
    )
    config = model.config
    if name == "question-answering":
        return QuestionAnswering(encoder)
    if name == "token-classification":
        return TokenClassification(encoder, labels_of(config))
    if name == "masked-lm":
        return MaskedLM(encoder, Vocabulary(tokenizer, encoder.vocab_size, spaced=True))
    if name == "causal-lm":
        return CausalLM(encoder, Vocabulary(tokenizer, encoder.vocab_size, spaced=False))
    return SequenceClassification(encoder, labels_of(config), is_causal(model), pad_id(config), config.problem_type)


def found_in_zoo(name: str, dtype: torch.dtype) -> tuple[PreTrainedModel, PreTrainedTokenizerBase | None]:
    return zoo.load(name, dtype)
