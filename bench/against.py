"""This code against another commit's, on one machine: `python -m bench single-pass mixing --against HEAD~1`.

Both run in turn, each in a process of its own with its own `bench`, and the best ratio to the floor of each row counts. Suites with a row
that is more than 8% worse are run once more; a row that is worse again fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.baseline import stored

ROOT = Path(__file__).parents[1]
TOLERANCE = 1.08
ROUNDS = {"single-pass": 5, "relevance": 5, "mixing": 5}  # others take longer, and vary less
USUAL_ROUNDS = 2

Key = tuple[str, str, str]  # suite, table, row
Ratios = dict[Key, float]


def compare(suites: Sequence[str], revision: str, options: Sequence[str]) -> int:
    """Measure suites here and at a revision in turn, print every row's two ratios, and return the exit status.

    Args:
        suites: names of suites.
        revision: a commit, as git names it.
        options: further options of `python -m bench` for both.
    """
    with checked_out(revision) as other:
        before, after = best_of_rounds(suites, other, options)
        worse = [key for key in before.keys() & after.keys() if after[key] > TOLERANCE * before[key]]
        if worse:
            again = sorted({suite for suite, _, _ in worse})
            print(f"\n{len(worse)} rows are over {TOLERANCE - 1:.0%} worse; once more: {', '.join(again)}", flush=True)
            second_before, second_after = best_of_rounds(again, other, options)
            worse = [key for key in worse if second_after[key] > TOLERANCE * second_before[key]]
            for key, ratio in second_before.items():
                before[key] = min(before.get(key, ratio), ratio)
            for key, ratio in second_after.items():
                after[key] = min(after.get(key, ratio), ratio)
    for key in sorted(before.keys() & after.keys()):
        suite, table, row = key
        mark = "  WORSE TWICE" if key in worse else ""
        print(f"{suite} | {table} | {row}: {before[key]:.2f} → {after[key]:.2f} ({after[key] / before[key]:.2f}){mark}")
    print(f"{len(before.keys() & after.keys())} ratios compared with {revision}, {len(worse)} worse twice")
    return int(bool(worse))


def best_of_rounds(suites: Sequence[str], other: Path, options: Sequence[str]) -> tuple[Ratios, Ratios]:
    """The best ratio of every row over the rounds: at the other revision, and here."""
    before: Ratios = {}
    after: Ratios = {}
    for suite in suites:
        for turn in range(ROUNDS.get(suite, USUAL_ROUNDS)):
            for tree, ratios in ((other, before), (ROOT, after)):
                for key, ratio in measured(tree, suite, options).items():
                    ratios[key] = min(ratios.get(key, ratio), ratio)
            print(f"{suite}: round {turn + 1} done", flush=True)
    return before, after


def measured(tree: Path, suite: str, options: Sequence[str]) -> Ratios:
    """One run of a suite by a tree's own code, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "measured.json"
        command = [sys.executable, "-m", "bench", suite, "--peers", "", "--json", str(file), *options]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree)])}
        run = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
        if not file.exists():
            raise SystemExit(f"{suite} did not run in {tree}:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
        return ratios_of(stored(file))


def ratios_of(suites: Mapping[str, Sequence[object]]) -> Ratios:
    """The ratio to the floor of every row of ours."""
    ratios: Ratios = {}
    for suite, tables in suites.items():
        for table in tables:
            for row in table.rows:  # type: ignore[attr-defined]
                if row.ratio and row.beside is None:
                    ratios[suite, table.title, row.name] = row.ratio  # type: ignore[attr-defined]
    return ratios


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """A work tree of another commit, for as long as the block lasts."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
