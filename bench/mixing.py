"""Time and memory of the mixing and decoded methods against the plain forward of the same rows, on BERT-base's shape.

    PYTHONPATH=src python bench/mixing.py [--threads 2] [--repeats 7] [--clock wall|cpu] [--only TEXT]

Random weights, float32, CPU. Forward and method take turns, and the smallest of all repeats is kept for each (other programs on
the machine only ever add time); the ratio counts everything `explain` does, its own forward included. On a machine that others
use, wall-clock times of two threads mean little (each waits for the other at every step): take --threads 1 --clock cpu there.
Memory is the peak of a fresh process while it ran the method less that of one that ran the forward only (Linux).
Prints a table, asserts nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# name → method, options, tokens, rows, bar on time (× forward), bar on memory (MB over the forward's)
CASES: dict[str, tuple[str, dict[str, Any], int, int, float | None, float | None]] = {
    "alti n=512 x1": ("alti", {}, 512, 1, 3.5, 400),
    "alti n=128 x8": ("alti", {}, 128, 8, 3.0, None),
    "alti l2 n=512 x1": ("alti", {"norm": 2}, 512, 1, None, None),
    "alti ln2 n=512 x1": ("alti", {"ln2": True}, 512, 1, None, None),
    "norms n=512 x1": ("norms", {}, 512, 1, None, None),
    "globenc n=512 x1": ("globenc", {}, 512, 1, None, None),
    "value-zeroing n=32 x1": ("value-zeroing", {}, 32, 1, None, None),
    "decoded all layers n=128 x1": ("decoded-grad-cam", {"layer": "all"}, 128, 1, 6.0, None),
    "decoded one layer n=128 x1": ("decoded-grad-cam", {}, 128, 1, None, None),
    "decoded simple all layers n=128 x1": ("decoded-simple", {"layer": "all"}, 128, 1, None, None),
}


def prepare(case: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The plain forward and the explanation of the same rows."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

    import whence

    method, options, n, rows, _, _ = CASES[case]
    torch.manual_seed(0)
    config = BertConfig(num_labels=2)
    model = BertForSequenceClassification(config).eval()
    if method.startswith("decoded"):  # of a live language model whence keeps the head and nothing else
        options = {**options, "lm_head": BertForMaskedLM(BertConfig(num_hidden_layers=1)).eval()}
    ids = torch.randint(1000, 30000, (rows, n))
    mask = torch.ones_like(ids)
    inputs = [{"input_ids": row} for row in ids.tolist()]
    explainer = whence.load(model)

    def forward() -> Any:
        with torch.inference_mode():
            return model(input_ids=ids, attention_mask=mask)

    def explain() -> Any:
        return explainer.explain(inputs, method, progress=False, **options)

    return forward, explain


def seconds(run: Callable[[], Any], clock: Callable[[], float]) -> float:
    start = clock()
    run()
    return clock() - start


def peak_mb(case: str, what: str, threads: int) -> float:
    """Peak resident memory of a fresh process that runs `what` twice."""
    command = [sys.executable, __file__, "--child", case, what, "--threads", str(threads)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def child(case: str, what: str) -> None:
    forward, explain = prepare(case)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of building the model
    for _ in range(2):
        forward() if what == "forward" else explain()
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(int(peak.split()[1]) / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--child", nargs=2, metavar=("CASE", "WHAT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    import torch

    torch.set_num_threads(args.threads)
    if args.child:
        child(*args.child)
        return
    clock = time.perf_counter if args.clock == "wall" else time.process_time
    print(f"{args.threads} threads, {args.clock} time, smallest of {args.repeats}")
    print(f"{'case':36s} {'forward':>9s} {'method':>9s} {'ratio':>6s} {'bar':>5s} {'extra MB':>9s} {'bar':>5s}")
    for case, (_, _, _, _, time_bar, memory_bar) in CASES.items():
        if args.only not in case:
            continue
        forward, explain = prepare(case)
        forward(), explain()  # warm up
        pairs = [(seconds(forward, clock), seconds(explain, clock)) for _ in range(args.repeats)]
        plain, method = (min(times) for times in zip(*pairs, strict=True))
        extra = (
            ""
            if args.no_memory
            else f"{peak_mb(case, 'explain', args.threads) - peak_mb(case, 'forward', args.threads):.0f}"
        )
        print(
            f"{case:36s} {plain:8.3f}s {method:8.3f}s {method / plain:5.2f}x {time_bar or '':>5} {extra:>9s} {memory_bar or '':>5}",
            flush=True,
        )


if __name__ == "__main__":
    main()
