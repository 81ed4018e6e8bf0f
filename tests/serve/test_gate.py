"""Safe by default: who may ask, how much, and what is told."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

import whence
from tests.serve.conftest import listening, serving, tiny
from whence.apps.serve import Settings
from whence.apps.serve.jobs import Explain

GOOD = {"text": "good film", "method": "gae"}


@pytest.fixture(scope="module")
def small() -> Iterator[TestClient]:
    with serving({"m": tiny()}) as found:
        yield found


@contextmanager
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Explanations that begin, and wait to be let go."""
    begun, go = threading.Event(), threading.Event()
    own: Callable[..., Any] = Explain.run

    def run(explainer: whence.Explainer, jobs: Any) -> Any:
        begun.set()
        assert go.wait(20)
        return own(explainer, jobs)

    monkeypatch.setattr(Explain, "run", run)
    try:
        yield begun, go
    finally:
        go.set()


@pytest.mark.parametrize("path", ["/healthz", "/api/models", "/no/where", "/openapi.json", "/static/none.js"])
def test_every_answer_is_fenced_in(small: TestClient, path: str) -> None:
    headers = small.get(path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == ("no-store" if path.startswith("/api/") else "no-cache")
    assert "server" not in headers
    assert "access-control-allow-origin" not in headers


def test_the_documentation_loads_nothing_from_elsewhere(small: TestClient) -> None:
    assert small.get("/docs").status_code == small.get("/redoc").status_code == 404
    paths = small.get("/openapi.json").json()["paths"]
    assert set(paths) == {
        *(f"/api/{p}" for p in ("predict", "explain", "compare", "evaluate-text", "figure", "models", "methods")),
        "/healthz",
    }


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:8000", 200),
        ("127.0.0.1:9", 200),
        ("[::1]:80", 200),
        ("evil.example", 400),
        ("evil.example:8000", 400),
        ("localhost.evil.example", 400),
        ("", 400),
        ("[::1", 400),
    ],
)
def test_names_that_were_made_to_point_here_are_refused(small: TestClient, host: str, status: int) -> None:
    assert small.get("/healthz", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost", 200),
        ("http://evil.example", 403),
        ("null", 403),
        ("http://[", 403),
        ("http://localhost:81", 403),
    ],
)
def test_pages_of_other_origins_are_refused(small: TestClient, origin: str, status: int) -> None:
    assert small.post("/api/explain", json=GOOD, headers={"origin": origin}).status_code == status


def test_a_token_is_asked_for(small: TestClient) -> None:
    with serving({"m": tiny()}, token="correct horse", host="0.0.0.0") as client:
        assert client.get("/healthz", headers={"host": "anything.example"}).status_code == 200
        for headers in (
            {},
            {"authorization": "Bearer wrong horse"},
            {"authorization": "Basic correct horse"},
            {"authorization": "correct horse"},
            {"authorization": b"Bearer \xe9\xff"},
        ):
            reply = client.post("/api/explain", json=GOOD, headers=headers)
            assert (reply.status_code, reply.json()["kind"]) == (401, "token")
            assert reply.headers["www-authenticate"] == "Bearer"
        right = {"authorization": "Bearer correct horse"}
        assert client.post("/api/explain", json=GOOD, headers=right).status_code == 200
        assert client.get("/api/models").status_code == 401


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"host": "0.0.0.0"}, "give a --token"),
        ({"host": "192.168.1.5"}, "give a --token"),
        ({"host": "example.org"}, "give a --token"),
        ({"token": "short"}, "8 characters"),
        ({"token": "pässwörter"}, "ASCII"),
        ({"max_queue": 0}, "max_queue=0"),
        ({"timeout": 0}, "timeout=0"),
    ],
)
def test_settings_that_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(whence.InputError, match=says):
        Settings(**given)


