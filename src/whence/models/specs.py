"""Declarative architecture specs: what the mixing methods must know of a layer beyond the attention seam.

Attention probabilities and value vectors come from the seam (trace/attention.py), the same way for every architecture;
a spec only says where a layer keeps the rest. Adding a family is one entry of SPECS (or `add_spec`) and one test:

    add_spec("my-bert", Spec(output="attention.out", norm="attention.norm", feed_forward=("mlp",), second_norm="mlp_norm"))

Nothing is believed: the first time a spec is used, the parts it names must rebuild the layer's real output
(trace/blocks.py), else an error says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from whence.errors import NotSupported, WhenceError


@dataclass(frozen=True)
class Spec:
    """One transformer layer. All names are dotted paths from the layer module.

    Post-norm (`norm` given):  y = norm(attn(x) + x),   out = second_norm(ff(y) + y)
    Pre-norm (`norm` None):    y = attn(norm(x)) + x,    out = ff(second_norm(y)) + y
    """

    output: str  # applies W_O (and b_O) to the concatenated heads; nn.Linear or GPT-2's Conv1D
    norm: str | None  # the norm on the residual sum; None in pre-norm layers, where none lies on it
    feed_forward: tuple[str, ...]  # applied one after the other
    second_norm: str
    rms: bool = False  # RMSNorm: no centring, no β


_BERT = Spec(
    output="attention.output.dense",
    norm="attention.output.LayerNorm",
    feed_forward=("intermediate", "output.dense"),
    second_norm="output.LayerNorm",
)
_LLAMA = Spec(
    output="self_attn.o_proj",
    norm=None,
    feed_forward=("mlp",),
    second_norm="post_attention_layernorm",
    rms=True,
)

# Hugging Face model type → spec
SPECS: dict[str, Spec] = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "electra": _BERT,
    "distilbert": Spec(
        output="attention.out_lin", norm="sa_layer_norm", feed_forward=("ffn",), second_norm="output_layer_norm"
    ),
    "albert": Spec(
        output="attention.dense",
        norm="attention.LayerNorm",
        feed_forward=("ffn", "activation", "ffn_output"),
        second_norm="full_layer_layer_norm",
    ),
    "gpt2": Spec(output="attn.c_proj", norm=None, feed_forward=("mlp",), second_norm="ln_2"),
    "llama": _LLAMA,
    "qwen2": _LLAMA,
    "mistral": _LLAMA,
}


def add_spec(model_type: str, spec: Spec) -> None:
    """Teach whence a family: `model_type` is the `model_type` of its Hugging Face config."""
    SPECS[model_type] = spec


def spec_of(model: PreTrainedModel) -> Spec:
    """The spec of the model's family, or an error that says what to do without one."""
    kind = str(model.config.model_type)
    if kind not in SPECS:
        raise NotSupported(
            f"whence has no architecture spec for {kind!r} ({type(model).__name__}), by which a layer's attention block is taken "
            f"apart. Specs exist for {', '.join(SPECS)}; add one with whence.models.add_spec({kind!r}, Spec(…)): a few lines that "
            "say where a layer's output projection, feed-forward part and norms are",
            lacks=("blocks",),
        )
    return SPECS[kind]


def part(module: nn.Module, path: str) -> Any:
    """The submodule (or function) at a dotted path; an error naming the path if there is none.

    >>> part(nn.Sequential(nn.ReLU()), "0")
    ReLU()
    """
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name, None)
        if found is None:
            raise WhenceError(
                f"the architecture spec names {path!r}, but {type(module).__name__} has no such part: the spec does not "
                "fit this model (whence.models.add_spec replaces it)."
            )
    return found


def projection(module: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Weight (in, out) and bias (out,) of a linear map; Conv1D keeps its weight that way round already."""
    weight: Tensor = module.weight  # type: ignore[assignment]
    bias: Tensor | None = getattr(module, "bias", None)
    return (weight if isinstance(module, Conv1D) else weight.T), bias


def epsilon(norm: nn.Module) -> float:
    """The constant inside the root; RMSNorm files call it `variance_epsilon`."""
    found: Any = getattr(norm, "variance_epsilon", None)
    return float(getattr(norm, "eps", 0.0) if found is None else found)
