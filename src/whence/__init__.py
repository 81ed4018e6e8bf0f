"""whence: which input tokens made a transformer language model decide as it did, and how far to trust the answer.

>>> import whence
>>> ex = whence.load("sentiment")
>>> e = ex.explain("a charming and often affecting journey", method="attcat")
>>> e.target, e.top(1)[0].text
('positive', 'charming')
"""

from whence.run import interrupts  # first, for Ctrl-C from now on

# isort: split
import sys
import warnings
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from types import ModuleType
from typing import TYPE_CHECKING, Any

from whence.version import __version__

if TYPE_CHECKING:
    from whence.errors import InputError, ModelError, NotSupported, UnknownName, WhenceError
    from whence.evaluate import Report, evaluate
    from whence.evaluate.metrics.registry import metric, metrics
    from whence.explainer import Explainer
    from whence.explanation import Explanation
    from whence.generation import Generation
    from whence.load import load, models
    from whence.registry import method, methods
    from whence.render.words import Word
    from whence.tasks import Prediction
    from whence.trace import Trace
    from whence.trace.attribution import Attribution

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
    "trace.attribution": ("Attribution",),
    "errors": ("InputError", "ModelError", "NotSupported", "UnknownName", "WhenceError"),
    "explainer": ("Explainer",),
    "explanation": ("Explanation",),
    "generation": ("Generation",),
    "load": ("load", "models"),
    "evaluate": ("Report", "evaluate"),
    "render.words": ("Word",),
    "registry": ("method", "methods"),
    "evaluate.metrics.registry": ("metric", "metrics"),
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
    imports = import_module(f"{__name__}.fast.imports")
    found = {name: getattr(import_module(f"{__name__}.{m}"), name) for m, names in _DEFINED.items() for name in names}
    imports.settle()
    interrupts.begin()
    sys.modules[__name__].__dict__.update(found)


# Modules that stood elsewhere before whence had its rooms: their old names work, and say the new ones.
_MOVED = {
    "attribution": "trace.attribution",
    "classes": "evaluate.classes",
    "cli": "apps.cli",
    "cluster": "corpus.cluster",
    "data": "corpus.sources",
    "doctor": "apps.doctor",
    "heads": "evaluate.heads",
    "metrics": "evaluate.metrics",
    "numbers": "inputs.numbers",
    "perturb": "run.perturb",
    "progress": "run.progress",
    "provenance": "run.provenance",
    "serve": "apps.serve",
    "table": "render.table",
    "zoo": "models.zoo",
}


class _OldNames(MetaPathFinder, Loader):
    """Imports a module by the name that it had before: `whence.zoo.catalogue` is `whence.models.zoo.catalogue`."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        first, dot, more = rest.partition(".")
        if package != __name__ or first not in _MOVED:
            return None
        return spec_from_loader(fullname, self, origin=f"{__name__}.{_MOVED[first]}{dot}{more}")

    def exec_module(self, module: ModuleType) -> None:
        old, new = module.__name__, str(module.__spec__.origin) if module.__spec__ else ""
        warnings.warn(f"{old} is {new} now: import that.", DeprecationWarning, stacklevel=2)
        sys.modules[old] = import_module(new)


sys.meta_path.append(_OldNames())
sys.modules[__name__].__class__ = _Package
