"""`whence serve` as people run it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from tests import architectures
from tests.serve.conftest import TEXT, process
from whence.apps.cli import main
from whence.apps.cli.serve import named


def test_stopping_in_the_middle_of_requests() -> None:
    """Requests under way finish or are told, and the process ends within five seconds, as if all were well."""

    async def ask(client: httpx.AsyncClient, number: int) -> Any:
        body = {"text": f"{TEXT} {number}", "method": "kernel-shap", "options": {"samples": 2000}}
        try:
            return (await client.post("/api/explain", json=body)).status_code
        except httpx.ConnectError:
            return "not accepted"  # connected after the socket was closed

    async def stop_while_asking(running: subprocess.Popen[str], url: str) -> tuple[list[Any], float]:
        limits = httpx.Limits(max_connections=40)
        async with httpx.AsyncClient(base_url=url, timeout=30, limits=limits) as client:
            tasks = [asyncio.create_task(ask(client, i)) for i in range(40)]
            await asyncio.sleep(1.0)
            begun = time.monotonic()
            running.send_signal(signal.SIGTERM)
            found = await asyncio.gather(*tasks)
            await asyncio.to_thread(running.wait, 30)
            return found, time.monotonic() - begun

    with process("--model", "sentiment") as (running, url):
        with ThreadPoolExecutor(
            1
        ) as apart:  # Playwright, where it ran before in this process, keeps this thread's loop
            found, seconds = apart.submit(asyncio.run, stop_while_asking(running, url)).result()
        counts = Counter(found)
        assert set(counts) <= {200, 503, "not accepted"}, counts
        assert counts[503] > 0  # there was work left to refuse
        assert seconds < 5
        assert running.returncode == 0
        assert running.stderr is not None
        assert "Traceback" not in running.stderr.read()


def test_ctrl_c_on_an_idle_server() -> None:
    with process("--model", "mine=causal-lm", "--token", "auto") as (running, url):
        assert httpx.get(f"{url}/healthz").json()["models"] == ["mine"]
        assert httpx.get(f"{url}/api/models").status_code == 401
        running.send_signal(signal.SIGINT)
        assert running.wait(5) == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--host", "0.0.0.0"), "give a --token"),
        (("--timeout", "nan"), "give seconds, more than 0"),
        (("--model", "sentimnet"), "did you mean 'sentiment'"),
        (("--model", "a=sentiment", "--model", "a=topics"), "two models are called 'a'"),
        (("--host", "203.0.113.1", "--token", "correct horse"), "cannot be listened on"),
    ],
)
def test_mistakes_are_one_sentence(
    words: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["whence", "serve", "--port", "0", *words])
    with pytest.raises(SystemExit, match="2"):
        main()
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_a_model_that_cannot_be_served_is_said_before_anybody_is_invited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    architectures.build("bert", torch.float32).save_pretrained(tmp_path / "mute")
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["whence", "serve", "--port", "0", "--model", str(tmp_path / "mute")])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr().err == "whence: mute has no tokenizer, and requests are texts: load it with one.\n"


def test_names_never_tell_a_path() -> None:
    assert named(["/home/me/secret/model-a", "org/model-b"]) == {
        "model-a": "/home/me/secret/model-a",
        "model-b": "org/model-b",
    }
