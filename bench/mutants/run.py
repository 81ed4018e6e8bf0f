"""Run the tests against every change: `python -m bench.mutants.run mutants.json cover.json --output report.jsonl --jobs 2`.

Needs pytest and what the tests import, not mutmut. The slow imports (torch, transformers) happen once; every change gets a
fork of that process, which imports whence with the changed file in place of its own and runs the tests of the changed line,
quickest first, until one fails. A change survives if none does. Running out of time counts as failing, as in mutmut.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FIRST_ROUND_S = 15.0  # of tests that run the changed line …
SECOND_ROUND_S = 10.0  # … then of others that run the changed file
LONGEST_S = 8.0  # tests slower than this are left out where there are quicker ones
SLOW_IMPORTS = (
    "torch scipy.stats hypothesis pytest transformers transformers.masking_utils tokenizers captum.attr networkx "
    "transformers.models.auto.modeling_auto"
).split()
BROKEN = 70
# by pytest's exit status: all passed; one failed; a test module did not import, or a crash inside pytest. Others are our own fault.
OUTCOMES = {0: "survived", 1: "killed", 2: "killed", 3: "killed", 4: "killed"}
MODEL_TYPES = (
    "bert roberta xlm_roberta distilbert electra albert mpnet deberta_v2 modernbert gpt2 llama qwen2 mistral".split()
)


class Changed(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Imports one module from text instead of its file."""

    def __init__(self, file: Path, code: str) -> None:
        self.file, self.code = file, code
        self.module = ".".join(file.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.module:
            return None
        return importlib.util.spec_from_file_location(fullname, self.file, loader=self)

    def get_filename(self, fullname: str) -> str:
        return str(self.file)

    def get_data(self, path: str | bytes) -> bytes:
        return self.code.encode()


def apply(mutant: Mapping[str, Any]) -> str:
    """The changed file's text."""
    code = (ROOT / mutant["file"]).read_text(encoding="utf-8")
    return code[: mutant["start"]] + mutant["text"] + code[mutant["end"] :]


def shown(mutant: Mapping[str, Any]) -> str:
    """The changed lines, before and after."""
    old, new = (ROOT / mutant["file"]).read_text(encoding="utf-8"), apply(mutant)
    begin = old.rfind("\n", 0, mutant["start"]) + 1
    end = old.find("\n", mutant["end"])
    changed = new[begin : end + len(new) - len(old)]
    return "\n".join([*(f"- {s}" for s in old[begin:end].split("\n")), *(f"+ {s}" for s in changed.split("\n"))])


def tests_of(mutant: Mapping[str, Any], cover: Mapping[str, Any]) -> list[str]:
    """Tests that run the changed line, then others that run its file; the quickest first, within a budget of seconds."""
    seconds, lines = cover["seconds"], cover["lines"].get(mutant["file"], {})
    text = (ROOT / mutant["file"]).read_text(encoding="utf-8")
    first, last = (text.count("\n", 0, mutant[k]) + 1 for k in ("start", "end"))
    span = range(min(mutant["line"], first), max(mutant["line"], last) + 1)
    touching = [t for t, run in lines.items() if any(n in span for n in run)]
    near = within(touching, seconds, FIRST_ROUND_S)
    return near + within([t for t in lines if t not in near], seconds, SECOND_ROUND_S)


def within(tests: Sequence[str], seconds: Mapping[str, float], budget: float) -> list[str]:
    order = sorted(tests, key=lambda t: seconds[t])
    quick = [t for t in order if seconds[t] <= LONGEST_S] or order[:1]
    chosen, spent = [], 0.0
    for test in quick:
        spent += seconds[test]
        if chosen and spent > budget:
            break
        chosen.append(test)
    return chosen


def child(mutant: Mapping[str, Any], tests: Sequence[str], seconds: int, log: Path) -> int:
    """In the forked process: pytest's exit status with the change in place."""
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    sys.meta_path.insert(0, Changed(ROOT / mutant["file"], apply(mutant)))
    import pytest

    options = "--import-mode=importlib -x -q --tb=line -p no:cacheprovider -o addopts= -W ignore::pytest.PytestAssertRewriteWarning"
    return int(pytest.main([*options.split(), *tests]))


def started(mutant: Mapping[str, Any], tests: Sequence[str], limit: int, log: Path) -> int:
    """The process id of the fork that tests a change."""
    pid = os.fork()
    if pid == 0:
        code = BROKEN
        try:
            code = child(mutant, tests, limit, log)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def outcome(pid: int, out_of_time: bool) -> str | None:
    """What became of a process; None if it still runs."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    if not ended and not out_of_time:
        return None
    if not ended:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return "timeout"
    code = os.waitstatus_to_exitcode(status)
    return "timeout" if code in (-signal.SIGXCPU, -signal.SIGKILL) else OUTCOMES.get(code, "broken")


def run_all(
    mutants: Sequence[Mapping[str, Any]], cover: Mapping[str, Any], jobs: int, logs: Path, keep: Path | None = None
) -> list[dict[str, Any]]:
    """What became of each change. Results are added to `keep`, a line each, as they come; those it holds are not run again."""
    done = [json.loads(line) for line in keep.read_text().splitlines()] if keep and keep.exists() else []
    known = {m["id"] for m in done}
    waiting, running = [m for m in mutants if m["id"] not in known], {}
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop(0)
            tests = tests_of(mutant, cover)
            limit = 60 + int(4 * sum(cover["seconds"][t] for t in tests))  # of the processor's time
            if not tests:
                done.append({**mutant, "status": "no tests", "tests": 0, "seconds": 0.0})
                continue
            pid = started(mutant, tests, limit, logs / f"{mutant['id']}.log")
            running[pid] = (mutant, len(tests), time.monotonic(), limit)
        time.sleep(0.1)
        for pid, (mutant, count, begun, limit) in list(running.items()):
            spent = time.monotonic() - begun
            found = outcome(pid, spent > 20 * limit)  # asleep for ever, on however busy a machine
            if found is None:
                continue
            done.append({**mutant, "status": found, "tests": count, "seconds": round(spent, 1)})
            if keep is not None:
                with keep.open("a") as file:
                    file.write(json.dumps(done[-1]) + "\n")
            del running[pid]
            place = f"{mutant['file']}:{mutant['line']}"
            print(f"{len(done)}/{len(mutants)} {mutant['id']} {place} {found} {spent:.1f} s", flush=True)
    return sorted(done, key=lambda m: m["id"])


def passes_unchanged(mutants: Sequence[Mapping[str, Any]], cover: Mapping[str, Any], jobs: int, logs: Path) -> bool:
    """Do the tests of a few changes pass without them?"""
    few = mutants[:: 1 + len(mutants) // 4]
    unchanged = [{**m, "id": f"unchanged-{m['id']}", "end": m["start"], "text": ""} for m in few]
    return all(m["status"] == "survived" for m in run_all(unchanged, cover, jobs, logs))


def summary(done: Sequence[Mapping[str, Any]]) -> str:
    counts = Counter(m["status"] for m in done)
    killed = counts["killed"] + counts["timeout"]
    lines = [f"{killed} of {len(done)} killed ({100 * killed / max(len(done), 1):.1f}%): {dict(counts)}", ""]
    for m in done:
        if m["status"] not in ("killed", "timeout"):
            lines += [f"{m['id']} {m['file']}:{m['line']} {m['operator']} ({m['status']})", shown(m), ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mutants", type=Path)
    parser.add_argument("cover", type=Path)
    parser.add_argument("--output", type=Path, required=True, help="a line per change; given again, the run goes on")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", type=int, nargs="*", help="these changes only, by id")
    parser.add_argument("--logs", type=Path, default=Path("/tmp"))
    arguments = parser.parse_args()
    os.environ |= {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    mutants = json.loads(arguments.mutants.read_text())["mutants"]
    if arguments.only is not None:
        mutants = [m for m in mutants if m["id"] in arguments.only]
    cover = json.loads(arguments.cover.read_text())
    arguments.logs.mkdir(parents=True, exist_ok=True)
    for name in [*SLOW_IMPORTS, *(f"transformers.models.{t}.modeling_{t}" for t in MODEL_TYPES)]:
        importlib.import_module(name)
    if not arguments.output.exists() and not passes_unchanged(mutants, cover, arguments.jobs, arguments.logs):
        sys.exit(f"tests fail without any change: see {arguments.logs}/unchanged-*.log")
    print(summary(run_all(mutants, cover, arguments.jobs, arguments.logs, arguments.output)))


if __name__ == "__main__":
    main()
