"""Low-rank adapters (Hu et al., 2021) on every linear layer of the encoder, saved as peft saves them.

A wrapped layer computes W·x + (alpha / r)·B·A·x; only A, B and the new head (and the pooler, where there is one) learn.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from train.common import save_json, save_weights

RANK, DROPOUT = 16, 0.05
SCALE = 2.0  # alpha / r
# peft matches this against the whole name of a module
TARGETS = (
    r".*\.encoder\.layer\.\d+\."
    r"(attention\.self\.(query|key|value)|attention\.output\.dense|intermediate\.dense|output\.dense)"
)
HEADS = ("classifier", "qa_outputs", "bert.pooler")


class LoraLinear(nn.Module):
    """A frozen linear layer with a trained low-rank update beside it."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.linear = linear
        self.lora_A = nn.Linear(linear.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, linear.out_features, bias=False)
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        update: Tensor = self.lora_B(self.lora_A(F.dropout(x, DROPOUT, self.training)))
        wide: Tensor = self.linear(x)
        return wide + SCALE * update


def add_adapters(model: PreTrainedModel, rank: int = RANK) -> list[nn.Parameter]:
    """Freeze the model, wrap its encoder's linear layers, free its head; returns what is left to train."""
    model.requires_grad_(False)
    encoder: Any = model.bert.encoder  # type: ignore[union-attr]
    for name, module in list(encoder.named_modules()):
        if isinstance(module, nn.Linear):
            parent, _, leaf = name.rpartition(".")
            setattr(encoder.get_submodule(parent), leaf, LoraLinear(module, rank))
    for name, parameter in model.named_parameters():
        if ".lora_" in name or name.startswith(HEADS):
            parameter.requires_grad_(True)
    return [p for p in model.parameters() if p.requires_grad]


def adapter_state(model: PreTrainedModel) -> dict[str, Tensor]:
    """A copy of what was trained, under peft's names."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    return {f"base_model.model.{name}": p.detach().to("cpu", torch.float16) for name, p in trained.items()}


def save_adapter(state: dict[str, Tensor], out: Path) -> None:
    """`adapter_model.safetensors` and `adapter_config.json`, which peft itself can load on the base."""
    save_weights(out / "adapter_model.safetensors", state)
    answers = any("qa_outputs" in key for key in state)
    rank = next(tensor.shape[0] for key, tensor in state.items() if key.endswith("lora_A.weight"))
    settings = {
        "base_model_name_or_path": "base",
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": int(SCALE * rank),
        "lora_dropout": DROPOUT,
        "modules_to_save": ["qa_outputs"] if answers else ["classifier", "pooler"],
        "peft_type": "LORA",
        "r": rank,
        "target_modules": TARGETS,
        "task_type": "QUESTION_ANS" if answers else "SEQ_CLS",
    }
    save_json(out / "adapter_config.json", settings)
