"""A text that a causal language model wrote, with an explanation of every token of it."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from whence.errors import InputError, Truncated
from whence.explanation import Explanation
from whence.inputs import Encoded
from whence.inputs.numbers import whole
from whence.models import forked_random_state, untouched
from whence.run.session import Session, exclusively

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEEDS = 1 << 63  # as many as torch's generators tell apart


@dataclass(frozen=True)
class Generation:
    """One Explanation per generated token, each over the whole row: the prompt and everything generated."""

    explanations: tuple[Explanation, ...]

    def __len__(self) -> int:
        return len(self.explanations)

    @property
    def prompt(self) -> str | None:
        return self.explanations[0].text

    @property
    def text(self) -> str:
        """What the model wrote."""
        return self.explanations[0].pair or " ".join(self.tokens)

    @property
    def tokens(self) -> tuple[str, ...]:
        """The generated tokens."""
        first = self.explanations[0]
        return first.tokens[len(first) - len(self) :]

    @property
    def matrix(self) -> NDArray[np.floating[Any]]:
        """(generated, prompt + generated − 1): which tokens each one rests on; 0 from its own position on."""
        return np.stack([e.scores for e in self.explanations])[:, :-1]

    def to_dict(self) -> dict[str, Any]:
        return {"explanations": [e.to_dict() for e in self.explanations]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Generation:
        return cls(tuple(Explanation.from_dict(e) for e in data["explanations"]))

    def to_text(self, *, color: bool | None = None, pieces: bool = False) -> str:
        """For every generated token, what it rests on."""
        return "\n\n".join(e.to_text(color=color, pieces=pieces) for e in self.explanations)

    def figure(self, **options: Any) -> Figure:
        """A matplotlib figure: a row per generated token, a column per token it could rest on."""
        from whence.render.matrices import generation_figure

        return generation_figure(self.explanations, **options)

    def __repr__(self) -> str:
        return f"<Generation of {len(self)} tokens by {self.explanations[0].method}: {self.text!r}>"


@exclusively
def write_on(session: Session, row: Encoded, count: int, sample: bool, seed: int) -> tuple[int, ...]:
    """The ids that the model writes after `row`: at most `count`, fewer where it ends its text or can read no more."""
    room = session.task.encoder.max_length - len(row)
    if room < 1:
        raise InputError(f"the prompt has {len(row)} tokens and leaves the model no room to write: shorten it.")
    seed = whole("seed", seed, 0, below=SEEDS)
    model: Any = session.model
    with ExitStack() as stack:
        stack.enter_context(forked_random_state(session.model))
        batch = session.collate([row])
        stack.enter_context(untouched(session.model, pad_id=batch.pad_id))
        stack.enter_context(torch.no_grad())
        torch.manual_seed(seed)
        seen = torch.ones_like(batch.input_ids) if batch.attention_mask is None else batch.attention_mask
        inputs = {"input_ids": batch.input_ids, "attention_mask": seen}
        written = model.generate(**inputs, max_new_tokens=min(count, room), do_sample=sample, pad_token_id=batch.pad_id)
    new = tuple(int(i) for i in written[0, len(row) :])
    if len(new) == room < count:
        warnings.warn(
            f"{room} tokens were written, not {count}: the model reads {session.task.encoder.max_length} at most, the prompt included.",
            Truncated,
            stacklevel=2,
        )
    return new
