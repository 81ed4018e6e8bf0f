"""What is done while a backward is launched: once, by whoever comes first, with the same answers and errors as without."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from typing import Any

import numpy as np
import pytest
import torch

import whence
from tests import architectures
from whence.errors import ModelError
from whence.fast import meanwhile
from whence.fast.meanwhile import Later, Meanwhile
from whence.trace import recorder, recording

TEXTS = ["a charming film", "the plot is slow , dull and never moving", "good"]
METHODS = ["gradient", "gradient-x-input", "attcat", "gae", "attnlrp", "transatt", "alti", "rollout", "random"]


def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch, so: bool) -> None:
    for module in (meanwhile, recorder):
        monkeypatch.setattr(module, "launched_by_another_thread", lambda tensor: so)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """As on a GPU; gives the names of the threads that jobs were done by."""
    threads: list[str] = []
    begin = Later.begin

    def noting(self: Later[Any]) -> None:
        if self._job is not None:
            threads.append(threading.current_thread().name)
        begin(self)

    as_on_a_gpu(monkeypatch, True)
    monkeypatch.setattr(Later, "begin", noting)
    return threads


def begun(job: Any) -> Later[Any]:
    """A job of its own backward, which is launched now."""
    jobs, later = Meanwhile(), Later(job)
    jobs.add(later)
    x = torch.zeros(1, requires_grad=True)
    y = x.sum()
    if jobs.begin_with(y):
        y.backward()
    return later


def test_a_job_is_done_once_by_whoever_comes_first() -> None:
    done: list[str] = []
    later = Later(lambda: done.append(threading.current_thread().name) or len(done))
    assert later() == later() == 1
    assert done == [threading.current_thread().name]


def test_what_goes_wrong_is_said_to_whoever_asks_each_time() -> None:
    later = Later(lambda: 1 // 0)
    later.begin()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            later()


def test_nobody_waits_for_a_busy_thread(apart: list[str]) -> None:
    busy, go_on = threading.Event(), threading.Event()
    slow = begun(lambda: (busy.set(), go_on.wait(30)))
    assert busy.wait(30)
    quick = begun(lambda: threading.current_thread().name)
    assert quick() == threading.current_thread().name
    go_on.set()
    assert slow()[1] is True


def test_nothing_is_begun_on_a_cpu() -> None:
    jobs, later = Meanwhile(), Later(lambda: threading.current_thread().name)
    jobs.add(later)
    assert not jobs.begin_with(torch.zeros(1))
    assert later() == threading.current_thread().name


def test_the_thread_lets_go_of_what_it_did(apart: list[str]) -> None:
    class Held:
        pass

    held = Held()
    gone = weakref.ref(held)
    later = begun(lambda kept=held: bool(kept))
    assert later()
    del held, later
    begun(lambda: None)()
    gc.collect()
    assert gone() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_has_a_thread_of_its_own(apart: list[str]) -> None:
    begun(lambda: 1)  # the parent's thread is there
    child = os.fork()
    if not child:
        passed = False
        try:
            did = threading.Event()
            begun(did.set)
            passed = did.wait(20)
        finally:
            os._exit(0 if passed else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("target", [None, 1, "all"])
def test_explanations_are_the_same_to_the_last_bit(apart: list[str], target: Any) -> None:
    explainer = whence.load(architectures.model("bert", torch.float32), architectures.tokenizer())
    with pytest.MonkeyPatch.context() as patched:
        as_on_a_gpu(patched, False)
        alone = explainer.explain(TEXTS, METHODS, target)
    here = threading.current_thread().name
    assert set(apart) <= {here}
    found = explainer.explain(TEXTS, METHODS, target)
    for method in METHODS:
        for one, other in zip(flat(alone[method]), flat(found[method]), strict=True):
            assert np.array_equal(one.scores, other.scores)
            assert one.to_dict() == other.to_dict()


def flat(found: list[Any]) -> list[whence.Explanation]:
    return [e for one in found for e in (one if isinstance(one, list) else [one])]


def test_answers_are_read_by_the_other_thread(apart: list[str]) -> None:
    explainer = whence.load(architectures.model("bert", torch.float32), architectures.tokenizer())
    for _ in range(20):  # the caller may be first now and then
        explainer.explain(TEXTS, "gradient")
    assert "whence-meanwhile" in apart


def test_logits_that_are_no_numbers_are_refused_by_whoever_reads_them(
    apart: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "whence.trace.recorder.check_finite", lambda finite: None
    )  # as on a GPU: they are asked with the answers
    model = architectures.build("bert", torch.float32)
    explainer = whence.load(model, architectures.tokenizer())
    classifier: Any = model.classifier
    handle = classifier.register_forward_hook(lambda module, args, output: output * torch.nan)
    with pytest.raises(ModelError, match="not finite"):
        explainer.explain(TEXTS, "gradient-x-input")
    handle.remove()
    assert len(explainer.explain(TEXTS, "gradient-x-input")) == len(TEXTS)


@pytest.mark.parametrize(("largest", "kept"), [(recording.KEPT_TOKENS, True), (1, False)])
def test_a_small_batch_keeps_its_graph_while_its_backward_runs_beside_jobs(
    apart: list[str], monkeypatch: pytest.MonkeyPatch, largest: int, kept: bool
) -> None:
    """What is let go of is freed under Python's lock, which the jobs hold."""
    kept_by_call: list[bool] = []
    grad = torch.autograd.grad

    def noting(*given: Any, **named: Any) -> Any:
        kept_by_call.append(named["retain_graph"])
        return grad(*given, **named)

    monkeypatch.setattr(torch.autograd, "grad", noting)
    monkeypatch.setattr(recording, "KEPT_TOKENS", largest)
    explainer = whence.load(architectures.model("bert", torch.float32), architectures.tokenizer())
    explainer.explain(TEXTS, "attcat")
    assert kept_by_call == [kept]
    kept_by_call.clear()
    explainer.explain(TEXTS, "gradient-x-input")
    assert kept_by_call == [True]  # next to nothing is made of embeddings afterwards
    kept_by_call.clear()
    explainer.explain(TEXTS, ["gradient", "attcat"])
    assert kept_by_call == [True, False]  # of the logit and of log p: jobs are begun with the first
    kept_by_call.clear()
    as_on_a_gpu(monkeypatch, False)
    explainer.explain(TEXTS, "attcat")
    assert kept_by_call == [False]


