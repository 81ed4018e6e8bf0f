"""interpreto: gradients, integrated gradients and perturbations."""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib import import_module
from typing import Any

from bench.peers import Job
from bench.shapes import Texts, words_of, words_tokenizer


def method(kind: str, *, points: bool = False, **fixed: Any) -> Callable[[Job, Any, Texts], Callable[[], object]]:
    def make(job: Job, model: Any, texts: Texts) -> Callable[[], object]:
        interpreto: Any = import_module("interpreto")
        options: dict[str, Any] = {"n_perturbations": job.points} if points else {}
        made = getattr(interpreto, kind)(
            copy.deepcopy(model),  # it may change what it is given
            words_tokenizer(job.shape.words),
            batch_size=job.batch,
            granularity=interpreto.Granularity.TOKEN,
            **options,
            **fixed,
        )
        strings = words_of(texts)
        return lambda: made(strings)

    return make


METHODS = {
    ("bert", "gradient"): method("Saliency", input_x_gradient=False),
    ("bert", "gradient-x-input"): method("Saliency", input_x_gradient=True),
    ("bert", "integrated-gradients"): method("IntegratedGradients", points=True),
    ("bert", "occlusion"): method("Occlusion"),
    ("bert", "lime"): method("Lime", points=True),
    ("bert", "kernel-shap"): method("KernelShap", points=True),
}
