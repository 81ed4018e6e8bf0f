"""Metrics: small pure functions from scores (and the model's answers to perturbed rows) to one number per text."""

from whence.metrics import erasure, agreement, overlap  # noqa: I001 (the order of whence.metrics())
from whence.metrics.case import ACTIONS, Answers, Case, Measured, Steps

__all__ = ["ACTIONS", "Answers", "Case", "Measured", "Steps", "agreement", "erasure", "overlap"]
