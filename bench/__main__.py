"""Speed and memory against the floor and beside other libraries.

    python -m bench                                   # the CPU suites
    python -m bench single-pass relevance --turns 3   # some of them
    python -m bench h200 --device cuda                # what is promised on one H200
    python -m bench mixing --against HEAD~1           # this code and another commit's in turn

The floor is one batched forward + input-gradient backward of the same rows with the model's fast attention, or what the table says.
Runs take turns and the fastest turn of each counts. Peers run in processes of their own (`make bench-env` installs them). Prints
tables; asserts nothing on time, but exits 1 where one of our own runs fails, or where --baseline finds a ratio 20% worse.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

from bench.against import compare
from bench.baseline import add, in_common, regressions, stored
from bench.peers import Company
from bench.settings import CLOCKS, DTYPES, PEERS, Settings
from bench.suites import CPU, SUITES, suite
from bench.table import Table


def parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:14s}{about}" for name, (_, about) in SUITES.items())
    made = argparse.ArgumentParser(
        "python -m bench",
        description=f"{__doc__}\nSuites:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("suite", nargs="*", metavar="SUITE", help=f"one or more; by default {', '.join(CPU)}")
    made.add_argument("--device", default="cpu", help="cpu or cuda")
    made.add_argument("--dtype", choices=DTYPES, help="float32 by default, all three where a suite compares them")
    made.add_argument("--peers", default=",".join(PEERS), help="comma-separated; none with --peers ''")
    made.add_argument("--turns", type=int, help="how often each run is timed, the fastest counts; 0: once, cold")
    made.add_argument("--threads", type=int, default=torch.get_num_threads())
    made.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu, with one thread, on a machine that others use"
    )
    made.add_argument("--quick", action="store_true", help="tiny sizes: everything runs, nothing is worth keeping")
    made.add_argument("--data", type=Path, help="a folder with sst2_dev (.parquet, .jsonl or .csv), for h200")
    made.add_argument("--json", type=Path, help="add what is measured to this file")
    made.add_argument("--baseline", type=Path, help="compare with such a file; exit 1 if a ratio is 20%% worse")
    made.add_argument(
        "--against",
        metavar="REV",
        help="run another commit's code in turn with this; exit 1 if a ratio is 8%% worse twice",
    )
    made.add_argument("--figures", type=Path, help="draw tables that have an axis into this folder")
    made.add_argument(
        "--of", type=Path, metavar="JSON", help="with --figures: measure nothing, draw what such a file holds"
    )
    return made


def main(arguments: list[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    if given.of and given.figures:
        pictures(
            {name: tables for name, tables in stored(given.of).items() if name in (given.suite or SUITES)},
            given.figures,
        )
        return 0
    names = given.suite or list(CPU)
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        parser().error(f"unknown suite {unknown[0]!r}: choose from {', '.join(SUITES)}")
    if given.against:
        passed_on = ["--device", given.device, "--threads", str(given.threads), "--clock", given.clock]
        passed_on += ["--quick"] if given.quick else []
        passed_on += [] if given.turns is None else ["--turns", str(given.turns)]
        return compare(names, given.against, passed_on)
    peers = tuple(p for p in given.peers.split(",") if p)
    if wrong := [p for p in peers if p not in PEERS]:
        parser().error(f"unknown peer {wrong[0]!r}: choose from {', '.join(PEERS)}")
    torch.set_num_threads(given.threads)
    settings = Settings(
        device=given.device,
        dtype=given.dtype,
        peers=peers,
        turns=given.turns,
        threads=given.threads,
        clock=given.clock,
        quick=given.quick,
        data=given.data,
    )
    measured: dict[str, list[Table]] = {}
    with Company(settings) as company:
        for name in names:
            start = time.monotonic()
            measured[name] = []
            for table in suite(name)(settings, company):
                if settings.quick:
                    table.wanted_nothing()
                print(f"\n{table.text()}", flush=True)
                measured[name].append(table)
                if given.json:
                    add(given.json, {name: measured[name]}, settings)  # kept even if a later table is cut short
            print(f"\n{name}: {time.monotonic() - start:.0f} s", flush=True)
    if given.figures:
        pictures(measured, given.figures)
    return verdict(measured, stored(given.baseline) if given.baseline else {})


def pictures(measured: dict[str, list[Table]], folder: Path) -> None:
    from bench.figures import draw

    for file in draw(measured, folder):
        print(f"drew {file}")


def verdict(measured: dict[str, list[Table]], before: dict[str, list[Table]]) -> int:
    failed = [f"{table.title}: {row.name}: {row.note}" for tables in measured.values() for table in tables for row in table.rows if row.failed and row.beside is None]  # fmt: skip
    for line in failed:
        print(f"failed: {line}")
    worse = regressions(measured, before)
    if before:
        print(f"compared with the baseline: {in_common(measured, before)} ratios, {len(worse)} more than 20% worse")
    for line in worse:
        print(f"worse than the baseline: {line}")
    return int(bool(failed or worse))


if __name__ == "__main__":
    sys.exit(main())
