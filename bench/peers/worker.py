"""The other end of bench.peers: one library, its jobs made and timed as they are asked for.

Lines of JSON in: {"hello": true}, {"make": job} → {"number": i}, {"run": i} → {"seconds": …, "megabytes": …},
{"scores": i} → {"scores": …}. What goes wrong is answered as {"error": "…"}.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from importlib import metadata
from typing import Any

import torch

from bench import shapes
from bench.measure import take
from bench.peers import Job, methods_of
from bench.settings import multiplying

PACKAGES = {"captum": "captum.attr", "lime": "lime.lime_text"}  # what is imported, where it is not the package itself


def build(job: Job) -> Any:
    if job.model == "bert":
        return shapes.bert(job.shape, job.device, job.precision)
    return shapes.gpt2(job.shape, job.device, job.precision, lm=job.model == "gpt2-lm")


class Worker:
    def __init__(self, name: str) -> None:
        self.name = name
        self.runs: list[tuple[Callable[[], object], Job]] = []
        self.models: dict[str, Any] = {}

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        if "hello" in message:
            if (
                self.name != "lxt"
            ):  # its package imports models that transformers 5 no longer has; bench.peers.lxt goes past
                importlib.import_module(PACKAGES.get(self.name, self.name))
            return {"version": metadata.version(self.name)}
        if "make" in message:
            return {"number": self.make(Job.from_dict(message["make"]))}
        run, job = self.runs[message.get("run", message.get("scores"))]
        with multiplying(job.precision):
            if "scores" in message:
                return {"scores": torch.as_tensor(run()).tolist()}  # type: ignore[call-overload]
            return asdict(take(run, job.device, job.clock))

    def make(self, job: Job) -> int:
        torch.set_num_threads(job.threads)
        key = f"{job.model} {job.shape} {job.device} {job.precision}"
        if key not in self.models:
            self.models[key] = build(job)
        texts = shapes.random_rows(job.rows, job.tokens, job.shape.words)
        self.runs.append((methods_of(self.name)[job.model, job.method](job, self.models[key], texts), job))
        return len(self.runs) - 1


def main() -> None:
    with ExitStack() as stack:
        replies = stack.enter_context(os.fdopen(os.dup(1), "w"))
        os.dup2(2, 1)  # libraries print; replies have a way of their own
        worker = Worker(sys.argv[1])
        for line in sys.stdin:
            try:
                reply = worker.answer(json.loads(line))
            except Exception as error:
                reply = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
            print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
