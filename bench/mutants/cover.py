"""Which tests run which lines of the sources to be changed: `python -m bench.mutants.cover --output cover.json`."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

from bench.mutants.make import ROOT, TARGETS

# tests that compare numbers; the others would only say the same, later
TESTS = (
    "tests/methods",
    "tests/metrics",
    "tests/trace",
    "tests/perturb",
    "tests/evaluate/test_oracle.py",
    "tests/evaluate/test_engine.py",
    "tests/test_bad_input.py",
)


class Recorder:
    """A coverage context for every test, and how long each took."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self.measured = measured
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.measured.switch_context(item.nodeid)
        result = yield
        self.measured.switch_context("")
        return result  # type: ignore[return-value]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed.add(report.nodeid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("tests", nargs="*", default=TESTS)
    arguments = parser.parse_args()
    measured = coverage.Coverage(
        data_file=None, include=[f"{ROOT}/{t}{'' if t.endswith('.py') else '/*'}" for t in TARGETS]
    )
    recorder = Recorder(measured)
    measured.start()
    pytest.main(
        ["-p", "no:cacheprovider", "-p", "no:doctest", "-o", "addopts=--import-mode=importlib -q", *arguments.tests],
        [recorder],
    )
    measured.stop()
    data = measured.get_data()
    lines: dict[str, dict[str, list[int]]] = {}
    for file in data.measured_files():
        of_file: dict[str, list[int]] = defaultdict(list)
        for line, tests in data.contexts_by_lineno(file).items():
            for test in tests:
                if test and test not in recorder.failed:
                    of_file[test].append(line)
        lines[Path(file).relative_to(ROOT).as_posix()] = dict(of_file)
    seconds = {test: round(s, 3) for test, s in recorder.seconds.items()}
    arguments.output.write_text(json.dumps({"seconds": seconds, "lines": lines}))
    print(f"{len(seconds)} tests, {sum(seconds.values()):.0f} s, {len(recorder.failed)} failed → {arguments.output}")


if __name__ == "__main__":
    main()
