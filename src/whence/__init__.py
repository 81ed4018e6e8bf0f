"""whence: which input tokens made a transformer language model decide as it did, and how far to trust the answer.

>>> import whence
>>> ex = whence.load("sentiment")
>>> e = ex.explain("a charming and often affecting journey", method="attcat")
>>> e.target, e.top(1)[0].text
('positive', 'charming')
"""

import gc

# Importing torch and transformers makes millions of objects and no garbage: collecting in between costs a second.
_collecting = gc.isenabled()
gc.disable()

import whence.methods  # noqa: E402  (registers the methods)
import whence.metrics  # noqa: E402, F401  (registers the metrics)
from whence.errors import InputError, ModelError, NotSupported, UnknownName, WhenceError  # noqa: E402
from whence.evaluate import Report, evaluate  # noqa: E402
from whence.explainer import Explainer  # noqa: E402
from whence.explanation import Explanation, Word  # noqa: E402
from whence.generation import Generation  # noqa: E402
from whence.load import load, models  # noqa: E402
from whence.registry import Attribution, method, methods, metric, metrics  # noqa: E402
from whence.tasks import Prediction  # noqa: E402
from whence.trace import Trace  # noqa: E402
from whence.version import __version__  # noqa: E402

if _collecting:
    gc.freeze()  # what was imported stays: no need to look through it again
    gc.enable()

__all__ = [
    "Attribution",
    "Explainer",
    "Explanation",
    "Generation",
    "InputError",
    "ModelError",
    "NotSupported",
    "Prediction",
    "Report",
    "Trace",
    "UnknownName",
    "WhenceError",
    "Word",
    "__version__",
    "evaluate",
    "load",
    "method",
    "methods",
    "metric",
    "metrics",
    "models",
]
