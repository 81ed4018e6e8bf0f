"""kill -9 at random moments, then the same command again: byte for byte what an uninterrupted run writes."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path

import whence.corpus
from tests.corpus.common import METHODS, checkpoint, made, shards, start, texts
from whence.corpus.sources.files import MANIFEST

KILLS = 10


def manifest_without_times(folder: Path) -> dict[str, object]:
    return {**json.loads((folder / MANIFEST).read_text(encoding="utf-8")), "runs": None}


def wait_for(folder: Path, count: int, process: object, seconds: float = 90.0) -> None:
    """Until the run has finished so many shards, or is over."""
    end = time.monotonic() + seconds
    while made(folder) < count and process.poll() is None:  # type: ignore[attr-defined]
        assert time.monotonic() < end, "the run makes no progress"
        time.sleep(0.01)


def test_killed_at_ten_random_moments(tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "model")
    rows = [*texts(1000), ""]
    data = tmp_path / "texts.jsonl"
    data.write_text("\n".join(json.dumps({"text": t, "n": i}) for i, t in enumerate(rows)), encoding="utf-8")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    plain = whence.corpus.run(
        data, whole, model, METHODS, shard_rows=4, batch_tokens=128, keep=["n"], threads=1, progress=False
    )
    assert (plain.rows, plain.errors, plain.shards) == (1001, 1, 251)
    command: list[object] = [data, "--output", cut, "--model", model, "--shard-rows", 4, "--batch-tokens", 128]
    command += ["--keep", "n", "--threads", 1]
    command += [word for m in METHODS for word in ("--method", m)]
    chance = random.Random(0)
    moments = []
    for _ in range(KILLS):
        process = start(*command)
        before = made(cut)
        wait_for(cut, before + chance.randint(1, 12), process)
        time.sleep(chance.random() * 0.03)  # anywhere between two shards
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "the run was over before it was killed"
        moments.append(made(cut))
        whole_bytes = shards(whole)
        assert all(whole_bytes[name] == own for name, own in shards(cut).items())  # whole or not at all
    assert moments == sorted(set(moments))  # each run did only what was missing, and something
    process = start(*command)
    said, complained = process.communicate()
    assert process.returncode == 3, complained  # one row in error, counted though a killed run may have met it
    assert "1,001 rows in 251 shards" in said
    assert "1 in error" in said
    assert shards(cut) == shards(whole)
    assert manifest_without_times(cut) == manifest_without_times(whole)
    assert not list(cut.glob(".*"))  # nothing half-written is left
