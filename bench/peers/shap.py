"""shap: KernelSHAP, and Shapley values from orders and their reverses."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from bench.peers import Job
from bench.peers.common import masked
from bench.shapes import Texts, ids_of

Run = Callable[[], object]


def kernel(job: Job, model: Any, texts: Texts) -> Run:
    shap: Any = import_module("shap")
    none, everything = np.zeros((1, job.tokens - 2)), np.ones((1, job.tokens - 2))

    def run() -> None:
        for row in ids_of(texts, model.device):
            explainer = shap.KernelExplainer(masked(model, row, job.batch), none)
            explainer.shap_values(everything, nsamples=job.points, l1_reg=0, silent=True)

    return run


def permutation(job: Job, model: Any, texts: Texts) -> Run:
    shap: Any = import_module("shap")
    none, everything = np.zeros((1, job.tokens - 2)), np.ones((1, job.tokens - 2))
    shap.PermutationExplainer(lambda x: x.sum(1), none)(everything, silent=True)  # compiles itself at the first call

    def run() -> None:
        for row in ids_of(texts, model.device):
            explainer = shap.PermutationExplainer(masked(model, row, job.batch), none, seed=0)
            explainer(everything, max_evals=job.points * (job.tokens - 2) + 1, silent=True)

    return run


METHODS = {("bert", "kernel-shap"): kernel, ("bert", "shapley"): permutation}
