"""Freed memory goes back to the system when it has grown."""

import numpy as np
import pytest

from whence.fast import freed as memory


def test_memory_goes_back_once_more_is_held_than_a_batch_takes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    held, asked, given = [500, 480, 560, 565, 540, 600, 601, 490, 661, 500], [], []
    monkeypatch.setattr(memory, "resident", lambda: asked.append(1) or held[len(asked) - 1])
    freed = memory.Freed(slack=60)
    own = freed.give_back
    monkeypatch.setattr(freed, "give_back", lambda: (given.append(len(asked)), own()))
    for _ in held:
        freed.give_back_if_grown()
    assert given == [4, 7, 9], (
        "65 more than 500; 61 more than 540, the most that one batch left; less, as after it, is no measure"
    )


def test_what_is_resident_is_told() -> None:
    before = memory.resident()
    held = np.ones(8 << 20)  # 64 MB
    assert 60e6 < memory.resident() - before < 80e6
    del held
