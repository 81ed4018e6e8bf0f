"""A classifier that only counts words: the logit of class 1 is the sum of the words' weights, so the true scores are known."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

import whence

WORDS = 200
PAD, CLS, SEP, MASK, FIRST = 0, 1, 2, 3, 4


class BagConfig(PretrainedConfig):
    model_type = "bag-of-words"

    def __init__(self, vocab_size: int = FIRST + WORDS, **more: object) -> None:
        super().__init__(pad_token_id=PAD, **more)  # type: ignore[arg-type]
        self.vocab_size = vocab_size
        self.hidden_size, self.num_hidden_layers, self.num_attention_heads = 2, 1, 1


class BagForSequenceClassification(PreTrainedModel):
    """logits = (0, Σ weight of every token that may be attended to)."""

    config_class = BagConfig

    def __init__(self, config: BagConfig) -> None:
        super().__init__(config)
        self.weight = nn.Embedding(config.vocab_size, 1)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.weight

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: object) -> SequenceClassifierOutput:
        values = self.weight(input_ids)[..., 0]
        total = (values if attention_mask is None else values * attention_mask).sum(-1)
        return SequenceClassifierOutput(logits=torch.stack([torch.zeros_like(total), total], -1))


class Tokenizer:
    """Only what the engine asks of a tokenizer for rows that are given as ids."""

    cls_token_id, sep_token_id, pad_token_id, mask_token_id, unk_token_id = CLS, SEP, PAD, MASK, MASK
    bos_token_id = eos_token_id = None
    model_max_length = 512

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [f"w{i}" for i in ids]


def explainer(seed: int = 0) -> tuple[whence.Explainer, np.ndarray]:
    """The model, and the weight of every token id."""
    weights = np.random.default_rng(seed).normal(0, 0.7, FIRST + WORDS)
    weights[:FIRST] = 0.0
    model = BagForSequenceClassification(BagConfig()).eval()
    with torch.no_grad():
        model.weight.weight[:, 0] = torch.from_numpy(weights)
    return whence.load(model, Tokenizer()), weights  # type: ignore[arg-type]


def texts(count: int, seed: int = 1) -> list[dict[str, list[int]]]:
    generator = np.random.default_rng(seed)
    rows = [generator.integers(FIRST, FIRST + WORDS, generator.integers(12, 30)).tolist() for _ in range(count)]
    return [{"input_ids": [CLS, *row, SEP]} for row in rows]
