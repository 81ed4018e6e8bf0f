"""Every method on CUDA against the CPU, on small models of several architectures: fp32 and bf16, batched and padded.

    python -m bench.cuda_check

Prints the worst difference per method (as a share of the largest score) and exits with 1 if fp32 is off by more than 1e-3.
"""

from __future__ import annotations

import copy
import json
import os
import sys

import numpy as np
import torch

import whence
from tests import architectures
from whence.registry import all_methods

TEXTS = ["the film was not charming , but funny !", "good", "a slow and very long story . the music is lovely"]
ARCHITECTURES = ("bert", "roberta", "distilbert", "gpt2", "llama")


def options_for(name: str, model: torch.nn.Module) -> dict[str, object]:
    if name == "mask-lrp":
        return {"head_mask": np.ones((model.config.num_hidden_layers, model.config.num_attention_heads))}
    if name.startswith("decoded"):
        torch.manual_seed(1)
        head = torch.nn.Linear(model.config.hidden_size, model.config.vocab_size).to(model.device, model.dtype)
        return {"lm_head": head}
    return {}


def main() -> int:
    torch.backends.cuda.matmul.allow_tf32 = False
    worst: dict[str, dict[str, float]] = {}
    for architecture in ARCHITECTURES:
        cpu = architectures.build(architecture, torch.float32)
        reference = whence.load(cpu, architectures.tokenizer())
        for dtype in (torch.float32, torch.bfloat16):
            gpu = whence.load(copy.deepcopy(cpu).to("cuda", dtype), architectures.tokenizer())
            for method in all_methods():
                share = 0.0
                try:
                    expected = reference.explain(TEXTS, method.name, 1, **options_for(method.name, cpu))
                    found = gpu.explain(TEXTS, method.name, 1, **options_for(method.name, gpu.model))
                    largest = max(float(np.abs(e.scores).max()) for e in expected) or 1.0
                    share = (
                        max(float(np.abs(a.scores - b.scores).max()) for a, b in zip(expected, found, strict=True))
                        / largest
                    )
                except Exception as error:
                    print(f"{architecture} {dtype} {method.name}: {type(error).__name__}: {error}"[:300])
                    share = float("inf")
                row = worst.setdefault(method.name, {})
                key = str(dtype).removeprefix("torch.")
                row[key] = max(row.get(key, 0.0), share)
    for name, row in worst.items():
        print(f"{name:20s} fp32 {row['float32']:.1e}   bf16 {row['bfloat16']:.1e}")
    if "OUT" in os.environ:
        with open(os.path.join(os.environ["OUT"], "cuda_check.json"), "w") as file:
            json.dump(worst, file, indent=1)
    return int(max(row["float32"] for row in worst.values()) > 1e-3)


if __name__ == "__main__":
    sys.exit(main())
