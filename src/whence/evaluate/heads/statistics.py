"""What every attention head does: how often it points to a word's syntactic head, how often to one relative position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whence.errors import InputError, NotSupported
from whence.evaluate.heads.conllu import ROOT, Sentence
from whence.inputs import Batch, Encoded, Encoder, collate, pack
from whence.models import (
    lock_of,
    max_length,
    pad_id,
    special_ids,
    type_vocab_size,
    uncompiled,
    untouched,
    uses_attention_interface,
    vocab_size,
)
from whence.relevance.head_mask import HeadMask, grid
from whence.run.limits import XI_POSITIONAL, XI_SYNTACTIC
from whence.run.progress import track
from whence.trace.attention import NAME, Attended, Shown, attention_tape
from whence.trace.recorder import model_inputs

RELATIONS = ("nsubj", "obj", "amod", "advmod")
MAX_PAIRS = 1 << 20  # (query, key) pairs of one batch: all layers' attention is held at once
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class HeadStatistics:
    """Counts over a corpus, for L layers and H heads."""

    relations: tuple[str, ...]
    hits: Ints  # (k, L, H): tokens in relation k whose strongest-attended word is their syntactic head
    totals: Ints  # (k,): tokens in relation k
    distances: tuple[dict[int, float], ...]  # λ_k: word distance to the syntactic head → share of relation k
    offsets: Ints  # (p,): relative positions, in tokens
    pointed: Ints  # (p, L, H): tokens whose strongest-attended token is at that relative position
    tokens: int
    sentences: int
    skipped: int = 0  # sentences that do not fit into the model

    @property
    def alpha(self) -> Floats:
        """α_k(l, h) ∈ [0, 1] of eq. 7: (k, L, H)."""
        return self.hits / np.maximum(self.totals, 1)[:, None, None]

    @property
    def thresholds(self) -> Floats:
        """max λ_k: how often the best fixed distance alone would find the syntactic head. (k,)"""
        return np.array([max(shares.values(), default=1.0) for shares in self.distances])

    @property
    def position_shares(self) -> Floats:
        """α_i(l, h) ∈ [0, 1] of eq. 8: (p, L, H)."""
        return self.pointed / max(self.tokens, 1)

    def syntactic(self, xi: float = XI_SYNTACTIC) -> NDArray[np.bool_]:
        """Which relations a head is good for: α_k > max λ_k + ξ. (k, L, H)"""
        return self.alpha > (self.thresholds + xi)[:, None, None]

    def positional(self, xi: float = XI_POSITIONAL) -> NDArray[np.bool_]:
        """Which relative positions a head points to: α_i > ξ, i ≠ 0. (p, L, H)"""
        found: NDArray[np.bool_] = (self.position_shares > xi) & (self.offsets != 0)[:, None, None]
        return found

    def mask(
        self, xi_syntactic: float = XI_SYNTACTIC, xi_positional: float = XI_POSITIONAL, **provenance: Any
    ) -> HeadMask:
        """ℳ = ℳ_synt + ℳ_pos (eq. 6–8): counts, with what they were counted on."""
        for name, value in (("xi_syntactic", xi_syntactic), ("xi_positional", xi_positional)):
            if not -1 <= value <= 1:
                raise InputError(f"{name}={value!r}: a share between 0 and 1 is wanted.")
        parts = (grid(self.syntactic(xi_syntactic).sum(0)), grid(self.positional(xi_positional).sum(0)))
        facts = {
            **provenance,
            "sentences": self.sentences,
            "tokens": self.tokens,
            "xi_syntactic": xi_syntactic,
            "xi_positional": xi_positional,
            "max_lambda": dict(zip(self.relations, self.thresholds.round(4).tolist(), strict=True)),
            "found": [line["what"] for line in self.describe(xi_syntactic, xi_positional)],
        }
        return HeadMask(parts, "computed", facts)

    def describe(
        self, xi_syntactic: float = XI_SYNTACTIC, xi_positional: float = XI_POSITIONAL
    ) -> list[dict[str, Any]]:
        """One row per head and function found, layers and heads counted from 1 and by layer."""
        rows = []
        for k, layer, head in np.argwhere(self.syntactic(xi_syntactic)):
            share, bar = self.alpha[k, layer, head], self.thresholds[k] + xi_syntactic
            rows.append(self._row(layer, head, "syntactic", self.relations[k], share, bar))
        for p, layer, head in np.argwhere(self.positional(xi_positional)):
            share = self.position_shares[p, layer, head]
            rows.append(self._row(layer, head, "positional", f"{self.offsets[p]:+d}", share, xi_positional))
        return sorted(rows, key=lambda row: (row["layer"], row["head"], row["kind"]))

    def _row(self, layer: int, head: int, kind: str, function: str, share: float, bar: float) -> dict[str, Any]:
        what = f"layer {layer + 1} head {head + 1}: {kind} {function}, {share:.3f} > {bar:.3f}"
        facts = {"layer": int(layer) + 1, "head": int(head) + 1, "kind": kind, "function": function}
        return {**facts, "share": round(float(share), 4), "threshold": round(float(bar), 4), "what": what}


def head_statistics(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sentence],
    *,
    relations: Sequence[str] = RELATIONS,
    batch_tokens: int = 8192,
    progress: bool | None = None,
) -> HeadStatistics:
    """Run every sentence through the model and count where each head's strongest attention goes.

    A token is a word piece of the text; special tokens ask nothing and are not pointed to ("strongest-attended word").
    Words and pieces meet by their characters. A hit is any piece of the syntactic head.
    """
    encoder = encoder_for(model, tokenizer)
    rows = [encoder.encode([s.text])[0] if s.text.strip() else None for s in sentences]
    fitting = [(s, r) for s, r in zip(sentences, rows, strict=True) if r is not None and not r.truncated]
    if not fitting:
        raise InputError("no sentence fits into the model: there is nothing to count.")
    groups = pack([len(r) for _, r in fitting], batch_tokens, MAX_PAIRS)
    width = max(len(r) for _, r in fitting)
    hits: Ints | None = None
    totals, tokens = np.zeros(len(relations), np.int64), 0
    pointed = np.zeros(0, np.int64)
    for group in track(groups, len(groups), "counting heads", progress):
        part = [fitting[i] for i in group]
        rows_of_group = [r for _, r in part]
        with lock_of(model):
            batch = collate(rows_of_group, pad_id(model.config), model.device)
            best = strongest(model, batch, rows_of_group)
        if hits is None:  # the first batch tells how many layers and heads there are
            depth, heads = best.shape[0], best.shape[2]
            hits = np.zeros((len(relations), depth, heads), np.int64)
            pointed = np.zeros((2 * width - 1, depth, heads), np.int64)
        for k, links in enumerate(dependents([s for s, _ in part], [r for _, r in part], relations)):
            totals[k] += len(links)
            hits[k] += count_hits(best, links)
        counted = count_positions(best, [r for _, r in part], width)
        tokens += counted[1]
        pointed += counted[0]
    assert hits is not None
    used = [s for s, _ in fitting]
    return HeadStatistics(
        relations=tuple(relations),
        hits=hits,
        totals=totals,
        distances=tuple(distance_shares(used, relation) for relation in relations),
        offsets=np.arange(1 - width, width),
        pointed=pointed,
        tokens=tokens,
        sentences=len(fitting),
        skipped=len(sentences) - len(fitting),
    )


def encoder_for(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Encoder:
    if not getattr(tokenizer, "is_fast", False):
        raise NotSupported(
            "head statistics match words and pieces by their characters, which only fast tokenizers tell."
        )
    special = special_ids(model.config, tokenizer)
    return Encoder(tokenizer, max_length(model, tokenizer), vocab_size(model), special, type_vocab_size(model.config))


@torch.no_grad()
def strongest(model: PreTrainedModel, batch: Batch, rows: Sequence[Encoded]) -> Ints:
    """The key each query attends to most, special tokens and padding left out: (L, b, H, n)."""
    word = torch.zeros(batch.valid.shape, dtype=torch.bool)
    for i, row in enumerate(rows):
        word[i, : len(row)] = ~torch.tensor(row.special)
    closed = ~word[:, None, None, :].to(batch.valid.device)
    layers = attention_layers(model, batch)
    return np.stack([a.probabilities().masked_fill(closed, -1.0).argmax(-1).cpu().numpy() for a in layers])


def attention_layers(model: PreTrainedModel, batch: Batch) -> Sequence[Attended | Shown]:
    """The attention of layers 1 … L of any model with or without a task."""
    through_interface = uses_attention_interface(model)
    base = uncompiled(model.base_model)
    inputs = {**model_inputs(base, batch), **({} if through_interface else {"output_attentions": True})}
    with (
        untouched(model, attention=NAME if through_interface else "eager", pad_id=batch.pad_id),
        attention_tape() as tape,
        torch.no_grad(),
    ):
        output = base(**inputs)
    shown = [Shown(a) for a in getattr(output, "attentions", None) or ()]
    found: Sequence[Attended | Shown] = tape if through_interface else shown
    if not found:
        raise NotSupported(f"{type(model).__name__} lets nobody see its attention: its heads cannot be counted.")
    return found


def pieces_of(row: Encoded, start: int, end: int) -> list[int]:
    """The tokens that share a character with [start, end)."""
    pairs = zip(row.offsets, row.special, strict=True)
    return [i for i, ((a, b), special) in enumerate(pairs) if not special and a < end and start < b]


def dependents(sentences: Sequence[Sentence], rows: Sequence[Encoded], relations: Sequence[str]) -> list[Ints]:
    """For each relation the (row, query token, first and last token of the syntactic head) of its tokens: (m, 4) each."""
    found: list[list[tuple[int, int, int, int]]] = [[] for _ in relations]
    for number, (sentence, row) in enumerate(zip(sentences, rows, strict=True)):
        for word in sentence.words:
            if word.head == ROOT or word.relation not in relations:
                continue
            head = sentence.words[word.head]
            target = pieces_of(row, head.start, head.end)
            if target:
                links = ((number, q, target[0], target[-1]) for q in pieces_of(row, word.start, word.end))
                found[relations.index(word.relation)].extend(links)
    return [np.array(links, np.int64).reshape(-1, 4) for links in found]


def count_hits(best: Ints, links: Ints) -> Ints:
    """How many links each head follows: (L, H)."""
    row, query, first, last = links.T
    pointed = best[:, row, :, query]  # (m, L, H): numpy puts the indexed axes first
    hit = (pointed >= first[:, None, None]) & (pointed <= last[:, None, None])
    total: Ints = hit.sum(0)
    return total


def count_positions(best: Ints, rows: Sequence[Encoded], width: int) -> tuple[Ints, int]:
    """How often each head points to each relative position, (2·width − 1, L, H), and over how many tokens."""
    row, query = np.array([(i, q) for i, r in enumerate(rows) for q in range(len(r)) if not r.special[q]]).T
    offsets = best[:, row, :, query] - query[:, None, None] + width - 1  # (m, L, H)
    counts = np.zeros((2 * width - 1, *offsets.shape[1:]), np.int64)
    layer, head = np.indices(offsets.shape[1:])
    for at in offsets:
        counts[at, layer, head] += 1
    return counts, len(query)


def distance_shares(sentences: Sequence[Sentence], relation: str) -> dict[int, float]:
    """λ_k: the distribution of word distances from a dependent in this relation to its syntactic head."""
    counts = Counter(
        word.head - number
        for sentence in sentences
        for number, word in enumerate(sentence.words)
        if word.relation == relation and word.head != ROOT
    )
    total = sum(counts.values())
    return {distance: count / total for distance, count in sorted(counts.items())}
