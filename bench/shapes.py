"""Random models of known shapes, rows for them, and the floor: all that is measured starts from these.

Nothing of whence is imported here: peers run from the same models in environments where it may not import.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from bench.settings import weights_dtype

Texts = list[dict[str, list[int]]]
CLS, SEP, MASK, UNK = 101, 102, 103, 100
FIRST_WORD = 104


@dataclass(frozen=True)
class Shape:
    """Of a transformer, without its weights."""

    layers: int = 12
    features: int = 768
    heads: int = 12
    words: int = 30_522
    positions: int = 512

    def __str__(self) -> str:
        if self == BERT_BASE:
            return "BERT-base shape"
        if asdict(self) | {"layers": 12} == asdict(BERT_BASE):
            return f"BERT-base shape, first {self.layers} layers"
        return f"{self.layers} layers, {self.features} features, {self.heads} heads, {self.words:,} words"


BERT_BASE = Shape()
TINY = Shape(2, 32, 4, 1000, 128)


def bert(shape: Shape, device: str = "cpu", precision: str = "float32") -> PreTrainedModel:
    """A random classifier, parameters frozen."""
    torch.manual_seed(0)
    return ready(BertForSequenceClassification(bert_config(shape)), device, precision)


def bert_lm(shape: Shape, device: str = "cpu", precision: str = "float32") -> PreTrainedModel:
    """A random masked language model of one layer: whence keeps its head and nothing else."""
    torch.manual_seed(1)
    config = bert_config(shape)
    config.num_hidden_layers = 1
    return ready(BertForMaskedLM(config), device, precision)


def bert_config(shape: Shape) -> BertConfig:
    return BertConfig(
        num_labels=2,
        attn_implementation="sdpa",
        num_hidden_layers=shape.layers,
        hidden_size=shape.features,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.features,
        vocab_size=shape.words,
        max_position_embeddings=shape.positions,
    )


def gpt2(shape: Shape, device: str = "cpu", precision: str = "float32", *, lm: bool = False) -> PreTrainedModel:
    """A random GPT-2. Without dropout: LXT patches dropout away for good, and both must run the same model."""
    torch.manual_seed(0)
    config = GPT2Config(
        num_labels=2,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="sdpa",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        n_layer=shape.layers,
        n_embd=shape.features,
        n_head=shape.heads,
        vocab_size=shape.words,
        n_positions=shape.positions,
    )
    return ready((GPT2LMHeadModel if lm else GPT2ForSequenceClassification)(config), device, precision)


def ready(model: PreTrainedModel, device: str, precision: str) -> PreTrainedModel:
    return model.to(device, weights_dtype(precision)).eval().requires_grad_(False)


def random_rows(rows: int, tokens: int, words: int = BERT_BASE.words, seed: int = 0) -> Texts:
    """[CLS] w … w [SEP], all of one length."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(FIRST_WORD, words, (rows, tokens), generator=generator)
    ids[:, 0], ids[:, -1] = CLS, SEP
    return [{"input_ids": row} for row in ids.tolist()]


def ids_of(rows: Texts, device: torch.device | str) -> Tensor:
    return torch.tensor([row["input_ids"] for row in rows], device=device)


def words_of(rows: Texts) -> list[str]:
    """The rows as texts that `words_tokenizer` reads back."""
    return [" ".join(f"w{i}" for i in row["input_ids"][1:-1]) for row in rows]


def words_tokenizer(words: int = BERT_BASE.words, *, frame: bool = True) -> PreTrainedTokenizerFast:
    """Word w123 is token 123, so that libraries that take text get exactly the rows' tokens; framed by [CLS] and [SEP], or not."""
    special = {0: "[PAD]", UNK: "[UNK]", CLS: "[CLS]", SEP: "[SEP]", MASK: "[MASK]"}
    core = Tokenizer(models.WordLevel({special.get(i, f"w{i}"): i for i in range(words)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if frame:
        core.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
        )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=core, **names)


def floor(model: Any, rows: Texts) -> Callable[[], Tensor]:
    """One batched forward and the backward to the word embeddings, with the model's fast attention."""
    ids = ids_of(rows, model.device)

    def run() -> Tensor:
        x = model.get_input_embeddings()(ids).detach().requires_grad_(True)
        logits = model(inputs_embeds=x, attention_mask=torch.ones_like(ids)).logits
        return torch.autograd.grad(logits.amax(-1).sum(), x)[0]

    return run


def forward(model: Any, rows: Texts) -> Callable[[], Tensor]:
    """The plain forward of the rows in one batch."""
    ids = ids_of(rows, model.device)

    def run() -> Tensor:
        with torch.inference_mode():
            return model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits

    return run
