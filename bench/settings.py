"""What one run of the benchmark is asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

PEERS = ("captum", "inseq", "lxt", "interpreto", "shap", "lime")
DTYPES = ("float32", "tf32", "bfloat16")
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True)
class Settings:
    """Options of `python -m bench`, as every suite gets them."""

    device: str = "cpu"
    dtype: str | None = None  # one of DTYPES; None: float32, and all three where a suite compares them
    peers: tuple[str, ...] = PEERS
    turns: int | None = None  # None: the suite's own number
    threads: int = 2
    clock: str = "wall"  # or "cpu": time of this process alone, for a machine that others use (and one thread)
    quick: bool = False  # tiny models and few rows: shows that everything runs, measures nothing worth keeping
    data: Path | None = None  # a folder with sst2_dev (.parquet, .jsonl or .csv)

    @property
    def cuda(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def precision(self) -> str:
        return self.dtype or "float32"

    def for_job(self) -> dict[str, Any]:
        """What a peer's job (bench.peers) inherits."""
        return {"device": self.device, "precision": self.precision, "threads": self.threads, "clock": self.clock}

    def with_dtype(self, dtype: str) -> Settings:
        return replace(self, dtype=dtype)

    def turns_or(self, usual: int) -> int:
        return self.turns if self.turns is not None else min(usual, 1) if self.quick else usual

    def where(self) -> str:
        """The end of a table's title."""
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        parts = [self.precision, self.device if self.cuda else threads]
        parts += ["CPU time"] if self.clock == "cpu" else []
        return ", ".join([*parts, *(["quick"] if self.quick else [])])


@contextmanager
def multiplying(precision: str) -> Iterator[None]:
    """tf32 lets matrix products round their operands to 10 bits; everything else multiplies in full."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def weights_dtype(precision: str) -> torch.dtype:
    return torch.bfloat16 if precision == "bfloat16" else torch.float32