def test_jobs_wait_until_the_backward_runs(apart: list[str]) -> None:
    """Any earlier, and they would hold Python's lock while it is asked for."""
    jobs, later = Meanwhile(), Later(lambda: threading.current_thread().name)
    jobs.add(later)
    x = torch.zeros(1, requires_grad=True)
    y = x.sum()
    assert jobs.begin_with(y)
    assert not apart
    torch.autograd.grad(y, x)
    assert later() in apart


def test_rules_that_are_python_take_turns_with_nobody(apart: list[str]) -> None:
    explainer = whence.load(architectures.model("bert", torch.float32), architectures.tokenizer())
    for _ in range(10):
        explainer.explain(TEXTS, ["transatt", "attnlrp"])
    assert set(apart) == {threading.current_thread().name}


def test_a_kept_graph_goes_with_the_call(apart: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[weakref.ref[torch.Tensor]] = []
    forward = recorder.forward

    def noting(*given: Any, **named: Any) -> Any:
        made = forward(*given, **named)
        graphs.append(weakref.ref(made.logits))
        return made

    monkeypatch.setattr(recorder, "forward", noting)
    explainer = whence.load(architectures.model("bert", torch.float32), architectures.tokenizer())
    found = explainer.explain(TEXTS, METHODS)
    gc.collect()
    assert found
    assert not any(graph() is not None for graph in graphs)
