"""whence: which input tokens made a transformer language model decide as it did, and how far to trust the answer.

>>> import whence
>>> ex = whence.load("sentiment")
>>> e = ex.explain("a charming and often affecting journey", method="attcat")
>>> e.target, e.top(1)[0].text
('positive', 'charming')
"""

from whence import interrupts  # first, for Ctrl-C from now on

# isort: split
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from whence.version import __version__

if TYPE_CHECKING:
    from whence.attribution import Attribution
    from whence.errors import InputError, ModelError, NotSupported, UnknownName, WhenceError
    from whence.evaluate import Report, evaluate
    from whence.explainer import Explainer
    from whence.explanation import Explanation, Word
    from whence.generation import Generation
    from whence.load import load, models
    from whence.registry import method, methods, metric, metrics
    from whence.tasks import Prediction
    from whence.trace import Trace

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

# Where public names are defined. With torch and transformers that takes three seconds to import, so it waits until the first
# of them is asked for: `whence --help` asks for none, and a Ray cluster starts meanwhile.
_DEFINED = {
    "attribution": ("Attribution",),
    "errors": ("InputError", "ModelError", "NotSupported", "UnknownName", "WhenceError"),
    "explainer": ("Explainer",),
    "explanation": ("Explanation", "Word"),
    "generation": ("Generation",),
    "load": ("load", "models"),
    "evaluate": ("Report", "evaluate"),
    "registry": ("method", "methods", "metric", "metrics"),
    "tasks": ("Prediction",),
    "trace": ("Trace",),
}
_NAMES = frozenset(name for names in _DEFINED.values() for name in names)


class _Package(ModuleType):
    """The package itself: names are fetched when they are asked for, and a module never takes the place of a function that has
    its name (`whence.load`, `whence.methods`, …), though Python puts every module that it imports into its package."""

    def __getattr__(self, name: str) -> Any:
        if name in _NAMES:
            _fetch()
            return self.__dict__[name]
        if name.startswith("_") or find_spec(f"{__name__}.{name}") is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"{__name__}.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _NAMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


def _fetch() -> None:
    """Import everything public."""
    backends = import_module(f"{__name__}.backends")
    found = {name: getattr(import_module(f"{__name__}.{m}"), name) for m, names in _DEFINED.items() for name in names}
    backends.settle()
    interrupts.begin()
    sys.modules[__name__].__dict__.update(found)


sys.modules[__name__].__class__ = _Package
