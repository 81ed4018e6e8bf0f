"""Memory does not grow with the number of explanations: a short run of bench/soak.py, and what must not be kept alive."""

from __future__ import annotations

import gc
import sys

import pytest
import torch

import whence
from bench.soak import soak
from tests import architectures


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read as Linux tells it")
def test_memory_does_not_grow() -> None:
    masked = architectures.build("bert", torch.float32, task="masked-lm")
    explainer = whence.load(architectures.build("bert", torch.float32), architectures.tokenizer(), lm_head=masked)
    readings = soak(explainer, 600, readings=4)
    assert readings[-1] - readings[0] < 12  # MB; one kept graph of each batch would be over 100


def test_no_tensor_outlives_its_explanation() -> None:
    explainer = whence.load(architectures.model("bert", torch.float32), architectures.tokenizer())

    def tensors() -> int:
        gc.collect()
        return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())

    methods = ["attcat", "transatt", "alti", "integrated-gradients", "occlusion", "deeplift"]
    texts = ["a charming film", "the plot is slow"]
    explainer.explain(texts, methods)  # terms of a size that comes again are kept
    before = tensors()
    for _ in range(3):
        explainer.explain(texts, methods)
    assert tensors() <= before
