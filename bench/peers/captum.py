"""captum: gradients, paths and perturbations."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from bench.peers import Job
from bench.peers.common import logits_of
from bench.shapes import MASK, Texts, ids_of

Run = Callable[[], object]


def of_embeddings(kind: str, reduce: Callable[[Tensor], Tensor]) -> Callable[[Job, Any, Texts], Run]:
    """Saliency and InputXGradient, on the embeddings of all rows at once: from rows of ids to a score per token on the host, with the
    label that is explained and its probability, as ours. The logit that it explains is the largest, and what the model said is kept
    while it runs, so that it need not run the model before to know either."""

    def make(job: Job, model: Any, texts: Texts) -> Run:
        table = model.get_input_embeddings()
        said: list[Tensor] = []

        def largest(x: Tensor) -> Tensor:
            said[:] = [model(inputs_embeds=x, attention_mask=torch.ones_like(x[..., 0])).logits]
            return said[0].amax(-1)

        method = getattr(import_module("captum.attr"), kind)(largest)
        answers: list[tuple[float, int]] = []

        def run() -> object:
            embeddings = table(ids_of(texts, model.device)).detach().requires_grad_(True)
            scores = reduce(method.attribute(embeddings)).detach().cpu().numpy()
            chance, label = said[0].detach().float().softmax(-1).max(-1)
            answers[:] = zip(chance.tolist(), label.tolist(), strict=True)
            return scores

        return run

    return make


def integrated_gradients(job: Job, model: Any, texts: Texts) -> Run:
    """Its internal batch is as large as ours, its best setting here."""
    ids = ids_of(texts, model.device)
    method = import_module("captum.attr").LayerIntegratedGradients(
        lambda x: model(x).logits, model.get_input_embeddings()
    )
    baseline = torch.zeros_like(ids)
    baseline[:, 0], baseline[:, -1] = ids[:, 0], ids[:, -1]
    with torch.no_grad():
        target = model(ids).logits.argmax(-1)
    options = {"target": target, "n_steps": job.points, "method": "gausslegendre", "internal_batch_size": job.batch}
    return lambda: method.attribute(ids, baseline, **options)


def of_features(kind: str, count: str | None) -> Callable[[Job, Any, Texts], Run]:
    """Perturbations, text by text. Special tokens are one feature, which a mask of its own holds apart: captum spends one row on it."""

    def make(job: Job, model: Any, texts: Texts) -> Run:
        ids = ids_of(texts, model.device)
        features = torch.tensor([[0, *range(1, job.tokens - 1), 0]], device=model.device)
        method = getattr(import_module("captum.attr"), kind)(lambda rows: logits_of(model, rows, job.batch)[:, 0])
        options: dict[str, Any] = {"perturbations_per_eval": job.batch} | ({count: job.points} if count else {})

        def run() -> None:
            for row in ids:
                baseline = torch.where(features > 0, MASK, row)
                method.attribute(row[None], baselines=baseline, feature_mask=features, **options)

        return run

    return make


METHODS = {
    ("bert", "gradient"): of_embeddings("Saliency", lambda found: found.norm(dim=-1)),
    ("bert", "gradient-x-input"): of_embeddings("InputXGradient", lambda found: found.sum(-1)),
    ("bert", "integrated-gradients"): integrated_gradients,
    ("bert", "occlusion"): of_features("FeatureAblation", None),
    ("bert", "lime"): of_features("Lime", "n_samples"),
    ("bert", "kernel-shap"): of_features("KernelShap", "n_samples"),
    ("bert", "shapley"): of_features("ShapleyValueSampling", "n_samples"),
}
