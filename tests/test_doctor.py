"""`whence doctor`: true facts, no private ones, and a verdict that can be bad."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from pathlib import Path

import pytest
import torch

from whence.apps import doctor
from whence.apps.cli import main
from whence.errors import ModelError
from whence.models.zoo import integrity


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["whence", "doctor", *words])
    try:
        main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    return code, capsys.readouterr().out


def test_a_healthy_machine(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(monkeypatch, capsys, "--format", "json")
    found = json.loads(out)
    assert code == 0
    assert found["healthy"]
    assert found["versions"]["torch"] == torch.__version__
    assert found["embedded models"] == {"intact": True, "count": 6, "damaged": []}
    assert found["self-test"]["works"]
    assert found["threads"] == torch.get_num_threads()


def test_no_private_facts_unless_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(platform, "node", lambda: "a-host-of-mine")
    _, out = run(monkeypatch, capsys)
    private = [str(Path.home()), os.getcwd(), sys.executable, str(Path(doctor.__file__).parent), "a-host-of-mine"]
    assert not [word for word in private if len(word) > 1 and word in out]
    assert out.strip().endswith("all well")
    _, out = run(monkeypatch, capsys, "--paths")
    assert sys.executable in out
    assert "a-host-of-mine" in out


def test_damaged_models_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    copy = tmp_path / "zoo"
    shutil.copytree(integrity.ROOT / "heads", copy / "heads")
    lines = integrity.SUMS.read_text(encoding="utf-8").splitlines(keepends=True)
    (copy / "SHA256SUMS").write_text("".join(line for line in lines if "heads/" in line), encoding="utf-8")
    monkeypatch.setattr(integrity, "ROOT", copy)
    monkeypatch.setattr(integrity, "SUMS", copy / "SHA256SUMS")
    assert integrity.damaged() == []
    (copy / "heads" / "qa.json").write_text("{}")
    (copy / "heads" / "nli.json").unlink()
    (copy / "heads" / "more.json").write_text("{}")
    assert integrity.damaged() == ["heads/more.json", "heads/nli.json", "heads/qa.json"]
    code, out = run(monkeypatch, capsys)
    assert code == 1
    assert "damaged: heads/more.json, heads/nli.json, heads/qa.json" in out
    assert "something is wrong" in out
    (copy / "SHA256SUMS").unlink()
    assert "heads/topics.json" in integrity.damaged()


def test_a_self_test_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ModelError("no luck\nat all")

    monkeypatch.setattr(doctor, "load", broken)
    assert doctor.self_test() == {"works": False, "error": "ModelError: no luck"}
    monkeypatch.undo()
    monkeypatch.setattr(doctor, "EXPECTED", {"attnlrp": ("affecting", 0.4394)})
    assert not doctor.self_test()["works"]


def test_missing_extras_and_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "EXTRAS", {"none": ("no-such-package", "numpy")})
    assert doctor.extras() == {"none": "not installed (lacks no-such-package)"}
    found = {"versions": {"torch": "missing"}, "embedded models": {"intact": True}, "self-test": {"works": True}}
    assert not doctor.healthy(found)
    assert doctor.healthy({**found, "versions": {"torch": "2"}})
