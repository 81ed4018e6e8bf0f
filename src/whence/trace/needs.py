"""The words with which a method says what it needs of a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from whence.errors import InputError, UnknownName

NEEDS = {
    "attention": "attention probabilities A^l of every layer",
    "attention.grad": "their gradients G^l = ∂y/∂A^l",
    "attention.grad:last": "the gradient of the last layer's attention only (a backward through one layer)",
    "attention.relevance": "relevance cam^l of every layer's attention, by the method's relevance pass",
    "attention.relevance:last": "relevance of the last layer's attention only",
    "blocks": "the parts of every layer's attention block (values, W_O, norms), by the architecture's spec",
    "readout": "the position r where the answer is read (`Trace.at_readout`); nothing is recorded for it",
    "hidden": "hidden states X^0 … X^L",
    "hidden.grad": "their gradients ∂y/∂X^l",
    "hidden.grad:log-probability": "the gradient of log p(target) at X^0 … X^L",
    "hidden.relevance": "relevance of the hidden states, by the method's relevance pass",
    "lm-head": "a language-model head that decodes hidden states; the method's option lm_head= says which",
    "embeddings": "word embeddings x",
    "embeddings.grad": "their gradient ∂y/∂x",
    "embeddings.grad:log-probability": "the gradient of log p(target), which gives those of p and of the loss",
}

# what a model may lack → whether a need cannot be met without it. An error names the words as its `lacks=`
LACKING: Mapping[str, Callable[[str], bool]] = {
    "attention": lambda need: need.startswith(("attention", "blocks")),
    "attention.grad": lambda need: need.startswith(("attention.grad", "attention.relevance")),
    "blocks": lambda need: need == "blocks",
    "readout": lambda need: need == "readout",
    "hidden": lambda need: need.startswith(("hidden", "blocks")),
    "embeddings": lambda need: need.startswith("embeddings") or ".grad" in need or ".relevance" in need,
    "probabilities": lambda need: need.endswith(":log-probability"),
    "relevance": lambda need: need.endswith((".relevance", ".relevance:last")),
}


def check_needs(needs: Iterable[str]) -> frozenset[str]:
    """The needs as a set, or an error naming the one that does not exist."""
    if isinstance(needs, str) or not isinstance(needs, Iterable):
        raise InputError(f"needs= takes a set of words, as in needs={{'attention'}}, got {needs!r}.")
    words = frozenset(needs)
    for need in sorted(words):
        if need not in NEEDS:
            raise UnknownName("need", need, NEEDS)
    return words
