"""Which language-model head decodes a model's hidden states: one that is named, the model's own, or one that was told beforehand."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from transformers import PreTrainedModel

from whence.errors import InputError, NotSupported
from whence.models.as_written import uncompiled
from whence.models.facts import vocab_size
from whence.models.lm_head import LMHead, check_head, head_of_model, head_of_module


class Loader(Protocol):
    """Reads a checkpoint as a language model."""

    def __call__(self, name: str, dtype: torch.dtype, device: torch.device) -> PreTrainedModel: ...


@dataclass
class Heads:
    """The heads for one model, each found and checked once."""

    model: PreTrainedModel
    name: str  # of the model, for errors
    told: Any = None  # what `load` was told or knows of
    load: Loader | None = None
    found: dict[Any, LMHead] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_kind(self.told)

    def __getstate__(self) -> dict[str, Any]:
        """Without what was found: it holds functions made for the purpose, which cannot be pickled."""
        return {**vars(self), "found": {}}

    def __call__(self, given: Any = None) -> LMHead:
        """`given` (a name, a directory, a live model or a module), else the model's own, else the one that was told."""
        check_kind(given)
        key = str(given) if isinstance(given, Path) else given
        if key not in self.found:
            head, model = self._find(key), self.model
            check_head(head, model.config.hidden_size, vocab_size(model), model.device, model.dtype)
            self.found[key] = head
        return self.found[key]

    def _find(self, given: str | nn.Module | None) -> LMHead:
        source: Any = given
        if source is None:
            own = head_of_model(self.model, self.name)
            if own is not None:
                return own
            source = self.told
        if source is None:
            raise NotSupported(
                f"{self.name} has no language-model head, which decoded methods need: pass lm_head= the checkpoint it was "
                "fine-tuned from (a name, a directory or a live model), or a module from hidden states to logits."
            )
        name = source if isinstance(source, str) else type(source).__name__
        if isinstance(source, (str, Path)):
            if self.load is None:
                raise InputError(
                    f"lm_head={str(source)!r}: this Explainer was not made by whence.load; give a live model."
                )
            name, source = str(source), self.load(str(source), self.model.dtype, self.model.device)
        source = uncompiled(source)
        if not isinstance(source, PreTrainedModel):
            return head_of_module(source)
        head = head_of_model(source, name)
        if head is None:
            raise NotSupported(f"lm_head={name!r} is a {type(source).__name__}: it has no language-model head.")
        return head


def check_kind(given: Any) -> None:
    if not (given is None or isinstance(given, (str, Path, nn.Module))):
        raise InputError(f"lm_head= takes a name, a directory, a live model or a module, got {type(given).__name__}.")
