"""lime: the package of LIME's authors."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import torch

from bench.peers import Job
from bench.peers.common import logits_of
from bench.shapes import CLS, MASK, SEP, Texts, words_of


def text_explainer(job: Job, model: Any, texts: Texts) -> Callable[[], object]:
    lime_text: Any = import_module("lime.lime_text")

    def probabilities(strings: list[str]) -> np.ndarray:
        rows = [[CLS, *(MASK if w == "UNKWORDZ" else int(w[1:]) for w in s.split()), SEP] for s in strings]
        return logits_of(model, torch.tensor(rows, device=model.device), job.batch).softmax(-1).cpu().numpy()

    def run() -> None:
        explainer = lime_text.LimeTextExplainer(bow=False, split_expression=r"\s+", feature_selection="none")
        for text in words_of(texts):
            explainer.explain_instance(
                text, probabilities, labels=(0,), num_features=job.tokens, num_samples=job.points
            )

    return run


METHODS = {("bert", "lime"): text_explainer}
