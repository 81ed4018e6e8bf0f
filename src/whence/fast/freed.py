"""Memory that long-running work has freed."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

SLACK = 16 << 20  # bytes


class Freed:
    """Memory that was freed and is still this process's: glibc keeps it in pieces, and batches of ever other shapes would pile
    them up. It goes back to the system when more is held than any batch has taken by itself, not after every batch: the next
    one must get it anew, which costs a tenth of its time.
    """

    def __init__(self, slack: int = SLACK) -> None:
        self.slack = slack
        self.most = 0  # that was held after one batch, of those that began with nothing piled up
        self.fresh = True  # nothing has piled up: memory went back after the last batch

    def give_back(self) -> None:
        with suppress(OSError, AttributeError):  # other systems have no such call, and no such habit
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        self.fresh = True

    def give_back_if_grown(self) -> None:
        """To be asked after every batch."""
        held = resident()
        if self.fresh:
            self.most, self.fresh = max(self.most, held), False
        elif held > self.most + self.slack:
            self.give_back()


def resident() -> int:
    """Bytes of memory that this process holds; 0 where nobody says."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
