"""What is loaded as a causal language model is one: it sees what stands before a token, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import whence
from tests import architectures
from whence.errors import NotSupported

TWO_PART: dict[str, Any] = {
    "vocab_size": len(architectures.VOCABULARY),
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "decoder_start_token_id": 3,
}
DECODER_HALVES = ("Bart", "MBart", "Pegasus", "Marian", "Blenderbot", "PLBart", "TrOCR")
ENCODERS = ("Bert", "Roberta", "Electra", "XLMRoberta")


def config_of(family: str, **changes: Any) -> transformers.PretrainedConfig:
    return getattr(transformers, f"{family}Config")(**{**TWO_PART, **changes})


def random(model: transformers.PreTrainedModel) -> transformers.PreTrainedModel:
    architectures.draw_weights(model)
    return model.eval()


def decoder_half(family: str, **changes: Any) -> transformers.PreTrainedModel:
    return random(getattr(transformers, f"{family}ForCausalLM")(config_of(family, **changes)))


@pytest.mark.parametrize("family", DECODER_HALVES)
def test_half_of_an_encoder_and_decoder_is_refused(family: str, tmp_path: Path) -> None:
    model = decoder_half(family)
    for task in (None, "causal-lm"):
        with pytest.raises(NotSupported, match=r"decoder of a model that also has an encoder.*later version"):
            whence.load(model, architectures.tokenizer(framed=False), task=task)
    model.save_pretrained(tmp_path)
    with pytest.raises(NotSupported, match="decoder of a model that also has an encoder"):
        whence.load(tmp_path, task="causal-lm")


def test_an_encoder_of_another_width_is_told_too() -> None:
    with pytest.raises(NotSupported, match="decoder of a model that also has an encoder"):
        whence.load(decoder_half("TrOCR", cross_attention_hidden_size=24), None)


@pytest.mark.parametrize("name", ["gpt2", "bert", "roberta", "xglm"])
def test_a_decoder_with_attention_to_an_encoder_is_refused(name: str) -> None:
    """Whatever its class is called: the same classes without that attention are causal language models."""
    sizes = {**architectures.COMMON, **architectures.CONFIGS.get(name, {}), "d_model": 32, "attention_heads": 4}
    decoder = {} if name == "gpt2" else {"is_decoder": True}
    for attends in (False, True):
        config = transformers.AutoConfig.for_model(name, **{**sizes, **decoder, "add_cross_attention": attends})
        model = random(transformers.AutoModelForCausalLM.from_config(config))
        if attends:
            with pytest.raises(NotSupported, match="decoder of a model that also has an encoder"):
                whence.load(model, None, task="causal-lm")
        else:
            assert whence.load(model, None, task="causal-lm").task == "causal-lm"


@pytest.mark.parametrize("class_name", ["BartForConditionalGeneration", "T5ForConditionalGeneration"])
def test_an_encoder_and_decoder_is_refused(class_name: str, tmp_path: Path) -> None:
    family = class_name.removesuffix("ForConditionalGeneration")
    sizes = {"num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 48} if family == "T5" else {}
    model = random(getattr(transformers, class_name)(config_of(family, **sizes)))
    model.save_pretrained(tmp_path)
    for task in (None, "causal-lm"):
        with pytest.raises(NotSupported, match=r"has an encoder and a decoder.*later version"):
            whence.load(model, architectures.tokenizer(framed=False), task=task)
        with pytest.raises(NotSupported, match=r"has an encoder and a decoder.*later version"):
            whence.load(tmp_path, task=task)


def test_two_models_joined_are_refused() -> None:
    halves = [architectures.config("bert"), architectures.config("bert", is_decoder=True, add_cross_attention=True)]
    joined = transformers.EncoderDecoderModel(transformers.EncoderDecoderConfig.from_encoder_decoder_configs(*halves))
    with pytest.raises(NotSupported, match="has an encoder and a decoder"):
        whence.load(joined.eval(), None, task="causal-lm")


@pytest.mark.parametrize("family", ENCODERS)
def test_an_encoder_is_no_causal_language_model(family: str, tmp_path: Path) -> None:
    name = "BertLMHeadModel" if family == "Bert" else f"{family}ForCausalLM"
    model_type = getattr(transformers, f"{family}Config").model_type
    model = random(getattr(transformers, name)(architectures.config(model_type)))
    with pytest.raises(NotSupported, match=r"sees what stands behind.*is_decoder=True"):
        whence.load(model, architectures.tokenizer(), task="causal-lm")
    model.save_pretrained(tmp_path)
    with pytest.raises(NotSupported, match="sees what stands behind"):
        whence.load(tmp_path, task="causal-lm")
    decoder = random(getattr(transformers, name)(architectures.config(model_type, is_decoder=True)))
    assert whence.load(decoder, architectures.tokenizer(), task="causal-lm").task == "causal-lm"


def test_a_class_of_somebodys_own_is_tried_too() -> None:
    """No name and no flag says that its tokens see what stands behind them."""

    class Writer(transformers.LlamaForCausalLM):
        def forward(self, input_ids: torch.Tensor, **named: Any) -> Any:
            found = super().forward(input_ids, **named)
            found.logits = found.logits + found.logits.mean(1, keepdim=True)
            return found

    model = random(Writer(architectures.config("llama")))
    with pytest.raises(NotSupported, match="sees what stands behind"):
        whence.load(model, None, task="causal-lm")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", architectures.DECODERS)
def test_decoders_are_what_they_are_loaded_as(name: str, dtype: torch.dtype) -> None:
    model = architectures.build(name, dtype, task="causal-lm")
    hooks = [len(module._forward_hooks) for module in model.modules()]
    state = torch.get_rng_state()
    assert whence.load(model, architectures.tokenizer(framed=False)).task == "causal-lm"
    assert torch.equal(torch.get_rng_state(), state)
    assert [len(module._forward_hooks) for module in model.modules()] == hooks


def test_classifiers_with_an_encoder_and_a_decoder_go_on() -> None:
    """Perturbations ask the model alone, and are right."""
    model = random(transformers.BartForSequenceClassification(config_of("Bart", num_labels=3))).double()
    ids = [2, 10, 11, 12, 3]
    e = whence.load(model, architectures.tokenizer()).explain({"input_ids": ids}, "occlusion", replace="pad")

    def logit(row: list[int]) -> float:
        with torch.no_grad():
            return float(model(input_ids=torch.tensor([row])).logits[0, e.target_index])

    mask = [[*ids[:i], 0, *ids[i + 1 :]] for i in range(1, 4)]
    assert e.scores[1:4] == pytest.approx([logit(ids) - logit(row) for row in mask], abs=1e-12)
    assert isinstance(model.model.decoder.layers[0].encoder_attn, nn.Module)
