"""Fixtures shared by all tests."""

from __future__ import annotations

import os

# several test processes share two cores: more threads than that only get in each other's way
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from collections.abc import Iterator

import pytest
import torch
from transformers import PreTrainedModel

import whence
from tests import architectures
from whence import registry
from whence.evaluate.metrics import registry as metric_registry

torch.set_num_threads(1)
(
    registry.all_methods(),
    metric_registry.all_metrics(),
)  # registered before any test, so that what a test registers is told apart


@pytest.fixture(params=architectures.NAMES)
def architecture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def sentiment() -> whence.Explainer:
    return whence.load("sentiment")


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    """What a test registers is gone after it: no other test meets its methods and metrics."""
    tables = (registry.METHODS, metric_registry._METRICS)
    before = [dict(table) for table in tables]
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)


def process_wide() -> tuple[object, ...]:
    """What transformers changes for the whole process while it makes a model, and two threads at once leave changed."""
    return PreTrainedModel.init_weights, PreTrainedModel.tie_weights, torch.get_default_dtype()


AT_THE_START = process_wide()


@pytest.fixture(autouse=True)
def own_process() -> Iterator[None]:
    """The test that leaves models of others without weights is the one that fails, not those after it."""
    yield
    assert process_wide() == AT_THE_START
