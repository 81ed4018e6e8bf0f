"""What decides a model's answers, so that no other model goes on with a run, whether here or in a worker."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from whence import zoo
from whence.explainer import Explainer
from whence.heads.mask import HeadMask, as_mask
from whence.passes import Plan
from whence.provenance import fingerprint, plain, tokenizer_fingerprint

# of a configuration: where and with what it was saved, and what is told of the model itself
ASIDE = frozenset(
    {
        "_name_or_path",
        "_commit_hash",
        "_from_model_config",
        "transformers_version",
        "architectures",
        "dtype",
        "torch_dtype",
    }
)
ADAPTER_STATE = ("active_adapters", "disable_adapters", "merged_adapters", "scaling")  # of a layer of peft


def identity_of(explainer: Explainer) -> dict[str, Any]:
    """Everything about a model and its tokenizer that a score depends on, and nothing of where they lie: a checkpoint may be moved.

    A dict of JSON: the class, weights, configuration with labels, what generation follows, adapters, and the tokenizer.
    """
    model: Any = explainer.model
    attention = getattr(model.config, "_attn_implementation", None)
    return {
        "class": type(model).__name__,
        "weights": fingerprint(model),
        "config": {**as_saved(model.config), "attention": attention},
        "generation": as_saved(getattr(model, "generation_config", None)),
        "adapters": adapters_of(model),
        "tokenizer": tokenizer_fingerprint(explainer.tokenizer),
    }


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The names under which two identities differ."""
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


def as_saved(config: Any) -> dict[str, Any]:
    """What a configuration's file would say: what is not as its class has it, so that a later transformers with more to set is not
    another model."""
    if config is None:
        return {}
    try:
        content = config.to_diff_dict()
    except Exception:  # a class of somebody's own that cannot be made without arguments
        content = config.to_dict()
    return dict(plain(content, ASIDE))


def adapters_of(model: PreTrainedModel) -> str | None:
    """A hash of which adapters are switched on, and how strongly; their weights are the model's. None where there are none."""
    states = {
        name: {key: plain(getattr(layer, key)) for key in ADAPTER_STATE if hasattr(layer, key)}
        for name, layer in model.named_modules()
        if layer is not model and isinstance(getattr(layer, "disable_adapters", None), bool)
    }
    return short_digest(json.dumps(states, sort_keys=True)) if states else None


def masks_of(explainer: Explainer, plan: Plan) -> dict[str, Any]:
    """The content of the head masks that methods use, files and embedded ones too."""
    return {
        name: content_of(as_mask(options["head_mask"], explainer.embedded_heads))
        for name, (_, options) in plan.items()
        if "head_mask" in options
    }


def with_masks(explainer: Explainer, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the head mask itself in the place of its file, which workers elsewhere may lack and which may change."""
    if options.get("head_mask") is None:
        return dict(options)
    return {**options, "head_mask": as_mask(options["head_mask"], explainer.embedded_heads)}


def as_setting(value: Any) -> Any:
    """An option as a manifest shows it: a head mask by its content, wherever it came from."""
    return content_of(value) if isinstance(value, HeadMask) else value


def content_of(mask: HeadMask) -> dict[str, Any]:
    return {key: part for key, part in mask.to_dict().items() if key != "source"}


def heads_of(explainer: Explainer, plan: Plan) -> dict[str, str]:
    """A hash of the language-model head that each decoding method reads layers by."""
    digests = {}
    for name, (method, options) in plan.items():
        if "lm-head" in method.needs(options):
            head, source = explainer.lm_head(options.get("lm_head")), options.get("lm_head")
            inside = source is None and explainer.lm_head.told is None  # the model's weights are hashed already
            tensors = [tensor for tensor in (head.weight, head.bias) if tensor is not None]
            parts = [fingerprint(tensors), "" if inside else source_of(explainer, source or explainer.lm_head.told)]
            digests[name] = short_digest(" ".join(parts))
    return digests


def source_of(explainer: Explainer, source: Any) -> str:
    """What a head was taken from: an embedded model's name says which, any other is read again."""
    if isinstance(source, nn.Module):
        return fingerprint(source)
    if zoo.is_embedded(source) or explainer.lm_head.load is None:
        return str(source)
    return fingerprint(explainer.lm_head.load(str(source), explainer.model.dtype, explainer.device))


def short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
