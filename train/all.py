"""Make every embedded model on one GPU, in two commands of at most ten minutes each.

    python -m train.all base     --data .train-payload/base     --out OUT --seconds 540 --parts PARTS
    python -m train.all adapters --data .train-payload/adapters --out OUT --seconds 480 --parts PARTS
    python -m train.all join PARTS --out OUT

`base` trains the base and the causal model side by side. `adapters` trains several adapters a task, all at once, and
keeps for each task the one that does best on the rows held out of its training table. What a job wrote stays, whether
or not another fails. ``--parts`` also writes the results as one tar in files of at most 15 MB, which `join` unpacks.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.common import Log

PART = 15_000_000
# learning rates to try for each task; the seed is the number of the try
TRIES = {
    "sentiment": (6e-4, 3.6e-4, 9e-4),
    "topics": (6e-4, 4e-4),
    "nli": (1.2e-3, 8e-4),
    "qa": (8e-4, 4.8e-4, 1.2e-3),
}


@dataclass
class Job:
    """One training process."""

    name: str
    command: list[str]


def run_together(jobs: list[Job], logs: Path, seconds: float, log: Log) -> None:
    """Run the jobs at once, print and keep what they say; one that outlives ``seconds`` is stopped."""
    logs.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + seconds
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "true",
    }
    running = []
    for job in jobs:
        process = subprocess.Popen(
            job.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        thread = threading.Thread(target=copy_lines, args=(process, logs / f"{job.name}.log"), daemon=True)
        thread.start()
        running.append((job, process, thread))
    for job, process, thread in running:
        try:
            code = process.wait(max(0.1, deadline - time.monotonic()))
            log(f"{job.name} ended with {code}")
        except subprocess.TimeoutExpired:
            process.kill()
            log(f"{job.name} was stopped: out of time")
        thread.join(5)


def copy_lines(process: subprocess.Popen[str], file: Path) -> None:
    assert process.stdout is not None
    with file.open("w", encoding="utf-8") as out:
        for line in process.stdout:
            out.write(line)
            out.flush()
            print(line, end="", flush=True)


def script(name: str, *arguments: Any) -> list[str]:
    return [sys.executable, "-m", f"train.{name}", *map(str, arguments)]


def base_jobs(options: argparse.Namespace) -> list[Job]:
    shared = ["--data", options.data, "--seed", options.seed, *limit(options)]
    causal = 0.45 * options.seconds  # the small model is done early and leaves the GPU to the base
    return [
        Job("base", script("masked_lm", *shared, "--out", options.out / "base", "--seconds", options.seconds)),
        Job("causal-lm", script("causal_lm", *shared, "--out", options.out / "causal-lm", "--seconds", causal)),
    ]


def adapter_jobs(options: argparse.Namespace) -> list[Job]:
    base = options.base or options.data / "base"
    jobs = []
    for task in options.tasks:
        for i, rate in enumerate(TRIES[task][: options.tries]):
            words = ["--data", options.data, "--base", base, "--seed", options.seed + i, *limit(options)]
            words += ["--seconds", options.seconds, "--rate", rate]
            words += ["--out", options.out / "tries" / f"{task}-{i}"]
            name = ["question_answering"] if task == "qa" else ["classify", task]
            jobs.append(Job(f"{task}-{i}", script(*name, *words)))
    return jobs


def limit(options: argparse.Namespace) -> list[Any]:
    return [] if options.limit is None else ["--limit", options.limit]


def keep_best(out: Path, log: Log) -> None:
    """For each task, the try with the best selection score becomes its adapter; its figures are kept beside."""
    for task in TRIES:
        done = sorted((out / "tries").glob(f"{task}-*/training.json"))
        if not done:
            log(f"{task}: no try was finished")
            continue
        figures = {f: json.loads(f.read_text(encoding="utf-8")) for f in done}
        best = max(done, key=lambda f: (figures[f]["selection"], f.parent.name))
        target = out / "adapters" / task
        shutil.copytree(best.parent, target, dirs_exist_ok=True)
        (target / "training.json").unlink()
        (out / "figures").mkdir(exist_ok=True)
        table = {f.parent.name: figures[f] for f in done} | {"kept": best.parent.name}
        (out / "figures" / f"{task}.json").write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
        log(f"{task}: kept {best.parent.name}, selection {figures[best]['selection']:.4f}")


def write_parts(out: Path, parts: Path, log: Log) -> None:
    """Everything but the tries as one tar, in numbered files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for item in sorted(out.iterdir()):
            if item.name != "tries":
                tar.add(item, item.name)
    whole = buffer.getvalue()
    parts.mkdir(parents=True, exist_ok=True)
    for number, i in enumerate(range(0, len(whole), PART)):
        (parts / f"zoo.tar.{number:02d}").write_bytes(whole[i : i + PART])
    log(f"{len(whole) / 1e6:.1f} MB in {parts}")


def join_parts(parts: Path, out: Path) -> None:
    whole = b"".join(file.read_bytes() for file in sorted(parts.glob("zoo.tar.*")))
    out.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        tar.extractall(out, filter="data")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="what", required=True)
    for name in ("base", "adapters"):
        command = commands.add_parser(name)
        command.add_argument("--data", type=Path, required=True, help="the folder that `train.pack` made")
        command.add_argument("--out", type=Path, required=True)
        command.add_argument("--parts", type=Path, help="write the results here too, as files of at most 15 MB")
        command.add_argument("--seconds", type=float, required=True, help="time for all of it")
        command.add_argument("--seed", type=int, default=0)
        command.add_argument("--limit", type=int, help="rows of each table to read: for a smoke test")
    command.add_argument("--base", type=Path, help="the trained base; else DATA/base")
    command.add_argument("--tasks", nargs="+", choices=list(TRIES), default=list(TRIES))
    command.add_argument("--tries", type=int, default=3, help="at most so many adapters a task")
    command = commands.add_parser("join")
    command.add_argument("parts", type=Path)
    command.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()

    if options.what == "join":
        join_parts(options.parts, options.out)
        return
    log = Log("all")
    jobs = base_jobs(options) if options.what == "base" else adapter_jobs(options)
    run_together(jobs, options.out / "logs", options.seconds + 25, log)
    if options.what == "adapters":
        keep_best(options.out, log)
    if options.parts:
        write_parts(options.out, options.parts, log)


if __name__ == "__main__":
    main()
