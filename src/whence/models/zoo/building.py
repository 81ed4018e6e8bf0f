"""Building models where other threads build models too.

transformers changes torch and its own classes while it builds a model, for every thread of the process: the default dtype, the
functions that fill weights, the one that ties them. Two threads that do so at once get each other's dtype and weights that are
never tied, and what the one puts back last is what the other had put there: models then come out wrong for good.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch.overrides import TorchFunctionMode

LOADING = threading.RLock()  # held by whoever makes a model by means of transformers

RANDOM_FILLS = {"normal_", "uniform_", "kaiming_uniform_"}  # of torch, of transformers around torch's, and of tensors


class NoRandomFills(TorchFunctionMode):
    """Within the block no weight is drawn at random, which takes most of the time of making a model whose weights are read from
    a file, and moves the caller's random numbers on. In this thread only: transformers' `no_init_weights` means all of them,
    and a model that another thread makes meanwhile is left with whatever was in memory."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", None) in RANDOM_FILLS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)
