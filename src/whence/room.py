"""How much room there is: what a device has left, what attention takes of it, and how it says that there is none.

(What was used and is given back: `memory`.)"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedModel

from whence.errors import ModelError, NotSupported
from whence.models import uses_attention_interface
from whence.trace.attention import unseen

if TYPE_CHECKING:
    from whence.passes import ForwardPass

ATTENTION_BYTES = 1 << 30  # how much attention, gradients included, one batch may hold at a time …
ATTENTION_SHARE = 1 / 16  # … or on a GPU this share of the memory that is free, if it is more


def is_out_of_memory(error: BaseException) -> bool:
    """CUDA says so by type, the CPU allocator only by words."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "not enough memory" in str(error)


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be had on a device; None where nobody says."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        found = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"))
    except OSError:
        return None
    return int(found[1]) * 1024 if found and device.type == "cpu" else None


def check_attention_fits(per_pair: int, longest: int, device: torch.device) -> None:
    """Refuse a text whose attention alone, at `per_pair` bytes for every (query, key), is more than there is room for,
    before it takes the machine down."""
    wanted, free = per_pair * longest**2, free_memory(device)
    if free is not None and wanted > free:
        raise ModelError(
            f"the attention of a text of {longest} tokens takes about {wanted / 1e9:.0f} GB, and {free / 1e9:.0f} GB are free: "
            "shorten it, or use methods that keep none: gradient-x-input, gradient, simple, integrated-gradients, cat, "
            "grad-cam, attnlrp, occlusion."
        )


def attention_bytes(model: PreTrainedModel, passes: Sequence[ForwardPass]) -> int:
    """What every (query, key) pair of a batch needs: 0 if nobody looks at attention. One layer's maps with their gradient
    or relevance, their product and its parts; and a matrix per layer that the heads are averaged into. Models that hand
    out their maps themselves hold those of all layers."""
    if not any(p.looks_at_attention for p in passes):
        return 0
    wanted = {need for p in passes for need in p.needs if need.startswith(("attention", "blocks"))}
    config, own = model.config, model.config.get_text_config()
    layers, heads = (
        getattr(config, name, getattr(own, name, None)) for name in ("num_hidden_layers", "num_attention_heads")
    )
    if not isinstance(layers, int) or not isinstance(heads, int):
        raise NotSupported(unseen(model))
    maps = 2 + 2 * any(".grad" in need for need in wanted) + 2 * any(".relevance" in need for need in wanted)
    if not uses_attention_interface(model):
        maps *= layers
    itemsize = max(4, model.dtype.itemsize)
    return (maps * heads + 2 * layers) * itemsize


def pairs_that_fit(per_pair: int, device: torch.device) -> int | None:
    """How many (query, key) pairs of a batch fit into the attention budget at so many bytes each; None where they take none."""
    if not per_pair:
        return None
    free = free_memory(device) if device.type == "cuda" else None
    return max(ATTENTION_BYTES, int(ATTENTION_SHARE * (free or 0))) // per_pair
