"""Targets that are words of a language model's vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from whence.errors import InputError, reading
from whence.inputs import Batch, check_unicode, tokenize

SHOWN = 20  # how many alternatives a prediction lists


@dataclass(frozen=True)
class Vocabulary:
    """Words to token ids and back."""

    tokenizer: PreTrainedTokenizerBase | None
    size: int
    spaced: bool  # a word stands after a blank (masked LM) rather than as it is written (causal LM)

    def id_of(self, given: Any, what: str = "target") -> int:
        """The id of a word that is one token; a word of several pieces is refused with its pieces named."""
        if isinstance(given, (int, np.integer)) and not isinstance(given, (bool, np.bool_)):
            if not 0 <= given < self.size:
                raise InputError(f"{what} {given} is outside the model's vocabulary of {self.size}.")
            return int(given)
        if not isinstance(given, str):
            raise InputError(f"{what} must be a word of the vocabulary or a token id, got {type(given).__name__}.")
        check_unicode(given, f"{what}: ")
        if self.tokenizer is None:
            raise InputError(f"{what}={given!r}: this model has no tokenizer, so give a token id.")
        tokenizer: Any = self.tokenizer
        spaced, plain = " " + given.lstrip(), given
        pieces: list[list[int]] = []
        for form in (spaced, plain) if self.spaced else (plain, spaced):
            with reading(f"{what}: "):
                ids = [int(i) for i in tokenize(tokenizer, form, add_special_tokens=False)["input_ids"]]
            if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
                return ids[0]
            pieces.append(ids)
        literal = tokenizer.get_vocab().get(given)
        if literal is not None:
            return int(literal)
        shown = " ".join(tokenizer.convert_ids_to_tokens(pieces[0])) or "nothing"
        raise InputError(
            f"{what}={given!r} is no single token of this model's vocabulary (it reads as {shown}): choose a word that is, or "
            + (
                "write one [MASK] per piece and give the pieces as a tuple."
                if self.spaced
                else f"give it as continuation={given!r}."
            )
        )

    def word(self, index: int) -> str:
        """A token as people write it; what cannot be shown stays the tokenizer's own piece."""
        if self.tokenizer is None:
            return str(index)
        tokenizer: Any = self.tokenizer
        text = str(tokenizer.decode([index]))
        text = text.strip() if self.spaced else text
        return text if text.strip() and "�" not in text else str(tokenizer.convert_ids_to_tokens(index))

    def text(self, ids: tuple[int, ...]) -> str:
        """What several tokens spell together."""
        return " ".join(map(str, ids)) if self.tokenizer is None else str(self.tokenizer.decode(list(ids)))

    def alternatives(self, log_p: Tensor) -> list[tuple[tuple[str, float], ...]]:
        """The likeliest words of each row. log_p: (b, options)"""
        best = log_p.topk(min(SHOWN, log_p.shape[-1]), dim=-1)
        pairs = zip(best.indices.tolist(), best.values.exp().tolist(), strict=True)
        return [tuple((self.word(i), p) for i, p in zip(ids, ps, strict=True)) for ids, ps in pairs]


def at_places(output: Any, batch: Batch) -> Tensor:
    """(b, places, options), of logits at every token, or of those there alone (`models.asked_places_only`)."""
    logits: Tensor = output.logits
    if logits.shape[1] < batch.own_ids.shape[1]:
        return logits
    index = batch.places[:, :, None].expand(-1, -1, logits.shape[-1])
    return logits.gather(1, index)


def log_softmax(logits: Tensor) -> Tensor:
    return F.log_softmax(logits, dim=-1)
