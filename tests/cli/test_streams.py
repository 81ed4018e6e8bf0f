"""stdin and stdout as they come: closed, full, in another encoding, read by nobody. A sentence or the right output, never a traceback."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tests.cli.test_cli import cli  # noqa: F401  (the fixture)
from whence.apps.cli import app
from whence.apps.cli.streams import from_stdin
from whence.errors import InputError

TEXT = "a charming but slow film"


def whence(
    words: Sequence[str], env: dict[str, str] | None = None, **streams: Any
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "whence", *words]
    return subprocess.run(
        command, env={**os.environ, **(env or {})}, stderr=subprocess.PIPE, check=False, timeout=120, **streams
    )


def in_shell(line: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["sh", "-c", f'"$0" -m whence {line}', sys.executable], capture_output=True, check=False, timeout=120
    )


def test_a_reader_that_has_gone_is_no_failure() -> None:
    """`whence … | head`: whatever the moment at which the reader leaves; and long output, which is written as it comes."""
    for words in (["methods"], ["explain", TEXT, "--format", "html"]):
        reader, writer = os.pipe()
        os.close(reader)
        done = whence(words, stdout=writer)
        os.close(writer)
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_is_a_sentence() -> None:
    with open("/dev/full", "wb") as full:
        done = whence(["methods"], stdout=full)
    assert done.returncode == 2
    assert done.stderr == b"whence: the command could not go on: No space left on device.\n"


@pytest.mark.skipif(os.name == "nt", reason="closed streams are said in sh")
def test_streams_may_be_closed() -> None:
    done = in_shell("methods >&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    done = in_shell(f"explain '{TEXT}' >&-")
    assert (done.returncode, done.stderr) == (0, b"")
    done = in_shell("explain - <&-")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"whence: stdin is closed: give the text itself in place of '-'.\n"


def test_screens_without_unicode() -> None:
    """Bars become question marks; JSON loses nothing."""
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    done = whence(["explain", "a café"], ascii_only, stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"caf?" in done.stdout
    done = whence(["explain", "a café 🎬", "--format", "json"], ascii_only, stdout=subprocess.PIPE)
    assert json.loads(done.stdout)["text"] == "a café 🎬"


def latin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\n"), encoding="utf-8"))


def test_stdin_of_another_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    latin(monkeypatch)
    with pytest.raises(InputError, match=r"stdin cannot be read: it is not UTF-8 text\."):
        from_stdin()


@pytest.mark.parametrize(
    "words", [("explain", "-"), ("explain", "--question", "Who?", "--context", "-"), ("classes", "-")]
)
def test_every_command_says_so(words: tuple[str, ...], capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from whence.apps.cli import main

    latin(monkeypatch)
    monkeypatch.setattr(sys, "argv", ["whence", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert (end.value.code, capsys.readouterr().err) == (2, "whence: stdin cannot be read: it is not UTF-8 text.\n")


def test_lines_of_stdin(cli) -> None:  # noqa: F811
    """Lines end with \\n or \\r\\n; nothing else ends one; a blank one keeps its place."""
    _, out, _ = cli("explain", "-", "--format", "json", stdin="good\u2028film\r\n\n bad\x0bplot")
    assert [one["text"] for one in json.loads(out)] == ["good\u2028film", "", " bad\x0bplot"]


@pytest.mark.parametrize("format", ["text", "json", "html"])
def test_output_drives_nothing(cli, format: str) -> None:  # noqa: F811
    text = "good\x1b[31m \x9b31m \u202efilm\u2066 \x00\x07 end"
    code, out, _ = cli("explain", text, "--format", format)
    assert code == 0
    assert not set("\x1b\x9b\u202e\u2066\x00\x07") & set(out)
    if format == "json":
        assert json.loads(out)["text"] == text


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps a directory that is in use")
@pytest.mark.parametrize("words", [(), ("--help",), ("no-such-file", "--output", "out")])
def test_a_deleted_working_directory_is_a_sentence(cli, tmp_path: Path, monkeypatch, words: tuple[str, ...]) -> None:  # noqa: F811
    """Whatever the command: also before it reads its own words."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for command in get_command(app).commands:  # type: ignore[attr-defined]
        code, said, complained = cli(command, *words)
        assert (code, said) == (2, "")
        assert re.fullmatch(r"whence: the working directory is gone \(.*\): change to one that exists .*\n", complained)
    assert cli("--version")[0] == 0


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps a directory that is in use")
def test_a_real_command_in_a_deleted_directory(tmp_path: Path) -> None:
    """torch itself cannot be loaded there, and ends the process."""
    (tmp_path / "gone").mkdir()
    line = f'cd "{tmp_path / "gone"}" && rmdir "{tmp_path / "gone"}" && "$0" -m whence explain "{TEXT}"'
    source = str(Path(sys.modules["whence"].__file__ or "").parent.parent)
    done = subprocess.run(
        ["sh", "-c", line, sys.executable],
        capture_output=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"whence: the working directory is gone")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("packed", "says"),
    [
        (lambda text: text.encode("utf-16"), "UTF-16 text, and UTF-8 is read"),
        (lambda text: text.encode("utf-16-le"), "UTF-16LE text, and UTF-8 is read"),
        (lambda text: gzip.compress(text.encode()), "compressed with gzip"),
    ],
)
def test_what_is_no_text_is_said_wherever_it_is_read(
    capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, packed: Any, says: str
) -> None:
    from whence.apps.cli import main

    data = packed("good film\nbad film\n")
    for name in ("films.txt", "films.csv", "films.jsonl", "films.json"):
        (tmp_path / name).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    for words in (
        ("explain", "-"),
        ("classes", "-"),
        ("classes", "films.txt"),
        ("classes", "films.csv"),
        ("classes", "films.jsonl"),
        ("report", "films.json"),
        ("evaluate", "films.csv"),
        ("tune", "films.jsonl"),
        ("corpus", "films.csv", "--output", "out"),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        monkeypatch.setattr(sys, "argv", ["whence", *words])
        with pytest.raises(SystemExit) as end:
            main()
        name = "stdin" if "-" in words else words[1]
        complained = capsys.readouterr().err
        assert (end.value.code, complained.startswith(f"whence: {name} is {says}: ")) == (2, True), complained
