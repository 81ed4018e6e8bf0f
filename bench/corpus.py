"""What a corpus run costs beyond the bare trace loop, and how much memory it takes on the way.

    python -m bench.corpus [--rows 50000] [--bare 5000] [--threads 2] [--ray [--address auto]]

Short texts are cut from the sample sentences of `sentiment`; six single-pass methods explain them. The bare trace loop is the
model and the methods alone, on rows that were tokenised and packed before the clock started; it runs on the first rows, before
and after the corpus run, so that what else the machine does hits both. With --ray the same rows go through one Ray actor, on a
cluster that is started and taken down for it, or on the one at --address.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

import whence
import whence.corpus
from bench.measure import memory_of_this_process
from whence.corpus.job import MAX_PADDING, SHARD_ROWS
from whence.inputs import pack
from whence.models import zoo
from whence.run.plan import Plan

METHODS = ("attcat", "gae", "rollout", "gradient", "grad-cam", "gradient-x-input")


def short_texts(count: int, seed: int = 0) -> list[str]:
    """Pieces of two to ten words of the sample sentences, in a fixed order."""
    words = [row["text"].split() for row in zoo.samples("sentiment")]
    chance = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        sentence = words[chance.integers(len(words))]
        length = int(chance.integers(2, 11))
        start = int(chance.integers(max(len(sentence) - length, 0) + 1))
        found.append(" ".join(sentence[start : start + length]))
    return found


def bare(explainer: whence.Explainer, texts: Sequence[str], batch_tokens: int) -> float:
    """Rows a second of the forward, the backward and the methods, and of nothing else."""
    ask = explainer.ask()
    rows = [explainer.encode(text, ask)[0] for text in texts]
    plan = Plan.of(METHODS, {})
    groups = pack([len(r) for r in rows], batch_tokens, explainer.max_pairs(plan), max_padding=MAX_PADDING)
    batches = [[rows[i] for i in group] for group in groups]
    start = time.perf_counter()
    for batch in batches:
        explainer._attribute(batch, [ask] * len(batch), plan, batch_tokens, False)
    return len(texts) / (time.perf_counter() - start)


class Memory(threading.Thread):
    """Resident memory over time."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: list[tuple[float, float]] = []  # (seconds, MB)
        self.over = threading.Event()

    def run(self) -> None:
        start = time.perf_counter()
        while not self.over.wait(0.25):
            self.seen.append((time.perf_counter() - start, memory_of_this_process("VmRSS")))

    def growth(self, after: float = 0.1) -> tuple[float, float]:
        """The most MB until `after` of the time, and how much more from then on: peaks, for memory comes and goes with every
        batch."""
        end = after * self.seen[-1][0]
        early = max(mb for seconds, mb in self.seen if seconds < end)
        return early, max(mb for seconds, mb in self.seen if seconds >= end) - early


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--bare", type=int, default=5_000, help="rows of the bare loop, before and after")
    parser.add_argument("--shard-rows", type=int, default=SHARD_ROWS)
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--address", help="with --ray: of a cluster that stands")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    texts = short_texts(options.rows)
    explainer = whence.load("sentiment")
    sample = texts[: options.bare]
    bare(explainer, sample[:500], options.batch_tokens)
    before = bare(explainer, sample, options.batch_tokens)
    settings = {"shard_rows": options.shard_rows, "batch_tokens": options.batch_tokens, "progress": False}
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory()
        memory.start()
        start = time.perf_counter()
        done = whence.corpus.run(texts, Path(folder) / "local", explainer, METHODS, **settings)
        here = time.perf_counter() - start
        memory.over.set()
        memory.join()
        size = sum(f.stat().st_size for f in (Path(folder) / "local").iterdir())
        after = bare(explainer, sample, options.batch_tokens)
        rate, floor = done.rows / done.seconds, (before + after) / 2
        at, growth = memory.growth()
        print(f"{done.rows:,} rows, {done.tokens / done.rows:.1f} tokens a row, {options.threads} threads")
        print(f"bare trace loop   {before:8.0f} rows/s before, {after:.0f} after ({len(sample):,} rows)")
        print(f"corpus run        {rate:8.0f} rows/s: {rate / floor:.1%} of the bare loop (wanted ≥ 85%)")
        print(
            f"memory            {at:8.0f} MB at most in the first 10% of the time, {growth:+.0f} MB at most from there (wanted < 100)"
        )
        print(f"padding           {done.profile.padding:8.1%} (wanted < 5%)")
        print(f"on disk           {size / done.rows:8.0f} bytes a row")
        for stage, seconds in done.profile.seconds.items():
            print(f"  {stage:16s}{seconds:8.1f} s of its thread, {done.rows / seconds:,.0f} rows/s")
        if options.ray:
            start = time.perf_counter()  # of the whole call: Ray starts before the run's own clock does
            whence.corpus.run(
                texts,
                Path(folder) / "ray",
                method=METHODS,
                engine="ray",
                address=options.address,
                workers=1,
                threads=options.threads,
                **settings,
            )
            there = time.perf_counter() - start
            print(
                f"ray, one actor    {done.rows / there:8.0f} rows/s: {there:.1f} s, {there / here - 1:+.1%} "
                f"over local's {here:.1f} (wanted < 15%)"
            )


if __name__ == "__main__":
    main()
