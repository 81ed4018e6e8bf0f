"""Memory that long-running work has freed."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

SLACK = 32 << 20  # bytes


class Freed:
    """Memory that was freed and is still this process's: glibc keeps it in pieces, and batches of ever other shapes would pile
    them up. It goes back to the system when it has grown, not after every batch: the next one must get it anew, which costs a
    tenth of its time.
    """

    def __init__(self, slack: int = SLACK) -> None:
        self.slack, self.least = slack, 0  # the least that was held between two batches since memory went back

    def give_back(self) -> None:
        with suppress(OSError, AttributeError):  # other systems have no such call, and no such habit
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        self.least = 0

    def give_back_if_grown(self) -> None:
        """To be asked between two batches."""
        held = resident()
        self.least = min(held, self.least or held)
        if held > self.least + self.slack:
            self.give_back()


def resident() -> int:
    """Bytes of memory that this process holds; 0 where nobody says."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
