"""The version, in one place, and those of what whence stands on."""

import platform
from importlib import metadata

__version__ = "0.1.0"
NEEDED = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", "typer", "rich")


def versions() -> dict[str, str]:
    """whence, Python, and the packages that decide what whence computes.

    >>> list(versions())[:3]
    ['whence', 'python', 'torch']
    """
    return {"whence": __version__, "python": platform.python_version()} | {name: version_of(name) for name in NEEDED}


def version_of(package: str) -> str:
    """
    >>> version_of("no-such-package")
    'missing'
    """
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"
