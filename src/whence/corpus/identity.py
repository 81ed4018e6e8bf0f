"""What of a plan decides scores besides its options: head masks and language-model heads, by what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from whence.explainer import Explainer
from whence.models import zoo
from whence.relevance.head_mask import HeadMask, as_mask
from whence.run.plan import Plan
from whence.run.provenance import fingerprint, short_digest


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The names under which two identities differ."""
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


def masks_of(plan: Plan) -> dict[str, Any]:
    """The content of the head masks that methods use, files and embedded ones too."""
    return {call.name: content_of(call.options["head_mask"]) for call in plan.calls if "head_mask" in call.options}


def with_masks(explainer: Explainer, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the head mask itself in the place of its file, which workers elsewhere may lack and which may change."""
    if options.get("head_mask") is None:
        return dict(options)
    return {**options, "head_mask": as_mask(options["head_mask"], explainer.defaults.head_mask)}


def as_setting(value: Any) -> Any:
    """An option as a manifest shows it: a head mask by its content, wherever it came from."""
    return content_of(value) if isinstance(value, HeadMask) else value


def content_of(mask: HeadMask) -> dict[str, Any]:
    return {key: part for key, part in mask.to_dict().items() if key != "source"}


def heads_of(explainer: Explainer, plan: Plan) -> dict[str, str]:
    """A hash of the language-model head that each decoding method reads layers by."""
    digests = {}
    for call in plan.calls:
        if "lm-head" in call.needs:
            source = call.options.get("lm_head")
            head = explainer.session.lm_heads(source)
            inside = (
                source is None and explainer.session.lm_heads.told is None
            )  # the model's weights are hashed already
            tensors = [tensor for tensor in (head.weight, head.bias) if tensor is not None]
            parts = [
                fingerprint(tensors),
                "" if inside else source_of(explainer, source or explainer.session.lm_heads.told),
            ]
            digests[call.name] = short_digest(" ".join(parts))
    return digests


def source_of(explainer: Explainer, source: Any) -> str:
    """What a head was taken from: an embedded model's name says which, any other is read again."""
    if isinstance(source, nn.Module):
        return fingerprint(source)
    if zoo.is_embedded(source) or explainer.session.lm_heads.load is None:
        return str(source)
    return fingerprint(explainer.session.lm_heads.load(str(source), explainer.model.dtype, explainer.device))
