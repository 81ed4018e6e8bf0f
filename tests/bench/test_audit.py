"""`make audit` passes only if every package was audited."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench import audit

ROOT = Path(__file__).parents[2]
CLEAN = {"name": "clean", "version": "1.0", "vulns": []}
UNKNOWN = {"name": "unknown", "skip_reason": "could not be audited"}
WEAK = {
    "name": "weak",
    "version": "2.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"]}, {"id": "PYSEC-2", "fix_versions": []}],
}


def answering(monkeypatch: pytest.MonkeyPatch, stdout: str, stderr: str = "", status: int = 0) -> None:
    """A stand-in for pip-audit."""

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        assert command[1:3] == ["-m", "pip_audit"]
        return subprocess.CompletedProcess(command, status, stdout, stderr)

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize(
    ("packages", "status", "says"),
    [
        ([CLEAN, CLEAN], 0, "2 packages audited, no known vulnerabilities."),
        ([UNKNOWN] * 209, 1, "nothing was audited: the advisory database could not be reached, or did not answer (it knows none of the 209 packages)"),
        ([], 1, "nothing was audited"),
        ([CLEAN, UNKNOWN], 1, "1 of 2 packages were not audited: the advisory database did not answer about unknown."),
        ([CLEAN, *[UNKNOWN] * 12], 1, "about unknown, unknown, unknown, unknown, unknown, unknown, unknown, unknown, unknown, unknown and 2 more."),
        ([CLEAN, WEAK], 1, "weak 2.0 has PYSEC-1, which is mended in 2.1.\nweak 2.0 has PYSEC-2, which is mended in no version yet."),
        ([WEAK, UNKNOWN], 1, "weak 2.0 has PYSEC-1"),
    ],
)  # fmt: skip
def test_what_was_found_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], packages: list[Any], status: int, says: str
) -> None:
    answering(monkeypatch, json.dumps({"dependencies": packages, "fixes": []}), status=int(WEAK in packages))
    with pytest.raises(SystemExit) as end:
        audit.main()
    assert end.value.code == status
    said = capsys.readouterr()
    assert says in (said.err if status else said.out)


@pytest.mark.parametrize("stdout", ["", "no JSON", "[]", "null", '{"other": 1}'])
def test_an_audit_that_did_not_happen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stdout: str
) -> None:
    answering(monkeypatch, stdout, "WARNING: one\nERROR: no connection\n", 1)
    with pytest.raises(SystemExit, match="1"):
        audit.main()
    assert "nothing was audited" in (said := capsys.readouterr().err)
    assert "(ERROR: no connection)" in said


def test_make_asks_so() -> None:
    rule = (ROOT / "Makefile").read_text(encoding="utf-8").split("\naudit:")[1].split("\n\n")[0]
    assert rule.strip().endswith("$(BIN)/python -m bench.audit")
