"""Whatever a request does to its worker, it is answered, the worker goes on, and /healthz tells the truth."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

import whence
from tests import architectures
from tests.serve.conftest import serving, tiny
from tests.test_panics import BAD, GOOD, SAYS, panicking
from whence.apps.serve.jobs import Asked, Explain
from whence.apps.serve.settings import Settings
from whence.apps.serve.worker import Unavailable, Worker

ROUTES: dict[str, dict[str, Any]] = {
    "predict": {},
    "explain": {"method": "gae"},
    "compare": {"methods": ["gae", "rollout"]},
    "evaluate-text": {"method": "gae"},
    "figure": {"methods": ["gae"], "format": "json"},
}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    model = whence.load(architectures.build("bert", torch.float32), panicking())
    with serving({"panicky": model, "calm": tiny()}, timeout=10) as found:
        yield found


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("texts", [{"text": BAD}, {"text": GOOD, "pair": BAD}])
def test_a_panic_is_answered_and_the_worker_lives(client: TestClient, route: str, texts: dict[str, str]) -> None:
    reply = client.post(f"/api/{route}", json={**texts, **ROUTES[route]})
    assert (reply.status_code, reply.json()["kind"]) == (422, "input")
    assert reply.json()["error"].startswith("the tokenizer cannot read this text (PanicException: index out of bounds")
    assert client.post(f"/api/{route}", json={"text": GOOD, **ROUTES[route]}).status_code == 200
    assert client.get("/healthz").status_code == 200


class PanicException(BaseException):
    """As Rust's is called."""


@pytest.mark.parametrize(
    ("error", "status"),
    [(PanicException("x"), 422), (SystemExit(1), 500), (GeneratorExit(), 500), (StopIteration(), 500),
     (KeyboardInterrupt(), 500), (BaseException("x"), 500), (RuntimeError("x"), 500), (MemoryError(), 500)],
)  # fmt: skip
def test_whatever_is_raised_is_answered(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int
) -> None:
    def fails(explainer: whence.Explainer, jobs: Any) -> Any:
        raise error

    begun = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(Explain, "run", fails)
        reply = client.post("/api/explain", json={"text": GOOD, "method": "gae"})
    assert (reply.status_code, set(reply.json())) == (status, {"error", "kind"})
    assert time.monotonic() - begun < 5
    assert client.post("/api/explain", json={"text": GOOD, "method": "gae"}).status_code == 200
    assert client.get("/healthz").json()["models"] == ["panicky", "calm"]


def test_mates_of_a_text_that_panics() -> None:
    worker = Worker(whence.load(architectures.build("bert", torch.float32), panicking()), Settings())
    waiting = [worker.submit(Explain(Asked(text), ("gae",))) for text in (GOOD, BAD, "bad film")]
    worker.start()
    assert [waiting[i].future.result(20)["gae"].text for i in (0, 2)] == [GOOD, "bad film"]
    with pytest.raises(whence.InputError, match=f"^{SAYS}"):  # its own sentence: no "input 1:"
        waiting[1].future.result(20)
    worker.drain(10)


@pytest.mark.parametrize("part", ["_take", "_run", "_tidy"])
def test_the_thread_outlives_its_own_mistakes(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(tiny(), Settings())
    real: Callable[..., Any] = getattr(worker, part)
    fails = threading.Event()

    def sometimes(*given: Any) -> Any:
        if fails.is_set():
            fails.clear()
            raise OSError("of its own")
        return real(*given)

    monkeypatch.setattr(worker, part, sometimes)
    fails.set()
    first = worker.submit(Explain(Asked(GOOD), ("gae",)))
    worker.start()
    if part == "_tidy":
        assert first.future.result(20)
    else:
        with pytest.raises(OSError, match="of its own"):
            first.future.result(20)
    assert worker.submit(Explain(Asked(GOOD), ("gae",))).future.result(20)
    assert worker.answers
    worker.drain(10)
    assert not worker.answers


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_that_is_gone_is_said_to_be() -> None:
    """At once to who asks it, and by /healthz; the others answer on."""
    with serving({"one": tiny(), "two": tiny()}, timeout=10) as client:
        client.get("/api/models")
        worker: Worker = client.app.app.state.server.workers["one"]
        worker._one_batch = sys.exit  # type: ignore[method-assign,assignment]
        client.post("/api/explain", json={"text": GOOD, "method": "gae"})  # the last one that the old loop takes
        worker._thread.join(10)
        reply = client.get("/healthz")
        assert (reply.status_code, reply.json()["kind"]) == (503, "unavailable")
        assert reply.json()["error"].startswith("one: ")
        begun = time.monotonic()
        reply = client.post("/api/explain", json={"text": GOOD, "method": "gae"})
        assert (reply.status_code, "answers no more" in reply.json()["error"]) == (503, True)
        assert time.monotonic() - begun < 5
        assert client.post("/api/explain", json={"text": GOOD, "method": "gae", "model": "two"}).status_code == 200
        with pytest.raises(Unavailable, match="answers no more"):
            worker.submit(Explain(Asked(GOOD), ("gae",)))


def test_a_tokenizer_that_reads_nothing_does_not_hide_the_other_models() -> None:
    tokenizer = panicking()
    broken = whence.load(architectures.build("bert", torch.float32), tokenizer)
    tokenizer._tokenizer.normalizer = type(tokenizer._tokenizer.normalizer)([panic_at_everything()])
    with serving({"broken": broken, "calm": tiny()}, timeout=10) as client:
        models = {m["name"]: m for m in client.get("/api/models").json()}
        assert models["broken"]["methods"] == []
        assert "gae" in models["calm"]["methods"]
        for body in ({}, {"method": "gae"}):
            reply = client.post("/api/explain", json={"text": GOOD, **body})
            assert (reply.status_code, reply.json()["kind"]) == (422, "input")


def panic_at_everything() -> Any:
    from tokenizers import normalizers

    return normalizers.Precompiled(b"\x04\x00\x00\x00" + bytes(4))
