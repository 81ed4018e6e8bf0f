"""Sequence classification, single texts and pairs: y is the target's logit, read at [CLS] or at the last real token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PretrainedConfig

from whence.inputs import Batch


@dataclass(frozen=True)
class SequenceClassification:
    """One label per text (softmax), several (sigmoid) or a number (regression), by the config's `problem_type`."""

    causal: bool  # decoders answer at the last real token, encoders at the first
    name: str = "sequence-classification"

    def labels(self, config: PretrainedConfig) -> tuple[str, ...]:
        names: dict[int, str] = config.id2label  # type: ignore[assignment]
        return tuple(str(names[i]) for i in range(len(names)))

    def readout(self, batch: Batch, config: PretrainedConfig) -> Tensor:
        if not self.causal:
            return torch.zeros_like(batch.lengths)
        # Hugging Face reads the rightmost token that is not padding, and tells padding by its id alone.
        positions = torch.arange(batch.input_ids.shape[1], device=batch.input_ids.device)
        return (positions * (batch.input_ids != batch.pad_id)).argmax(-1)  # (batch,)

    def logits(self, output: Any, batch: Batch) -> Tensor:
        logits: Tensor = output.logits
        return logits

    def log_probabilities(self, logits: Tensor, config: PretrainedConfig) -> Tensor | None:
        if config.problem_type == "multi_label_classification":
            return F.logsigmoid(logits)
        if config.problem_type == "regression" or logits.shape[-1] == 1:
            return None
        return F.log_softmax(logits, dim=-1)
