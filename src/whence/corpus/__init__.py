"""Big runs: a corpus in, a sharded Parquet dataset of scores out, on this machine or on a Ray cluster.

>>> import whence.corpus
>>> whence.corpus.run.__name__
'run'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whence.corpus.runner import Summary, run
    from whence.corpus.saved import Explanations, Saved
    from whence.corpus.saved import open_run as open

__all__ = ["Explanations", "Saved", "Summary", "open", "run"]

# A command line connects to a cluster (`corpus.cluster`) before anything that needs torch is imported.
_DEFINED = {
    "Explanations": ("saved", "Explanations"),
    "Saved": ("saved", "Saved"),
    "Summary": ("runner", "Summary"),
    "open": ("saved", "open_run"),
    "run": ("runner", "run"),
}


def __getattr__(name: str) -> Any:
    if name not in _DEFINED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, original = _DEFINED[name]
    return getattr(import_module(f"{__name__}.{module}"), original)
