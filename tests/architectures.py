"""Small models of every supported architecture, made from configs with random weights: nothing is downloaded."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import whence
from whence.inputs import Encoded
from whence.tasks import Question, Scalar
from whence.trace import Recording

WORDS = (
    "the a an and but or not no of in on it is was this that film movie plot story actor scene good bad great poor dull "
    "charming boring lovely awful fine long short never always very too quite funny sad moving cold warm keys cabinet "
    "table are were journey music light dark slow fast ! . , ? ' ##s ##ing ##ly ##ed ##er"
).split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = {word: i for i, word in enumerate(SPECIAL + WORDS)}

COMMON = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "num_labels": 3,
}
# what differs from COMMON, by Hugging Face model type
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {"type_vocab_size": 1},
    "xlm-roberta": {"type_vocab_size": 1},
    "distilbert": {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48},
    "electra": {"embedding_size": 16},
    "albert": {"embedding_size": 16},
    "mpnet": {},
    "deberta-v2": {
        "relative_attention": True,
        "position_biased_input": False,
        "pos_att_type": ["c2p", "p2c"],
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "conv_kernel_size": 3,
        "pooler_hidden_size": 32,
        "type_vocab_size": 0,
    },
    "modernbert": {"global_attn_every_n_layers": 2, "local_attention": 8, "cls_token_id": 2, "sep_token_id": 3},
    "gpt2": {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_inner": 48, "n_positions": 64},
    "llama": {"num_key_value_heads": 2},
    "qwen2": {"num_key_value_heads": 2},
    "mistral": {"num_key_value_heads": 2, "sliding_window": 6},
}
NAMES = tuple(CONFIGS)
# families whose methods need nothing but attention, hidden states and gradients: they run on every architecture
SINGLE_PASS = ("baseline", "attention", "attention gradient", "activation", "gradient")
DECODERS = ("gpt2", "llama", "qwen2", "mistral")
AUTO: dict[str, Any] = {
    "sequence-classification": AutoModelForSequenceClassification,
    "question-answering": AutoModelForQuestionAnswering,
    "masked-lm": AutoModelForMaskedLM,
    "causal-lm": AutoModelForCausalLM,
    "token-classification": AutoModelForTokenClassification,
}


def config(name: str, **changes: Any) -> PretrainedConfig:
    return CONFIG_MAPPING[name](**{**COMMON, **CONFIGS[name], **changes})


def build(
    name: str,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    task: str = "sequence-classification",
    **changes: Any,
) -> PreTrainedModel:
    """A fresh model with weights large enough for its attention and its answers to differ from token to token."""
    torch.manual_seed(seed)
    if task == "question-answering":
        changes = {"num_labels": 2, **changes}
    model = AUTO[task].from_config(config(name, **changes))
    if name == "modernbert" and dtype == torch.float64 and not model._supports_attention_backend:
        import pytest  # whoever only measures with these models need not have it

        pytest.skip(
            "before it joined transformers' attention interface ModernBERT's own eager attention made NaN in float64"
        )
    draw_weights(model)
    return model.to(dtype).eval()


@torch.no_grad()
def draw_weights(model: PreTrainedModel) -> None:
    """Larger than transformers draws them."""
    for key, parameter in model.named_parameters():
        if parameter.dim() > 1:
            parameter.normal_(0, 0.12)
        elif "norm" in key.lower() and key.endswith("weight"):
            parameter.uniform_(0.6, 1.4)
        else:
            parameter.normal_(0, 0.1)


@cache
def model(name: str, dtype: torch.dtype = torch.float64, task: str = "sequence-classification") -> PreTrainedModel:
    """The same model for every test that does not change it."""
    return build(name, dtype, task=task)


def tokenizer(framed: bool = True) -> PreTrainedTokenizerFast:
    """WordPiece over WORDS, with BERT's frame of special tokens or (for prompts) without. A new one each time, made in less than
    a millisecond: some tests take tokens away from theirs, or give it a template."""
    core = Tokenizer(models.WordPiece(VOCABULARY, unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer()
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if framed:
        core.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def first_logit(explainer: whence.Explainer, rows: list[Encoded], recording: Recording) -> Scalar:
    """The scalar of target 0 for every row."""
    targets = explainer.session.task.targets(rows, [Question(0)] * len(rows), recording.logits)
    return Scalar.stack([t[0].joint() for t in targets], explainer.device)
