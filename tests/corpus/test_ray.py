"""A real cluster of several raylets on this machine: an actor is killed, then a whole node, and the dataset is the same."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whence.corpus
from tests.corpus.common import METHODS, checkpoint, made, shards, start, texts

pytest.importorskip("ray")

ACTOR = "ray::Maker"  # what Ray calls the processes that hold a model


def children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == parent:
                found.append(int(entry.name))
    return found


def actors(node: Any) -> list[int]:
    """The processes on a node that make shards."""
    raylet = node.all_processes["raylet"][0].process.pid
    named = []
    for pid in children(raylet):
        try:
            name = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if ACTOR in name:
            named.append(pid)
    return named


def until(true: Callable[[], Any], process: Any, seconds: float = 180.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := true()):
        assert process.poll() is None, process.communicate()[1][-3000:]
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)
    return found


def of_ray() -> set[int]:
    """Every process of Ray's on this machine."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"ray" in (entry / "cmdline").read_bytes().split(b"\0")[0].lower():
                found.add(int(entry.name))
        except OSError:
            continue
    return found


STARTS_A_CLUSTER = pytest.mark.skipif(
    "WHENCE_TEST_RAY" not in os.environ, reason="starts a cluster: WHENCE_TEST_RAY=1 asks for it"
)
READS_PROC = pytest.mark.skipif(not Path("/proc").exists(), reason="reads /proc")


@STARTS_A_CLUSTER
@READS_PROC
def test_a_cluster_of_the_runs_own_leaves_nothing_behind(tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "model")
    data = tmp_path / "texts.jsonl"
    data.write_text("\n".join(json.dumps({"text": t}) for t in texts(200)), encoding="utf-8")
    alone, together = tmp_path / "alone", tmp_path / "together"
    settings: dict[str, Any] = {"shard_rows": 50, "batch_tokens": 128, "threads": 1, "progress": False}
    whence.corpus.run(data, alone, model, METHODS, **settings)
    before = of_ray()
    command: list[object] = [data, "--output", together, "--model", model, "--shard-rows", 50, "--batch-tokens", 128]
    command += ["--threads", 1, "--engine", "ray", "--workers", 1, *(w for m in METHODS for w in ("--method", m))]
    process = start(*command)
    until(lambda: of_ray() - before, process)
    said, complained = process.communicate(timeout=240)
    assert process.returncode == 0, complained[-3000:]
    assert "200 rows in 4 shards" in said
    assert shards(together) == shards(alone)
    assert of_ray() <= before


@STARTS_A_CLUSTER
@READS_PROC
def test_an_actor_and_a_node_die(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    model = checkpoint(tmp_path / "model")
    data = tmp_path / "texts.jsonl"
    data.write_text("\n".join(json.dumps({"text": t}) for t in [*texts(2000), ""]), encoding="utf-8")
    alone, together = tmp_path / "alone", tmp_path / "together"
    settings: dict[str, Any] = {"shard_rows": 10, "batch_tokens": 128, "threads": 1, "progress": False}
    whence.corpus.run(data, alone, model, METHODS, **settings)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    process = None
    try:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(3)]
        command: list[object] = [
            data,
            "--output",
            together,
            "--model",
            model,
            "--shard-rows",
            10,
            "--batch-tokens",
            128,
        ]
        command += ["--threads", 1, "--engine", "ray", "--address", cluster.address, "--workers", 2]
        command += [word for m in METHODS for word in ("--method", m)]
        process = start(*command)
        until(lambda: made(together) >= 3, process)
        busy = until(lambda: [n for n in nodes if actors(n)], process)
        os.kill(actors(busy[0])[0], signal.SIGKILL)
        after = made(together)
        until(lambda: made(together) >= after + 3, process)
        busy = until(lambda: [n for n in nodes if actors(n)], process)
        assert made(together) < made(alone), "the run was over before a node was killed"
        cluster.remove_node(busy[-1], allow_graceful=False)
        said, complained = process.communicate(timeout=240)
        assert process.returncode == 3, complained[-3000:]
        assert "2,001 rows in 201 shards" in said
        assert shards(together) == shards(alone)
    finally:
        if process is not None and process.poll() is None:
            process.kill()
            process.communicate()
        cluster.shutdown()
