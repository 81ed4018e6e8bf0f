"""Where the truth is known, every faithfulness metric must know it: true weights best, random worst, in between in order."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import whence
from tests.evaluate.oracle import explainer, texts
from whence import registry

METRICS = [
    *("aopc:paper", "aopc:attcat", "aopc:attcat-pad", "aopc:mask-lrp"),
    *("lodds:paper", "lodds:attcat", "lodds:attcat-pad", "lodds:mask-lrp"),
    *("comprehensiveness:paper", "comprehensiveness:eraser", "comprehensiveness:alti"),
    *("sufficiency:paper", "sufficiency:eraser", "sufficiency:alti"),
    *("hiding-auc:probability", "revealing-auc:probability", "hiding-auc:accuracy", "revealing-auc:accuracy"),
]
NOISE = tuple(0.4 * k for k in range(1, 11))


@pytest.fixture(scope="module")
def report() -> whence.Report:
    ex, weights = explainer()

    @whence.method("oracle")
    def oracle(trace: whence.Trace, *, noise: float = 0.0) -> torch.Tensor:
        """The true effect of every token on the explained class, with noise."""
        values = torch.from_numpy(weights)[trace.input_ids]
        signs = torch.where(torch.tensor(trace_targets(trace)) == 1, 1.0, -1.0)[:, None]
        drawn = [np.random.default_rng([7, *ids]).normal(0, 1, len(ids)) for ids in trace.input_ids.tolist()]
        return values * signs + noise * torch.from_numpy(np.stack(drawn))

    def trace_targets(trace: whence.Trace) -> list[int]:
        total = torch.from_numpy(weights)[trace.input_ids].sum(-1)
        return [int(t > 0) for t in total]

    try:
        methods = ["oracle", *(f"oracle(noise={noise})" for noise in NOISE)]
        return whence.evaluate(ex, texts(60), methods, METRICS, progress=False)
    finally:
        del registry.METHODS["oracle"]


@pytest.mark.parametrize("metric", METRICS)
def test_the_truth_is_best_and_random_is_worst(report: whence.Report, metric: str) -> None:
    order = report.rank(metric)
    assert order[0] == "oracle"
    assert order[-1] == "random"


def test_ranks_over_all_metrics(report: whence.Report) -> None:
    ranked = report.rank()
    assert ranked[0] == "oracle"
    assert ranked[-1] == "random"
    assert report.figures["aopc:paper"]["oracle"].best
    assert report.figures["aopc:paper"]["random"].p < 0.05
