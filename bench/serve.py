"""How a server stands up to a crowd: 32 clients × 50 requests on loopback, packed into batches and one by one.

    python -m bench.serve                      # both, on the model `sentiment`
    python -m bench.serve --clients 8 --requests 20 --method gae

Every request has a text of its own, so nothing is answered from another's work. One round warms the server up before its
memory is noted. The server and its clients share this machine's cores, as they do when somebody tries it.

2,000 requests made up from the OpenAPI schema: WHENCE_SCHEMATHESIS=200 pytest tests/serve/test_errors.py -k schema -s
"""

from __future__ import annotations

import argparse
import asyncio
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import httpx

from whence.models import zoo


@dataclass(frozen=True)
class Load:
    """What one round of requests showed."""

    statuses: Counter[int]
    seconds: float
    latencies: list[float]

    @property
    def throughput(self) -> float:
        return self.statuses.total() / self.seconds

    def percentile(self, share: int) -> float:
        return statistics.quantiles(self.latencies, n=100)[share - 1]


@dataclass(frozen=True)
class Measured:
    load: Load
    warm_mb: float
    end_mb: float


def texts() -> list[str]:
    return [sample["text"] for sample in zoo.samples("sentiment")]


async def crowd(url: str, clients: int, requests: int, method: str, turn: int) -> Load:
    """Clients that each wait for an answer before they ask again."""
    known = texts()
    statuses: Counter[int] = Counter()
    latencies: list[float] = []

    async def one(number: int) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=120) as client:
            for k in range(requests):
                text = f"{known[(number * requests + k) % len(known)]} {turn} {number} {k}"
                begun = time.perf_counter()
                reply = await client.post("/api/explain", json={"text": text, "method": method})
                latencies.append(time.perf_counter() - begun)
                statuses[reply.status_code] += 1

    begun = time.perf_counter()
    await asyncio.gather(*(one(i) for i in range(clients)))
    return Load(statuses, time.perf_counter() - begun, latencies)


def memory_of(process: int) -> float:
    """Resident megabytes."""
    found = re.search(r"VmRSS:\s*(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def rested(process: int) -> float:
    """Memory of a server that nobody asks: what a batch has freed is given back by then."""
    time.sleep(1)
    return memory_of(process)


def measure(clients: int, requests: int, method: str, max_batch: int) -> Measured:
    """A server of its own, a round to warm it up, and the round that counts."""
    command = [sys.executable, "-m", "whence", "serve", "--port", "0", "--model", "sentiment"]
    command += ["--max-batch", str(max_batch)]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    try:
        found = re.search(r"at (http://[^/]+)/", running.stderr.readline())
        assert found is not None
        drain = subprocess.Popen(["cat"], stdin=running.stderr, stdout=subprocess.DEVNULL)  # its log must not fill up
        httpx.get(f"{found[1]}/api/models", timeout=120)
        asyncio.run(crowd(found[1], clients, max(2, requests // 5), method, 0))
        warm = rested(running.pid)
        load = asyncio.run(crowd(found[1], clients, requests, method, 1))
        return Measured(load, warm, rested(running.pid))
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(20)
        drain.wait(20)


def report(title: str, one: Measured) -> None:
    load = one.load
    print(
        f"{title:14s} {load.throughput:7.1f} requests/s   p50 {load.percentile(50) * 1000:6.0f} ms   "
        f"p95 {load.percentile(95) * 1000:6.0f} ms   statuses {dict(load.statuses)}   "
        f"memory {one.warm_mb:.0f} → {one.end_mb:.0f} MB ({one.end_mb - one.warm_mb:+.0f})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--method", default="attnlrp")
    given = parser.parse_args()
    print(f"{given.clients} clients × {given.requests} requests, {given.method}")
    packed = measure(given.clients, given.requests, given.method, 32)
    report("packed", packed)
    alone = measure(given.clients, given.requests, given.method, 1)
    report("one by one", alone)
    print(f"packed / one by one: {packed.load.throughput / alone.load.throughput:.2f}×")


if __name__ == "__main__":
    main()
