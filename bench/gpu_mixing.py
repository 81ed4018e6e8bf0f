"""The fused ALTI kernel against the blocked path on a CUDA machine: agreement, time, memory.

    PYTHONPATH=src OUT=. python3 bench/gpu_mixing.py

BERT-base's shape with random weights, float32, rows of 128 (8 at once), 512 and 2,048 tokens. Prints JSON and writes it to
$OUT/gpu_mixing.json; exits 1 where the two paths differ by more than 1e-4 of the largest distance or score.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

import whence

TOLERANCE = 1e-4
SHAPES = ((128, 8), (512, 1), (2048, 1))  # tokens, rows

distances = importlib.import_module("whence.methods.distances")
fused = importlib.import_module("whence.methods.mixing_triton").l1_fused


def milliseconds(run: Callable[[], Any], repeats: int = 10) -> float:
    """The smallest of several, after two to warm up (the first compiles)."""
    run(), run()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return round(min(times), 3)


def extra_mb(run: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return round((torch.cuda.max_memory_allocated() - before) / 2**20, 1)


def kernels(n: int, rows: int) -> dict[str, Any]:
    """One layer's distances alone, in each precision of the kernel."""
    attention = torch.randn(rows, 12, n, n, device="cuda").mul_(2).softmax(-1)
    vectors = torch.randn(rows, 12, n, 768, device="cuda").transpose(1, 2)
    goal = torch.randn(rows, n, 768, device="cuda")
    wanted = distances.l1_blocked(attention, vectors, goal)
    found: dict[str, Any] = {"blocked_ms": milliseconds(lambda: distances.l1_blocked(attention, vectors, goal), 3)}
    for precision in ("tf32x3", "ieee", "tf32"):
        gap = (fused(attention, vectors, goal, precision) - wanted).abs().max() / wanted.max()
        found[precision] = {
            "ms": milliseconds(lambda p=precision: fused(attention, vectors, goal, p)),
            "relative_difference": float(gap),
        }
    return found


def whole(n: int, rows: int) -> dict[str, Any]:
    """`alti` from ids to scores, with the kernel and without."""
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(num_labels=2, max_position_embeddings=2048)).eval().cuda()
    ids = torch.randint(1000, 30000, (rows, n), device="cuda")
    explainer, inputs = whence.load(model), [{"input_ids": row} for row in ids.tolist()]

    def forward() -> Any:
        with torch.inference_mode():
            return model(input_ids=ids, attention_mask=torch.ones_like(ids))

    def alti() -> Any:
        return explainer.explain(inputs, "alti", progress=False)

    found: dict[str, Any] = {"forward_ms": milliseconds(forward), "forward_mb": extra_mb(forward)}
    scores = {}
    for path, enabled in (("fused", True), ("blocked", False)):
        distances.has_triton = lambda enabled=enabled: enabled
        scores[path] = [e.scores for e in alti()]
        found[path] = {"ms": milliseconds(alti, 5), "mb": extra_mb(alti)}
    gaps = [abs(a - b).max() / abs(b).max() for a, b in zip(scores["fused"], scores["blocked"], strict=True)]
    found["scores_relative_difference"] = float(max(gaps))
    return found


def main() -> int:
    torch.backends.cuda.matmul.allow_tf32 = False  # the reference in full float32
    torch.manual_seed(0)
    report: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "shapes": {}}
    good = True
    for n, rows in SHAPES:
        layer, run = kernels(n, rows), whole(n, rows)
        report["shapes"][f"n={n} x{rows}"] = {"layer": layer, "alti": run}
        good &= layer["ieee"]["relative_difference"] <= TOLERANCE and run["scores_relative_difference"] <= TOLERANCE
        print(json.dumps({f"n={n} x{rows}": {"layer": layer, "alti": run}}), flush=True)
    report["agree"] = good
    print(json.dumps(report, indent=1))
    Path(os.environ.get("OUT", ".")).joinpath("gpu_mixing.json").write_text(json.dumps(report, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
