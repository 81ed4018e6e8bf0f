"""What cannot be explained: a model with weights, or answers, that are no numbers."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from operator import attrgetter

import torch
from torch import Tensor, nn

from whence.errors import InputError, ModelError


def check_finite(finite: Tensor) -> None:
    """NaN or infinite logits cannot be explained."""
    if not bool(finite):
        raise ModelError(
            "the model answered with logits that are not finite numbers, though its weights are: try dtype='float32'."
        )


def check_material(model: nn.Module) -> None:
    """Weights must be there, and such that torch can differentiate through them."""
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            raise InputError(
                f"the model's parameter {name!r} holds no numbers (it is on the device 'meta', or offloaded): load the whole model onto one device."
            )
        if parameter.is_inference():
            raise InputError(
                f"the model's parameter {name!r} was made within torch.inference_mode(), so that nothing can be differentiated through it: "
                "make or load the model outside."
            )
        if parameter.is_complex():
            raise InputError(
                f"the model's parameter {name!r} is complex ({parameter.dtype}): whence explains models of real weights."
            )


_CHECKED: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()


def was_checked(model: nn.Module) -> bool:
    """Whether the weights, as they once were, have been found to be numbers."""
    return model in _CHECKED


def weights_stamp(parameters: Sequence[nn.Parameter]) -> int:
    """A number that changes when a weight is written to, or is replaced by another."""
    return hash((*map(Tensor.data_ptr, parameters), *map(attrgetter("_version"), parameters)))


def check_weights(model: nn.Module, stamp: int) -> None:
    """Refuse NaN or infinite weights by name: fast attention kernels can turn them into finite, wrong logits.

    Looks again only when the stamp of the model's weights is another one.
    """
    if _CHECKED.get(model) == stamp:
        return
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not bool(torch.isfinite(parameter.sum(dtype=torch.promote_types(parameter.dtype, torch.float32)))):
                raise ModelError(
                    f"the model cannot answer: its parameter {name!r} holds NaN or infinity; load it anew."
                )
    _CHECKED[model] = stamp
