"""Timing and memory, the same way for every suite: ratios to the floor, measured in turns in one process."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification, PreTrainedModel

Run = Callable[[], object]


@dataclass
class Figure:
    """The best of several turns, and the most memory that any turn added."""

    seconds: float = float("inf")
    megabytes: float = 0.0


class PeakMemory:
    """The most resident memory above the start while the block runs, as Linux counts it; NaN elsewhere."""

    megabytes = float("nan")

    def __enter__(self) -> PeakMemory:
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)  # give back what was freed, or it would hide what is taken
            Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
            self._start = memory_of_this_process("VmRSS")
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self.megabytes = memory_of_this_process("VmHWM") - self._start


def memory_of_this_process(key: str) -> float:
    """A line of /proc/self/status, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1]) / 1024


def measure(runs: dict[str, Run], turns: int = 5) -> dict[str, Figure]:
    """Every run once per turn, in turn, so that what else the machine does hits all of them alike; minima count.

    A first turn, not timed, warms up and measures memory.
    """
    figures = {name: Figure() for name in runs}
    for name, run in runs.items():
        with PeakMemory() as memory:
            run()
        figures[name].megabytes = memory.megabytes
    for _ in range(turns):
        for name, run in runs.items():
            synchronize()
            start = time.perf_counter()
            run()
            synchronize()
            figures[name].seconds = min(figures[name].seconds, time.perf_counter() - start)
    return figures


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def print_table(title: str, figures: dict[str, Figure], floor: str) -> None:
    print(f"\n{title}")
    print(f"{'':32s}{'seconds':>10s}{'× floor':>10s}{'peak MB':>10s}")
    for name, figure in figures.items():
        ratio = figure.seconds / figures[floor].seconds
        print(f"{name:32s}{figure.seconds:10.3f}{ratio:10.2f}{figure.megabytes:10.0f}")


def bert_base(device: str = "cpu") -> PreTrainedModel:
    """A random model of BERT-base's shape, parameters frozen: 12 layers, 768 features, 12 heads, 30,522 words."""
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(num_labels=2, attn_implementation="sdpa"))
    return model.to(device).eval().requires_grad_(False)


def random_rows(rows: int, tokens: int, seed: int = 0) -> list[dict[str, list[int]]]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1000, 30_000, (rows, tokens), generator=generator)
    ids[:, 0], ids[:, -1] = 101, 102
    return [{"input_ids": row} for row in ids.tolist()]


def ids_of(rows: list[dict[str, list[int]]], device: torch.device) -> Tensor:
    return torch.tensor([row["input_ids"] for row in rows], device=device)


def floor(model: PreTrainedModel, rows: list[dict[str, list[int]]]) -> Run:
    """One batched forward and the backward to the word embeddings, with the model's fast attention."""
    ids = ids_of(rows, model.device)

    def run() -> Tensor:
        table = model.get_input_embeddings()
        x = table(ids).detach().requires_grad_(True)
        logits = model(inputs_embeds=x, attention_mask=torch.ones_like(ids)).logits
        return torch.autograd.grad(logits.amax(-1).sum(), x)[0]

    return run
