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

import whence
from tests import architectures
from whence import registry

torch.set_num_threads(1)


@pytest.fixture(params=architectures.NAMES)
def architecture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def sentiment() -> whence.Explainer:
    return whence.load("sentiment")


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    """What a test registers is gone after it: no other test meets its methods and metrics."""
    tables = (registry._METHODS, registry._METRICS)
    before = [dict(table) for table in tables]
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)
