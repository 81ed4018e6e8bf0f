"""One Explainer used from many threads: every answer is, bit for bit, what it is from one thread alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

import whence
from tests import architectures

THREADS, CALLS = 8, 48
TEXTS = ["a charming film", "the plot is slow , dull and never moving", "good", "the music was not bad at all !"]
# one of each way of running a model
METHODS = [["attcat", "gradient"], ["attnlrp"], ["transatt", "gae"], ["alti"], ["occlusion"], ["integrated-gradients"]]


def call(explainer: whence.Explainer, number: int) -> Any:
    names = METHODS[number % len(METHODS)]
    options = {"steps": 4} if "integrated-gradients" in names else {}
    if number % 7 == 0:
        return explainer.predict(TEXTS[number % len(TEXTS)])
    return explainer.explain(TEXTS[number % len(TEXTS)], names, number % 3, **options)


def assert_equal(one: Any, other: Any) -> None:
    if not isinstance(one, dict):
        assert one == other
        return
    for name, e in one.items():
        assert np.array_equal(e.scores, other[name].scores), name
        assert e.to_dict() == other[name].to_dict()


def test_eight_threads_get_what_one_gets() -> None:
    model = architectures.build("bert", torch.float32)
    explainer = whence.load(model, architectures.tokenizer())
    alone = [call(explainer, i) for i in range(CALLS)]
    with ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(lambda i: call(explainer, i), range(CALLS)))
    for one, other in zip(alone, together, strict=True):
        assert_equal(one, other)


def test_two_explainers_of_one_model_share_its_lock() -> None:
    """The model is what must not be used twice at once, whoever uses it."""
    model = architectures.build("bert", torch.float32)
    explainers = [whence.load(model, architectures.tokenizer()) for _ in range(2)]
    alone = [call(explainers[0], i) for i in range(CALLS)]
    with ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(lambda i: call(explainers[i % 2], i), range(CALLS)))
    for one, other in zip(alone, together, strict=True):
        assert_equal(one, other)


def test_an_error_in_one_thread_leaves_the_others_alone() -> None:
    model = architectures.build("bert", torch.float32)
    explainer = whence.load(model, architectures.tokenizer())
    alone = [call(explainer, i) for i in range(CALLS)]

    def sometimes_wrong(i: int) -> Any:
        if i % 5:
            return call(explainer, i)
        try:
            explainer.explain("good", "cat", layer=99)
        except whence.InputError as error:
            return error

    with ThreadPoolExecutor(THREADS) as pool:
        for i, found in enumerate(pool.map(sometimes_wrong, range(CALLS))):
            if i % 5:
                assert_equal(alone[i], found)
            else:
                assert isinstance(found, whence.InputError)
