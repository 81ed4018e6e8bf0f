# ruff: noqa: F401, I001  (the order is the table's)
"""Metrics: small pure functions from scores (and the model's answers to perturbed rows) to one number per text."""

import whence.fast.imports
from whence.evaluate.metrics import erasure, agreement, overlap
from whence.evaluate.metrics.case import ACTIONS, Answers, Case, Measured, Steps

__all__ = ["ACTIONS", "Answers", "Case", "Measured", "Steps", "agreement", "erasure", "overlap"]
