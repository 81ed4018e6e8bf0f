"""Maps (b, H, n, n) of every layer, made when they are looked at."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import overload
from weakref import WeakValueDictionary

import torch
from torch import Tensor

KEPT_BYTES = {"cpu": 1 << 30}  # of the maps of all layers that are kept; more than that are made anew each time
KEPT_SHARE = 0.25  # on other devices: of the memory that is free


class Maps(Sequence[Tensor]):
    """One tensor per layer. With `keep` all are kept once made; without, a map lives as long as somebody holds it, and is made
    anew when it is looked at after that: a method that goes through the layers once never needs more."""

    def __init__(self, make: Sequence[Callable[[], Tensor]], keep: bool) -> None:
        self._make = make
        self._kept: MutableMapping[int, Tensor] = {} if keep else WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._make)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> Maps: ...
    def __getitem__(self, index: int | slice) -> Tensor | Maps:
        if isinstance(index, slice):
            return Maps([lambda i=i: self[i] for i in range(*index.indices(len(self)))], keep=False)  # type: ignore[misc]
        at = range(len(self))[index]
        found = self._kept.get(at)
        if found is None:
            found = self._kept[at] = self._make[at]()
        return found


def fits(shape: Sequence[int], layers: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the maps of all layers may be kept."""
    wanted = layers * int(torch.Size(shape).numel()) * max(4, dtype.itemsize)
    if device.type == "cuda":
        return wanted <= KEPT_SHARE * torch.cuda.mem_get_info(device)[0]
    return wanted <= KEPT_BYTES.get(device.type, KEPT_BYTES["cpu"])
