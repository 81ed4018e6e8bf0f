"""Ctrl-C while a command is still being imported: one line and status 130, never a traceback."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import whence
from whence.run import interrupts

PACKAGE = str(Path(whence.__file__).parent)
MODULE = [sys.executable, "-m", "whence"]
SCRIPT = [str(Path(sys.executable).parent / "whence")]
COMMANDS = (
    ["explain", "a film"],
    ["models"],
    ["--help"],
    ["evaluate", "none.jsonl"],
    ["serve", "--port", "0"],
    ["doctor"],
)
MOMENTS = (10, 30, 50, 70, 90, 110, 140, 170, 200, 240, 280, 320, 360, 400, 440, 480, 520, 560, 600)  # fmt: skip


def heed_interrupts() -> None:
    """Whatever started the tests: in the background of a shell SIGINT is ignored, and processes inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupted(command: list[str], seconds: float) -> tuple[int, str, str]:
    """What became of a command that got SIGINT so many seconds after it was started."""
    running = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )
    time.sleep(seconds)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    return running.returncode, out, err


@pytest.mark.parametrize("program", [MODULE, SCRIPT], ids=["module", "script"])
def test_ctrl_c_during_imports(program: list[str]) -> None:
    if not Path(program[0]).exists():
        pytest.skip("the console script is not installed")
    seen = []
    for moment, command in zip(MOMENTS, itertools.cycle(COMMANDS)):
        status, out, err = interrupted([*program, *command], moment / 1000)
        if status in (1, -signal.SIGINT) and not reached(err):
            continue  # Python itself was not up yet
        seen.append(status)
        assert status in (interrupts.STATUS, 0, 2), (moment, command, err)  # 0 or 2: it had ended before
        assert "Traceback" not in out + err, (moment, command, err)
        if status == interrupts.STATUS:
            assert err == "whence: interrupted\n", (moment, command)
    assert seen.count(interrupts.STATUS) >= 3


def reached(err: str) -> bool:
    """Whether the package was being imported, beyond the line that sets Ctrl-C up."""
    return (
        f'{PACKAGE}/__init__.py"' in err and "from whence.run import interrupts" not in err
    ) or f"{PACKAGE}/apps" in err


def test_the_package_sets_up_ctrl_c_before_it_imports_anything() -> None:
    lines = (Path(PACKAGE) / "__init__.py").read_text(encoding="utf-8").split('"""')[2].strip().splitlines()
    assert lines[0].startswith("from whence.run import interrupts")


@pytest.mark.parametrize("before", ["default_int_handler", "SIG_IGN", "SIG_DFL"])
def test_who_imports_whence_keeps_the_signal(before: str) -> None:
    code = (
        f"import signal; signal.signal(signal.SIGINT, signal.{before}); import whence.apps.cli; "
        f"assert signal.getsignal(signal.SIGINT) is signal.{before}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize(
    ("given", "own", "expected"),
    [
        (["python", "-m", "whence", "explain", "a"], ["-m", "explain", "a"], True),
        (["python", "-X", "dev", "-mwhence"], ["-m"], True),
        (["python", "/bin/whence", "explain"], ["/bin/whence", "explain"], True),
        (["python", "-m", "pytest", "whence"], ["pytest", "whence"], False),
        (["python", "mine.py", "whence"], ["mine.py", "whence"], False),
        (["python", "-c", "spawned", "--fork"], ["/bin/whence", "corpus", "a", "b", "c", "d"], False),
        (["python", "-c", "spawned", "--fork"], ["/bin/whence", "corpus"], False),
        (["python"], [""], False),
        ([], [], False),
    ],
)
def test_is_program(given: list[str], own: list[str], expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of a process that the command has started: it is given its arguments, and other ones by the system."""
    monkeypatch.setattr(sys, "orig_argv", given)
    monkeypatch.setattr(sys, "argv", own)
    assert interrupts.is_program() is expected


def test_ctrl_c_when_everything_is_done() -> None:
    """While Python ends; the status stays that of the command."""
    code = (
        "import os, signal, sys; sys.orig_argv = sys.argv = ['whence', '--version']; import whence.apps.cli, atexit; "
        "atexit.register(os.kill, os.getpid(), signal.SIGINT); whence.apps.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("whence ")
