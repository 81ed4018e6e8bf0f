"""Calls of a tokenizer, one thread at a time: how much it truncates is a setting of the tokenizer, which every call writes."""

from __future__ import annotations

import threading
import weakref
from typing import Any

_LOCKS: weakref.WeakKeyDictionary[Any, threading.RLock] = weakref.WeakKeyDictionary()
_GUARD = threading.Lock()


def tokenize(tokenizer: Any, *texts: Any, **options: Any) -> Any:
    """What a tokenizer returns for texts. Without the lock a call is cut off by the `max_length` of another thread's."""
    with lock_of_tokenizer(tokenizer):
        return tokenizer(*texts, **options)


def lock_of_tokenizer(tokenizer: Any) -> threading.RLock:
    with _GUARD:
        return _LOCKS.setdefault(tokenizer, threading.RLock())
