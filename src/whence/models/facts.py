"""Facts read off a config, a tokenizer or an embedding table, the same way for every architecture."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from torch import nn
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from whence.models.as_written import uncompiled
from whence.models.layers import modules_of

NO_LIMIT = 1_000_000  # tokenizers without a limit of their own report a number far above this


def position_offset(model: PreTrainedModel) -> int:
    """RoBERTa and its kin number positions from padding_idx + 1, so that many rows of the table are never used."""
    for name, module in model.named_modules():
        table = uncompiled(module)
        if name.endswith("position_embeddings") and isinstance(table, nn.Embedding):
            return 0 if table.padding_idx is None else table.padding_idx + 1
    return 0


# encoders that know a token's place by an absolute position embedding only, and take `position_ids`
ABSOLUTE = ("bert", "camembert", "electra", "roberta", "xlm-roberta")


def first_position(model: PreTrainedModel) -> int | None:
    """The position id of a row's first token in models whose tokens may be left out without moving the others; else None."""
    return position_offset(model) if model.config.model_type in ABSOLUTE and not is_causal(model) else None


def max_length(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> int:
    """The longest row the model can read, special tokens included."""
    limits = [NO_LIMIT]
    positions = getattr(model.config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        limits.append(positions - position_offset(model))
    if tokenizer is not None and 0 < tokenizer.model_max_length < NO_LIMIT:
        limits.append(int(tokenizer.model_max_length))
    return min(limits)


def special_ids(config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase | None) -> frozenset[int]:
    """Ids that frame a text ([CLS], [SEP], <s>, </s>, padding); [MASK] and [UNK] stand for words and are not among them."""
    names = ("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "pad_token_id")
    source: Any = config if tokenizer is None else tokenizer
    found: set[int] = set()
    for name in names:
        value = getattr(source, name, None)
        found.update(value if isinstance(value, list) else [] if value is None else [value])
    return frozenset(found)


def pad_id(config: PretrainedConfig) -> int | None:
    """The id the *model* takes for padding (decoder classifiers look for it); None if it has none."""
    value = getattr(config.get_text_config(), "pad_token_id", None)
    return value if isinstance(value, int) and value >= 0 else None


def padding_ids(config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase | None) -> frozenset[int]:
    """The ids that rows may come padded with: the model's and the tokenizer's."""
    return frozenset(i for i in (pad_id(config), getattr(tokenizer, "pad_token_id", None)) if i is not None)


def stand_in_ids(config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase | None) -> dict[str, int]:
    """Ids that can stand in the place of a word, by name: mask, unk, pad, bos, eos; only those that the model has."""
    found: dict[str, int] = {}
    own = config.get_text_config()
    size = getattr(own, "vocab_size", None)  # some configs name ids of a larger vocabulary than they have
    for source in (own, tokenizer):  # what the tokenizer says goes over what the config says
        for name in ("mask", "unk", "pad", "bos", "eos"):
            value = getattr(source, f"{name}_token_id", None)
            if (
                isinstance(value, int)
                and value >= 0
                and not (source is own and isinstance(size, int) and value >= size)
            ):
                found[name] = value
    return found


def vocab_size(model: PreTrainedModel) -> int:
    embeddings: Any = model.get_input_embeddings()
    return int(embeddings.weight.shape[0])


def type_vocab_size(config: PretrainedConfig) -> int:
    """How many segment ids the model tells apart; 0 or 1 means that it is not given any."""
    return int(getattr(config, "type_vocab_size", 0) or 0)


def is_causal(model: PreTrainedModel) -> bool:
    """Decoders, told from the head, which decoders alone call `score`. Where a classifier reads its answer is tried (`reads`)."""
    return isinstance(getattr(model, "score", None), nn.Module) or type(model).__name__.endswith(
        ("ForCausalLM", "LMHeadModel")
    )


_CAUSAL: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()


def says_causal(model: PreTrainedModel, modules: Sequence[nn.Module] | None = None) -> bool:
    """Whether attention modules tell their kernels that nobody looks ahead. What a token really sees is tried (`reads.reads_forward`).
    modules: the model's, where they are at hand."""
    if model not in _CAUSAL:
        known = modules_of(model) if modules is None else modules
        _CAUSAL[model] = any(getattr(m, "is_causal", False) for m in known)
    return _CAUSAL[model]


@lru_cache
def may_cache(forward: Callable[..., Any]) -> bool:
    """Whether a forward can be told not to keep its keys and values."""
    return "use_cache" in inspect.signature(forward).parameters


def with_names(model: PreTrainedModel) -> dict[str, bool]:
    """What a model is called with beside its inputs, so that its answer has names where its config says that it has none."""
    return {"return_dict": True} if getattr(model.config, "return_dict", True) is False else {}
