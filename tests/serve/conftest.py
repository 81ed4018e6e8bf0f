"""Small servers inside the test process, and real ones outside it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

import whence
from tests import architectures
from whence.apps.serve import Settings, create_app
from whence.apps.serve.run import listen, server_of, url_of
from whence.models import zoo

TEXT = "it 's a charming and often affecting journey ."


def tiny(architecture: str = "bert") -> whence.Explainer:
    """A random model of a few thousand weights."""
    return whence.load(architectures.build(architecture), architectures.tokenizer())


@contextmanager
def serving(models: dict[str, whence.Explainer], **settings: Any) -> Iterator[TestClient]:
    """A client of a server in this process."""
    with TestClient(
        create_app(models, Settings(**settings)), base_url="http://localhost", raise_server_exceptions=False
    ) as client:
        yield client


@contextmanager
def listening(models: dict[str, whence.Explainer], **settings: Any) -> Iterator[str]:
    """The address of a server that this process listens for on a real socket."""
    chosen = Settings(port=0, **settings)
    sock, server = listen(chosen), server_of(create_app(models, chosen))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    try:
        yield url_of(sock)
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def embedded() -> dict[str, whence.Explainer]:
    return {name: whence.load(name) for name in zoo.names()}


@pytest.fixture(scope="session")
def client(embedded: dict[str, whence.Explainer]) -> Iterator[TestClient]:
    """The embedded models."""
    with serving(embedded, timeout=600) as found:
        found.get("/api/models")  # the survey is over
        yield found


@contextmanager
def process(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A real `whence serve` and its address."""
    command = [sys.executable, "-m", "whence", "serve", "--port", "0", *words]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert running.stderr is not None
        for line in running.stderr:
            found = re.search(r"at (http://[^/]+)/", line)
            if found:
                break
        else:
            raise AssertionError("the server did not start")
        httpx.get(f"{found[1]}/api/models", timeout=300)  # the survey is over
        yield running, found[1]
    finally:
        running.kill()
        running.wait()
        if running.stderr is not None:
            running.stderr.close()
