"""Build an embedded model in memory: read the base, add the adapter, hand back an ordinary Hugging Face model.

The classes are imported one by one and the weights copied into a model whose own were never drawn: `from_pretrained` through
the Auto classes gives the same model, later.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save

from whence.errors import InputError, WhenceError
from whence.models.zoo.building import LOADING, NoRandomFills
from whence.models.zoo.catalogue import BASE, ROOT, ZooModel, find

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

State = dict[str, torch.Tensor]

# peft's name of the wrapped model; what follows is the name in the plain model
PEFT_PREFIX = "base_model.model."

# what a task's model shares with another of its weights: files leave it out
TIED = {
    "masked-lm": {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    "causal-lm": {"lm_head.weight": "transformer.wte.weight"},
}


def load(name: str, dtype: torch.dtype = torch.float32) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """An embedded model, merged and in eval mode, and its tokenizer.

    The weights are stored in float16 and merged in float32; ``dtype`` is what they are cast to afterwards.

    >>> model, tokenizer = load("sentiment")
    >>> type(model).__name__, model.config.id2label[1]
    ('BertForSequenceClassification', 'positive')
    """
    entry = find(name)
    state = _weights(entry)
    state |= {copy: state[source] for copy, source in TIED.get(entry.task, {}).items()}
    with LOADING:
        model = _build(entry, dtype).float()  # whatever torch's default is: half precision would round what is read
        model.load_state_dict(state)
        model.tie_weights()
    return model.to(dtype).eval(), _tokenizer(entry)


def export(name: str, directory: str | Path) -> Path:
    """Write ``name`` as a plain Hugging Face directory that any program can open; returns the directory, which must be new or empty.

    The weights are written in float32, so `AutoModel…from_pretrained` on it gives exactly what `load` gives.
    """
    entry = find(name)
    directory = Path(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise InputError(
                f"the directory {str(directory)!r} is not empty: give a new one, so that nothing in it is overwritten."
            )
        _write(entry, directory)
    except OSError as error:
        raise WhenceError(f"{name} could not be written to {str(directory)!r}: {error.strerror or error}.") from error
    return directory


def _write(entry: ZooModel, directory: Path) -> None:
    model, tokenizer = load(entry.name)
    tied = TIED.get(entry.task, {})
    state = {key: tensor.contiguous() for key, tensor in model.state_dict().items() if key not in tied}
    (directory / "model.safetensors").write_bytes(save(state, metadata={"format": "pt"}))
    model.config.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    shutil.copyfile(ROOT / "cards" / f"{entry.name}.md", directory / "README.md")


def samples(name: str) -> list[dict[str, Any]]:
    """The small labelled evaluation texts written for ``name``; an empty list where it has none."""
    file = ROOT / "samples" / f"{find(name).name}.jsonl"
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]


def words_by_frequency() -> list[str]:
    """The whole words of the base's vocabulary, which keeps BERT's order: from the most to the least frequent in English.

    >>> words_by_frequency()[:4]
    ['the', 'of', 'and', 'in']
    """
    ids: dict[str, int] = _json(BASE / "tokenizer.json")["model"]["vocab"]
    return [word for word in sorted(ids, key=ids.__getitem__) if len(word) > 1 and word.isalnum()]


def head_mask(name: str) -> Path:
    """The file of the head mask computed for ``name`` by `whence heads`."""
    return ROOT / "heads" / f"{find(name).name}.json"


def layers(name: str) -> dict[str, int]:
    """The layer that ``layer="auto"`` of each decoded method stands for, chosen on the samples by `train/layers.py`.

    >>> sorted(layers("sentiment"))
    ['decoded-grad-cam', 'decoded-simple']
    >>> layers("causal-lm")
    {}
    """
    found: dict[str, int] = _json(ROOT / "layers.json").get(find(name).name, {})
    return found


def merge(base: State, adapter: State, scale: float) -> State:
    """The adapter's weights put into the base's: W + scale·B·A where there is a low-rank pair, replaced elsewhere.

    Everything is computed in float32; ``scale`` is LoRA's alpha / r.
    """
    merged = {key: tensor.float() for key, tensor in base.items()}
    for key, tensor in adapter.items():
        plain = key.removeprefix(PEFT_PREFIX)
        if plain.endswith(".lora_A.weight"):
            module = plain.removesuffix(".lora_A.weight")
            b = adapter[f"{PEFT_PREFIX}{module}.lora_B.weight"]
            weight = f"{module}.weight"
            merged[weight] = merged[weight] + scale * (b.float() @ tensor.float())
        elif not plain.endswith(".lora_B.weight"):
            merged[plain] = tensor.float()
    return merged


def _weights(entry: ZooModel) -> State:
    if entry.adapter is None:
        return {key: tensor.float() for key, tensor in load_file(entry.directory / "model.safetensors").items()}
    base = load_file(BASE / "model.safetensors")
    body = {key: tensor for key, tensor in base.items() if key.startswith("bert.")}
    settings = _json(entry.directory / "adapter_config.json")
    adapter = load_file(entry.directory / "adapter_model.safetensors")
    return merge(body, adapter, settings["lora_alpha"] / settings["r"])


def _build(entry: ZooModel, dtype: torch.dtype) -> Any:
    """The model with its configuration and memory that no weight has been written to yet."""
    settings = _json((BASE if entry.adapter is not None else entry.directory) / "config.json")
    settings["dtype"] = dtype
    if entry.labels:
        settings["id2label"] = dict(enumerate(entry.labels))
        settings["label2id"] = {label: i for i, label in enumerate(entry.labels)}
    config_class, model_class = _classes(entry.task)
    settings["architectures"] = [model_class.__name__]
    config = config_class(**settings)
    config._attn_implementation = "sdpa"
    config._name_or_path = entry.name
    with NoRandomFills():
        model = model_class(config)
    model.name_or_path = entry.name
    return model


def _classes(task: str) -> tuple[Any, Any]:
    if task == "causal-lm":
        from transformers.models.gpt2.configuration_gpt2 import GPT2Config
        from transformers.models.gpt2.modeling_gpt2 import GPT2LMHeadModel

        return GPT2Config, GPT2LMHeadModel
    from transformers.models.bert import modeling_bert
    from transformers.models.bert.configuration_bert import BertConfig

    heads = {
        "sequence-classification": modeling_bert.BertForSequenceClassification,
        "question-answering": modeling_bert.BertForQuestionAnswering,
        "masked-lm": modeling_bert.BertForMaskedLM,
    }
    return BertConfig, heads[task]


def _tokenizer(entry: ZooModel) -> PreTrainedTokenizerFast:
    tokenizer: Any
    if entry.task == "causal-lm":
        from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast

        tokenizer = PreTrainedTokenizerFast.from_pretrained(entry.directory)
    else:
        from transformers.models.bert.tokenization_bert import BertTokenizer

        tokenizer = BertTokenizer.from_pretrained(BASE)
    tokenizer.name_or_path = entry.name
    return tokenizer  # type: ignore[no-any-return]


def _json(file: Path) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return settings
