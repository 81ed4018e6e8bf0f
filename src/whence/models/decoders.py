"""Whether a model is the causal language model that it is loaded as, found by running it: neither its class nor its flags are believed.

* A token's logits must not change when a token behind it does: an encoder loaded as a decoder sees both sides.
* Where a forward takes the states of an encoder, they must make no difference: half of a model with an encoder and a decoder was
  trained to answer what the encoder read, and is explained without it.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from whence.errors import NotSupported
from whence.models.facts import may_cache, with_names
from whence.models.reads import cuda_of, unheard, words_of
from whence.models.rounding import rounding

TOKENS = 8
ROUNDED = 1e-5  # of the largest logit
ENCODER_STATES = (
    "encoder_hidden_states",
    "encoder_outputs",
)  # what a forward calls them; the latter is a tuple that begins with them


def check_causal(model: PreTrainedModel) -> None:
    """Refuse a model that is no causal language model. One that cannot be tried (it wants more than ids) is taken as it says."""
    try:
        with unheard(model), torch.random.fork_rng(devices=cuda_of(model)), torch.no_grad():
            two_sided, listens = sees_behind(model), reads_encoder(model)
    except Exception:  # a model whose forward fails says why when it is asked to explain
        return
    name = type(model).__name__
    if two_sided:
        raise NotSupported(
            f"this {name} sees what stands behind a token, so it is no causal language model: load it with task='masked-lm' if it fills in "
            "masks, or set is_decoder=True in its config if it was trained as a decoder."
        )
    if listens:
        raise NotSupported(
            f"this {name} is the decoder of a model that also has an encoder, and would be explained without what the encoder read: "
            "encoder–decoder models come with a later version; until then load a decoder-only model."
        )


def sees_behind(model: PreTrainedModel) -> bool:
    """Whether logits change when the token behind them does, in two rows that differ in the last token alone."""
    words = words_of(model)[: TOKENS + 1]
    logits = answer(model, [words[:-1], [*words[:-2], words[-1]]])[:, : len(words) - 2]  # of the tokens before the last
    return differ(logits)


def reads_encoder(model: PreTrainedModel) -> bool:
    """Whether an encoder's states change the logits: of two equal rows, each beside states of its own."""
    taken = inspect.signature(type(model).forward).parameters
    name = next((name for name in ENCODER_STATES if name in taken), None)
    if name is None:
        return False
    words, width = words_of(model)[:TOKENS], model.config.get_text_config().hidden_size
    states = torch.randn(2, len(words), width, device=model.device).to(model.dtype)
    try:
        logits = answer(model, [words, words], **{name: states if name == ENCODER_STATES[0] else (states,)})
    except (ValueError, AttributeError):  # it takes them, and has no attention to read them with
        return False
    except RuntimeError as error:  # states of another width are multiplied with weights
        if isinstance(error, torch.OutOfMemoryError):
            raise
        return True
    return differ(logits)


def differ(logits: Tensor) -> bool:
    """Whether two rows that should be equal are not; products of other shapes (experts, say) may round them differently."""
    allowed = max(ROUNDED, 4 * rounding(logits.dtype, logits.device))
    return float((logits[0] - logits[1]).abs().max()) > allowed * float(logits.abs().max())


def answer(model: PreTrainedModel, rows: list[list[int]], **encoder: Any) -> Tensor:
    """(b, n, options), the logits of a plain forward."""
    inputs = {"input_ids": torch.tensor(rows, device=model.device), **with_names(model), **encoder}
    if may_cache(type(model).forward):
        inputs["use_cache"] = False
    logits: Tensor = model(**inputs).logits
    return logits
