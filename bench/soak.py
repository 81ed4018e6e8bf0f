"""Many explanations in one process: does memory grow? `python -m bench.soak --explains 20000`.

Texts of changing length, methods of every way of running a model in turn. Memory is what Linux says is resident, after a garbage
collection and with freed pages given back; it is read at the end of every tenth of the run, after a first tenth to warm up.
Exit status 1 if the last reading is more than `--allowed` MB over the first one.

oneDNN, which torch multiplies with on a CPU, keeps what it compiled for each of the last 1,024 shapes, some 18 MB that a process comes to
hold sooner or later; here it keeps a few, so that what grows is growth.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import os
import random
import sys
import time
from collections.abc import Iterator
from itertools import cycle

os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "8")  # read when torch is first used

import torch

import whence
from bench.measure import memory_of_this_process
from tests import architectures

# (methods, options) in turn: traced, relevance, mixing, paths, perturbations
TURNS = (
    (["attcat", "gae", "gradient"], {}),
    (["attnlrp", "transatt"], {}),
    (["alti", "decoded-grad-cam"], {}),
    (["integrated-gradients"], {"steps": 3}),
    (["occlusion", "lime"], {"samples": 8}),
)


def texts(seed: int = 0) -> Iterator[list[str]]:
    """Batches of one to four texts of 1 to 30 words, for ever."""
    chance = random.Random(seed)
    words = [w for w in architectures.WORDS if not w.startswith("##")]
    while True:
        yield [" ".join(chance.choices(words, k=chance.randint(1, 30))) for _ in range(chance.randint(1, 4))]


def resident() -> float:
    """Megabytes of this process that nobody has given back."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return memory_of_this_process("VmRSS")


def soak(explainer: whence.Explainer, explains: int, readings: int = 10) -> list[float]:
    """Resident memory at the end of every part of the run: `readings` figures, of which the first closes the warm-up."""
    done, found = 0, []
    turns, given = cycle(TURNS), texts()
    while len(found) < readings:
        while done < explains * (len(found) + 1) / readings:
            batch, (methods, options) = next(given), next(turns)
            explainer.explain(batch, methods, progress=False, **options)
            done += len(batch) * len(methods)
        found.append(resident())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--explains", type=int, default=20000)
    parser.add_argument("--allowed", type=float, default=8.0, help="MB of growth after the first tenth")
    parser.add_argument("--model", default=None, help="a name for whence.load; default: a tiny model made here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.model is None:
        masked = architectures.build("bert", torch.float32, task="masked-lm")
        live = architectures.build("bert", torch.float32)
        explainer = whence.load(live, architectures.tokenizer(), lm_head=masked)
    else:
        explainer = whence.load(arguments.model)
    begun = time.perf_counter()
    readings = soak(explainer, arguments.explains)
    seconds = time.perf_counter() - begun
    for tenth, megabytes in enumerate(readings, start=1):
        print(
            f"{tenth * arguments.explains // 10:>7} explanations  {megabytes:8.1f} MB  {megabytes - readings[0]:+6.1f}"
        )
    print(f"{seconds:.0f} s, {1000 * seconds / arguments.explains:.1f} ms each")
    if readings[-1] - readings[0] > arguments.allowed:
        sys.exit(f"memory grew by {readings[-1] - readings[0]:.1f} MB")


if __name__ == "__main__":
    main()
