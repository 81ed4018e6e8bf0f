"""Suites: each a module with `tables(settings, company)`, which yields tables as they are measured.

Another suite is another line here. `cpu` names those that a run without names takes on a CPU; the others are asked for by name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator

from bench.peers import Company
from bench.settings import Settings
from bench.table import Table

Suite = Callable[[Settings, Company], Iterator[Table]]

# name → module, what it measures
SUITES = {
    "single-pass": ("bench.suites.single_pass", "methods that need one forward and at most one backward"),
    "relevance": ("bench.suites.relevance", "relevance propagation"),
    "mixing": ("bench.suites.mixing", "ALTI and its kin, decoded saliency, against the plain forward"),
    "paths": ("bench.suites.paths", "integrated gradients and the other path methods"),
    "perturbation": ("bench.suites.perturbation", "occlusion, LIME, Shapley values"),
    "evaluation": ("bench.suites.evaluation", "the evaluation engine against bare forwards"),
    "host": ("bench.suites.host", "what Python does around the kernels"),
    "long": ("bench.suites.long", "attention-based methods on inputs of 512 to 4,096 tokens"),
    "scaling": ("bench.suites.scaling", "cost against tokens, rows, layers, vocabulary and number of methods"),
    "h200": ("bench.suites.h200", "what is promised on one H200"),
    "kernels": ("bench.suites.kernels", "the fused ALTI kernel against the blocked path (CUDA)"),
    "agreement": ("bench.suites.agreement", "scores on the device against the CPU, in float32, tf32 and bfloat16"),
}
CPU = ("single-pass", "relevance", "mixing", "paths", "perturbation", "evaluation", "long", "scaling")


def suite(name: str) -> Suite:
    found: Suite = importlib.import_module(SUITES[name][0]).tables
    return found
