"""`layer="auto"` of decoded saliency: the layer that plays the revealing and the hiding game best on a sample of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from whence.errors import NotSupported
from whence.evaluate.candidates import Candidate
from whence.evaluate.data import sample_of
from whence.evaluate.engine import Bench, Plan
from whence.evaluate.metrics.registry import get_metric
from whence.explainer import Explainer
from whence.models import layers_of
from whence.registry import all_methods
from whence.run.limits import BATCH_TOKENS
from whence.run.progress import counting

REVEALING, HIDING = "revealing-auc:probability", "hiding-auc:probability"
LIMIT = 48  # texts of a sample that are used, drawn at random


def methods_with_auto_layer() -> list[str]:
    """The methods that take one layer, of which `auto_layer` says which is meant by "auto"."""
    return [m.name for m in all_methods() if "auto_layer" in m.defaults]


def choose_layers(
    explainer: Explainer,
    sample: Any,
    methods: Sequence[str] | None = None,
    *,
    limit: int = LIMIT,
    batch_tokens: int = BATCH_TOKENS,
    progress: bool | None = None,
) -> dict[str, int]:
    """Each method's best layer: revealing − hiding, both areas under p of the predicted class, is the largest. No labels needed.

    sample: whatever `whence.evaluate` takes as data. methods: by default those with an option `auto_layer`.
    """
    scores = layer_scores(explainer, sample, methods, limit=limit, batch_tokens=batch_tokens, progress=progress)
    return {name: max(by_layer, key=by_layer.__getitem__) for name, by_layer in scores.items()}


def layer_scores(
    explainer: Explainer,
    sample: Any,
    methods: Sequence[str] | None = None,
    *,
    limit: int = LIMIT,
    batch_tokens: int = BATCH_TOKENS,
    progress: bool | None = None,
) -> dict[str, Mapping[int, float]]:
    """Revealing − hiding of every layer of each method, the mean over the sample."""
    if explainer.task != "sequence-classification" or len(explainer.labels) < 2:
        raise NotSupported(
            f"sample= chooses a layer by games that classifiers play; {explainer.name} is a {explainer.task} model: give "
            "layer= a number."
        )
    names = methods_with_auto_layer() if methods is None else methods
    depth = range(1, len(layers_of(explainer.model)) + 1)
    candidates = tuple(Candidate(name, {"layer": layer}) for name in names for layer in depth)
    metrics = (get_metric(REVEALING), get_metric(HIDING))
    bench = Bench(explainer, Plan(candidates, metrics, draws=0, batch_tokens=batch_tokens))
    examples = sample_of(explainer, sample, limit=limit, shuffle=True).examples
    scores = []
    with counting("choosing a layer", bench.expected(examples), progress) as counter:
        for start in range(0, len(examples), bench.chunk):
            values = bench.measure(examples[start : start + bench.chunk], counter).values
            scores.append(values[REVEALING] - values[HIDING])  # (candidates, texts)
    means = iter(np.concatenate(scores, axis=1).mean(1).tolist())
    return {name: {layer: next(means) for layer in depth} for name in names}
