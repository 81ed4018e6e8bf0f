"""Our side of a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.measure import Run
from bench.settings import Settings
from bench.shapes import BERT_BASE, TINY, Shape, Texts
from whence import Explainer
from whence.registry import Method, all_methods
from whence.run.limits import BATCH_TOKENS

SINGLE_PASS = ("gradient", "attention gradient", "activation", "attention", "baseline")


def explaining(explainer: Explainer, texts: Any, method: str | Sequence[str], **options: Any) -> Run:
    """Explain the texts; if they are tokens all in one batch, as the floor has them."""
    tokens = sum(len(t["input_ids"]) for t in texts) if isinstance(texts[0], dict) and "input_ids" in texts[0] else 0
    budget = max(BATCH_TOKENS, tokens)
    chosen = method if isinstance(method, str) else list(method)
    return lambda: explainer.explain(texts, chosen, progress=False, batch_tokens=budget, **options)


def single_pass_methods() -> list[Method]:
    """Methods that share one forward and one backward per scalar. attention-flow solves max-flow problems: no pass at all."""
    return [m for m in all_methods() if m.family in SINGLE_PASS and not m.on_request]


def shape_for(settings: Settings, shape: Shape = BERT_BASE) -> Shape:
    return TINY if settings.quick else shape


def size_of(texts: Texts) -> str:
    return f"{len(texts)} × {len(texts[0]['input_ids'])}"