def test_large_bodies_are_refused(small: TestClient) -> None:
    json = {"content-type": "application/json"}
    assert small.post("/api/explain", content=b"x" * 300_000, headers=json).json()["kind"] == "too-large"
    pieces = (b"x" * 10_000 for _ in range(100))  # no length is told
    assert small.post("/api/explain", content=pieces, headers=json).status_code == 413
    lying = small.post("/api/explain", content=b"{}", headers={**json, "content-length": "9" * 30})
    assert lying.status_code == 413


def test_a_body_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.apps.serve.gate.BODY_SECONDS", 0.2)
    with listening({"m": tiny()}) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as link:
            link.sendall(b"POST /api/explain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
            assert link.recv(1000).startswith(b"HTTP/1.1 408")


def test_too_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        listening({"m": tiny()}, max_concurrent=2) as url,
        slow(monkeypatch) as (begun, go),
        ThreadPoolExecutor() as pool,
    ):
        waiting = [pool.submit(httpx.post, f"{url}/api/explain", json=GOOD, timeout=20) for _ in range(2)]
        assert begun.wait(20)
        reply = until(lambda: httpx.post(f"{url}/api/explain", json=GOOD), 429)
        assert (reply.json()["kind"], reply.headers["retry-after"]) == ("busy", "1")
        assert httpx.get(f"{url}/healthz").status_code == 200
        go.set()
        assert [w.result(20).status_code for w in waiting] == [200, 200]
        assert httpx.post(f"{url}/api/explain", json=GOOD).status_code == 200


def until(ask: Callable[[], httpx.Response], status: int) -> httpx.Response:
    """Question until the answer has this status: requests of other threads may still be on their way."""
    deadline = time.monotonic() + 10
    while (reply := ask()).status_code != status:
        assert time.monotonic() < deadline, reply.text
    return reply


def test_work_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        listening({"m": tiny()}, timeout=0.5, max_queue=1) as url,
        slow(monkeypatch) as (begun, go),
        ThreadPoolExecutor() as pool,
    ):
        httpx.get(f"{url}/api/models")  # the survey is over
        first = pool.submit(httpx.post, f"{url}/api/explain", json=GOOD, timeout=20)
        assert begun.wait(20)
        second = pool.submit(httpx.post, f"{url}/api/explain", json=GOOD, timeout=20)
        full = until(lambda: httpx.post(f"{url}/api/explain", json=GOOD), 503)
        assert (first.result(20).status_code, first.result().json()["kind"]) == (504, "timeout")
        assert (second.result(20).status_code, second.result().json()["kind"]) == (503, "unavailable")
        assert full.headers["retry-after"] == "1"
        go.set()
        assert until(lambda: httpx.post(f"{url}/api/explain", json=GOOD), 200)


def test_a_client_that_leaves_takes_its_work_along(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "whence.apps.serve")
    with listening({"m": tiny()}) as url, slow(monkeypatch) as (begun, _):
        httpx.get(f"{url}/api/models")
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/api/explain", json=GOOD, timeout=0.3)
        assert begun.wait(20)
        deadline = time.monotonic() + 10
        while "POST /api/explain 499" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_texts_are_not_logged_unless_asked(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    logging.getLogger("httpx").setLevel(logging.WARNING)  # the client's own log
    caplog.set_level(logging.DEBUG, "whence")

    def fails(explainer: whence.Explainer, jobs: Any) -> Any:
        raise RuntimeError(jobs[0].asked.item)

    for log_texts in (False, True):
        with serving({"m": tiny()}, log_texts=log_texts) as client:
            caplog.clear()
            client.post("/api/explain?text=secretword", json={"text": "good secretword", "method": "gae"})
            client.post("/api/explain", json={"text": "secretword", "target": "secretword"})
            with monkeypatch.context() as patch:
                patch.setattr(Explain, "run", fails)
                reply = client.post("/api/explain", json={"text": "secretword", "method": "gae"})
            assert (reply.status_code, reply.json()["kind"]) == (500, "internal")
            assert "secretword" not in reply.text
            assert "POST /api/explain 200" in caplog.text
            assert "RuntimeError" in caplog.text
            assert ("secretword" in caplog.text) == log_texts
