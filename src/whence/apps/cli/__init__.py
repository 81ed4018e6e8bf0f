"""The command line: `whence explain | compare | evaluate | tune | check | classes | corpus | report | heads | serve | doctor | methods | metrics | models`."""

from whence.apps.cli import classes as _classes  # noqa: F401  (registers the command)
from whence.apps.cli import compare as _compare  # noqa: F401
from whence.apps.cli import corpus as _corpus  # noqa: F401
from whence.apps.cli import doctor as _doctor  # noqa: F401
from whence.apps.cli import evaluate as _evaluate  # noqa: F401
from whence.apps.cli import heads as _heads  # noqa: F401
from whence.apps.cli import serve as _serve  # noqa: F401
from whence.apps.cli.main import app, main

__all__ = ["app", "main"]
