"""Timing and memory, the same way for every suite: ratios to the floor, measured in turns in one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil
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
    """The most resident memory above the start while the block runs, sampled every few milliseconds."""

    def __enter__(self) -> PeakMemory:
        self._process = psutil.Process()
        self._start = self.peak = self._process.memory_info().rss
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            self.peak = max(self.peak, self._process.memory_info().rss)

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def megabytes(self) -> float:
        return max(0, self.peak - self._start) / 1e6


def measure(runs: dict[str, Run], turns: int = 5) -> dict[str, Figure]:
    """Every run once per turn, in turn, so that what else the machine does hits all of them alike; minima count."""
    figures = {name: Figure() for name in runs}
    for run in runs.values():  # warm up
        run()
    for _ in range(turns):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            figures[name].seconds = min(figures[name].seconds, time.perf_counter() - start)
    for name, run in runs.items():
        with PeakMemory() as memory:
            run()
        figures[name].megabytes = memory.megabytes
    return figures


def print_table(title: str, figures: dict[str, Figure], floor: str) -> None:
    print(f"\n{title}")
    print(f"{'':32s}{'seconds':>10s}{'× floor':>10s}{'peak MB':>10s}")
    for name, figure in figures.items():
        ratio = figure.seconds / figures[floor].seconds
        print(f"{name:32s}{figure.seconds:10.3f}{ratio:10.2f}{figure.megabytes:10.0f}")


def bert_base(seed: int = 0) -> PreTrainedModel:
    """A random model of BERT-base's shape: 12 layers, 768 features, 12 heads, 30,522 words."""
    torch.manual_seed(seed)
    return BertForSequenceClassification(BertConfig(num_labels=2, attn_implementation="sdpa")).eval()


def random_rows(rows: int, tokens: int, seed: int = 0) -> list[dict[str, list[int]]]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1000, 30_000, (rows, tokens), generator=generator)
    ids[:, 0], ids[:, -1] = 101, 102
    return [{"input_ids": row} for row in ids.tolist()]


def floor(model: PreTrainedModel, ids: Tensor) -> Run:
    """One batched forward and the backward to the word embeddings, with the model's fast attention."""

    def run() -> Tensor:
        table = model.get_input_embeddings()
        x = table(ids).detach().requires_grad_(True)
        logits = model(inputs_embeds=x, attention_mask=torch.ones_like(ids)).logits
        return torch.autograd.grad(logits.amax(-1).sum(), x)[0]

    return run
