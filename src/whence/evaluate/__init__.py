"""Measure trust: methods × metrics × data → a Report; the method chosen for a model; checks of a method's sanity."""

import whence.fast.imports  # noqa: F401  (first: it imports torch at rest)
from whence.evaluate.check import Verdict, check
from whence.evaluate.recipe import Recipe
from whence.evaluate.report import Report
from whence.evaluate.run import evaluate
from whence.evaluate.tune import Tuned, tune

__all__ = ["Recipe", "Report", "Tuned", "Verdict", "check", "evaluate", "tune"]
