"""The command line: `whence explain | heads | methods | models`."""

from whence.cli import heads as _heads  # noqa: F401  (registers the command)
from whence.cli.main import app, main

__all__ = ["app", "main"]
