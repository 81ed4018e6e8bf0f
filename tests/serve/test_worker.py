"""The queue: what waits together runs together, and nobody suffers for another's request."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, wait
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import whence
from tests.serve.conftest import tiny
from whence.apps.serve.jobs import Asked, Explain
from whence.apps.serve.predict import Predict
from whence.apps.serve.settings import Settings
from whence.apps.serve.worker import Abandoned, Unavailable, Worker

pytestmark = pytest.mark.filterwarnings("ignore:.*were longer than")


@dataclass(frozen=True)
class Block:
    """A job that holds the worker until it is let go."""

    begun: threading.Event
    go: threading.Event
    key = "block"

    @classmethod
    def run(cls, explainer: whence.Explainer, jobs: Sequence[Any]) -> list[Any]:
        jobs[0].begun.set()
        assert jobs[0].go.wait(20)
        return ["done"] * len(jobs)


class Held:
    """A worker that is busy, so that what is submitted waits."""

    def __init__(self, **settings: Any) -> None:
        self.worker = Worker(tiny(), Settings(**settings))
        self.block = Block(threading.Event(), threading.Event())
        self.worker.start()
        self.blocked = self.worker.submit(self.block)
        assert self.block.begun.wait(20)

    def let_go(self) -> None:
        self.block.go.set()


@pytest.fixture
def held() -> Iterator[Held]:
    found = Held(max_queue=50)
    yield found
    found.let_go()
    found.worker.drain(10)


def test_what_waits_together_runs_together(held: Held) -> None:
    texts = [f"good film {word}" for word in "abcdefgh"]
    explains = [held.worker.submit(Explain(Asked(t), ("gae",))) for t in texts]
    predicts = [held.worker.submit(Predict(Asked(t))) for t in texts]
    held.let_go()
    found = [p.future.result(20) for p in explains]
    wait([p.future for p in predicts], 20)
    assert (held.worker.batches, held.worker.rows) == (3, 17)  # the block, the explanations, the predictions
    alone = held.worker.explainer.explain(texts, "gae")
    for one, wanted in zip(found, alone, strict=True):
        assert one["gae"].tokens == wanted.tokens
        np.testing.assert_allclose(one["gae"].scores, wanted.scores, atol=1e-6)


def test_methods_of_the_plain_pass_share_a_trace(held: Held) -> None:
    jobs = [("gae",), ("attcat", "gradient"), ("rollout",), ("lrp",), ("alti",), ("attention-flow",)]
    waiting = [held.worker.submit(Explain(Asked("good film"), names)) for names in jobs]
    held.let_go()
    for pending, names in zip(waiting, jobs, strict=True):
        found = pending.future.result(20)
        assert tuple(found) == names
        wanted = held.worker.explainer.explain("good film", list(names))
        assert all(np.allclose(found[n].scores, wanted[n].scores, atol=1e-6) for n in names)
    assert held.worker.batches == 1 + 1 + 3  # the block, the plain pass, and each of the others


def test_options_keep_requests_apart(held: Held) -> None:
    waiting = [
        held.worker.submit(Explain(Asked("good film"), ("attcat",), options))
        for options in ((), (("variant", "paper"),))
    ]
    held.let_go()
    made = [p.future.result(20)["attcat"].options for p in waiting]
    assert [o["variant"] for o in made] == ["released", "paper"]


def test_a_bad_request_does_not_fail_its_mates(held: Held) -> None:
    texts = ["good film", "", "bad film", "x \ud800"]
    waiting = [held.worker.submit(Explain(Asked(t), ("gae",))) for t in texts]
    wrong = held.worker.submit(Explain(Asked("good film", target="nobody"), ("gae",)))
    held.let_go()
    assert waiting[0].future.result(20)["gae"].text == "good film"
    assert waiting[2].future.result(20)["gae"].text == "bad film"
    with pytest.raises(whence.InputError, match=r"^the text is empty"):  # its own sentence: no "input 1:"
        waiting[1].future.result(20)
    with pytest.raises(whence.InputError, match="lone surrogate"):
        waiting[3].future.result(20)
    with pytest.raises(whence.UnknownName, match="nobody"):
        wrong.future.result(20)


def test_batches_have_a_limit() -> None:
    held = Held(max_batch=3)
    waiting = [held.worker.submit(Predict(Asked(f"film {i}"))) for i in range(7)]
    held.let_go()
    wait([p.future for p in waiting], 20)
    assert held.worker.batches == 1 + 3
    held.worker.drain(10)


def test_equal_requests_run_once(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    own = held.worker.explainer.explain
    monkeypatch.setattr(
        held.worker.explainer, "explain", lambda items, *a, **k: seen.append(len(items)) or own(items, *a, **k)
    )
    waiting = [held.worker.submit(Explain(Asked("good film"), ("gae",))) for _ in range(5)]
    held.let_go()
    wait([p.future for p in waiting], 20)
    assert seen == [1]


def test_a_full_queue_refuses() -> None:
    held = Held(max_queue=2)
    for _ in range(2):
        held.worker.submit(Predict(Asked("good film")))
    with pytest.raises(Unavailable, match="2 requests wait"):
        held.worker.submit(Predict(Asked("good film")))
    held.let_go()
    held.worker.drain(10)


def test_dropped_requests_are_not_run(held: Held) -> None:
    gone = held.worker.submit(Predict(Asked("good film")))
    gone.drop()
    held.let_go()
    with pytest.raises(CancelledError):
        gone.future.result(20)
    kept = held.worker.submit(Predict(Asked("bad film")))
    kept.future.result(20)
    assert held.worker.rows == 2  # the block and the one that was kept


def test_work_that_nobody_wants_stops_at_the_next_forward() -> None:
    worker = Worker(tiny(), Settings())
    forwards = 0

    def count(*_: Any) -> None:
        nonlocal forwards
        forwards += 1
        if forwards == 3:
            pending.abandoned = True

    worker.explainer.model.register_forward_hook(count)
    pending = worker.submit(Explain(Asked("good film " * 10), ("kernel-shap",), (("samples", 2000),)))
    worker.start()
    with pytest.raises(Abandoned):
        pending.future.result(20)
    assert forwards == 3
    worker.drain(10)
    assert not worker.explainer.model._forward_pre_hooks  # the model is given back as it was


def test_draining_refuses_what_waits_and_lets_what_runs_end(held: Held) -> None:
    waiting = held.worker.submit(Predict(Asked("good film")))
    threading.Timer(0.2, held.let_go).start()
    held.worker.drain(20)
    assert held.blocked.future.result(0) == "done"
    with pytest.raises(Unavailable, match="shutting down"):
        waiting.future.result(0)
    with pytest.raises(Unavailable, match="shutting down"):
        held.worker.submit(Predict(Asked("good film")))


def test_draining_does_not_wait_for_ever(held: Held) -> None:
    held.worker.drain(0.05)
    with pytest.raises(Unavailable, match="shutting down"):
        held.blocked.future.result(0)


def test_who_runs_the_same_model_elsewhere_is_not_stopped(held: Held) -> None:
    """A batch that nobody waits for any more, and that has not ended yet, is this worker's own affair."""
    held.blocked.drop()
    assert held.worker.explainer.predict("a good film").label


def test_memory_is_given_back_when_nobody_asks(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    given, batches_then = threading.Event(), []

    def give_back() -> None:
        batches_then.append(held.worker.batches)
        given.set()

    monkeypatch.setattr(held.worker._freed, "give_back", give_back)
    waiting = [held.worker.submit(job(Asked("good film"))) for job in (Predict, lambda asked: Explain(asked, ("gae",)))]
    held.let_go()
    wait([pending.future for pending in waiting], 20)
    assert given.wait(20)
    assert batches_then == [3], "not between batches, which would have to get it anew"
