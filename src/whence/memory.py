"""Memory that long-running work has freed."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def give_back() -> None:
    """Return freed memory to the system: glibc keeps it in pieces, and batches of ever other shapes would pile them up."""
    with suppress(OSError, AttributeError):  # other systems have no such call, and no such habit
        ctypes.CDLL("libc.so.6").malloc_trim(0)
