"""Whoever reads the model, its configuration included, waits until the thread that has it gives it back; and no call leaves a
trace in what its caller handed it."""

from __future__ import annotations

import copy
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertForMaskedLM, BertForSequenceClassification, PreTrainedModel

import whence
from tests import architectures
from whence.apps.serve.jobs import Asked
from whence.apps.serve.predict import Predict
from whence.apps.serve.worker import run_jobs
from whence.evaluate import heads
from whence.evaluate.heads.conllu import Sentence
from whence.evaluate.metrics import Steps
from whence.evaluate.perturbed import Perturber, Wanted
from whence.inputs import Encoded
from whence.models import lock_of, reads_of, untouched
from whence.run.perturb import score_rows
from whence.run.plan import Defaults, Plan
from whence.run.progress import counting
from whence.run.session import Session
from whence.tasks import Question, Term

LENT = 7  # the padding id that the other thread lends: the last token of ROW, which is then taken for padding
ROW = {"input_ids": [9, 12, 20, LENT]}
LONG = {"input_ids": [8, 11, 20, 21, 15, 30]}
HEAD_MASK = [[1, 0, 2, 1], [0, 1, 1, 0], [1, 1, 0, 3]]


@contextmanager
def lent_elsewhere(model: PreTrainedModel) -> Iterator[None]:
    """Another thread has the model, with another padding id, for some hundredths of a second."""
    taken = threading.Event()

    def elsewhere() -> None:
        with untouched(model, pad_id=LENT):
            taken.set()
            time.sleep(0.05)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        thread.join()


def encoded(ex: whence.Explainer) -> list[Encoded]:
    return [ex.encode(row, Question(1))[0] for row in (ROW, LONG)]


def scores(found: dict[str, list[list[whence.Explanation]]]) -> list[Any]:
    return [e.scores.tolist() for rows in found.values() for targets in rows for e in targets]


def attribute(ex: whence.Explainer) -> Any:
    plan = Plan.of(["attcat", "occlusion", "integrated-gradients"], {"steps": 3})
    return scores(ex.attribute(encoded(ex), [Question(1)] * 2, plan))


def score(ex: whence.Explainer) -> Any:
    terms = [Term((0,), (1,), (0,))] * 2
    return score_rows(ex.session, encoded(ex), terms, batch_tokens=64, progress=False).y.tolist()


def evaluate(ex: whence.Explainer) -> Any:
    """The rows that an erasure metric wants, of a model without a token that could stand in for others."""
    wanted = Wanted(encoded(ex)[0], Term((0,), (1,), (0,)))
    wanted.ask(Steps("pad", np.arange(4), (1, 2)))
    task = ex.session.task
    bare = Session(ex.model, replace(task, encoder=replace(task.encoder, tokenizer=None)), ex.session.lm_heads)
    with counting("evaluating", 0, False) as counter, pytest.raises(whence.NotSupported, match="no 'pad' token"):
        Perturber(bare, 64).answer([wanted], counter)


def serve(ex: whence.Explainer) -> Any:
    found = run_jobs(ex, [Predict(Asked("a good film")), Predict(Asked("a good film"), (1,))])
    return [answer.prediction.probabilities for answer in found]


def load(ex: whence.Explainer) -> Any:
    again = whence.load(ex.model, ex.tokenizer)
    return again.session.task.pad_id, again.session.task.encoder.special_ids, predict(again)


def predict(ex: whence.Explainer) -> Any:
    return [prediction.probabilities for prediction in ex.predict([ROW, LONG])]


def explain(ex: whence.Explainer) -> Any:
    return [e.scores.tolist() for e in ex.explain([ROW, LONG], "cat", 1)]


READERS = (attribute, score, evaluate, serve, load, predict, explain)


@pytest.mark.parametrize("read", READERS, ids=lambda read: str(read.__name__))
def test_whoever_reads_a_model_waits_for_the_thread_that_has_it(read: Callable[[whence.Explainer], Any]) -> None:
    model = architectures.build("gpt2", torch.float32, pad_token_id=None)
    explainer = whence.load(model, architectures.tokenizer())
    alone = read(explainer)
    with lent_elsewhere(model):
        beside = read(explainer)
    assert beside == alone


def test_what_a_model_reads_is_tried_when_nobody_has_it() -> None:
    def built() -> PreTrainedModel:
        return architectures.build("gpt2", torch.float32, pad_token_id=None)

    model, alone = built(), reads_of(built())
    with lent_elsewhere(model):
        beside = reads_of(model)
    assert beside == alone


def test_heads_are_counted_when_nobody_else_has_the_model() -> None:
    model, tokenizer = architectures.build("gpt2", torch.float32, pad_token_id=None), architectures.tokenizer()
    sentences = [Sentence(text, ()) for text in ("a good film", "the story was very dull and never moving")]
    alone = heads.head_statistics(model, tokenizer, sentences, progress=False)
    with lent_elsewhere(model):
        beside = heads.head_statistics(model, tokenizer, sentences, progress=False)
    assert np.array_equal(alone.pointed, beside.pointed)


def test_models_that_share_parts_or_a_config_share_a_lock() -> None:
    config = architectures.config("bert")
    one, other = BertForSequenceClassification(config), BertForMaskedLM(config)
    apart = BertForMaskedLM(copy.deepcopy(config))
    assert lock_of(one) is lock_of(other)
    assert lock_of(one) is not lock_of(apart)
    head = BertForSequenceClassification(copy.deepcopy(config))
    head.bert = apart.bert
    assert lock_of(head) is lock_of(apart)
    assert lock_of(copy.deepcopy(one)) is not lock_of(one)


def test_a_plan_stays_as_its_caller_made_it(tmp_path: Path) -> None:
    """The head mask of one model must not become that of the next."""
    explainers = []
    for seed, mask in enumerate((HEAD_MASK, [row[::-1] for row in HEAD_MASK])):
        model = architectures.build("bert", torch.float32, seed=seed)
        explainers.append(whence.load(model, architectures.tokenizer()))
        explainers[-1].defaults = Defaults(head_mask=tmp_path / f"{seed}.json")
        heads.as_mask(mask).save(tmp_path / f"{seed}.json")
    item = {"input_ids": [2, 9, 12, 20, 3]}
    names, asked = ["mask-lrp", "attcat"], Question(1)
    for explainer in explainers:
        plan = Plan.of(names, {}, explainer.defaults)
        before = [dict(call.options) for call in plan.calls]
        assert explainer.max_pairs(plan) is not None  # which a corpus run asks first
        found = explainer.attribute([explainer.encode(item, asked)[0]], [asked], plan)["mask-lrp"][0][0]
        right = explainer.explain(item, names, 1, head_mask=explainer.defaults.head_mask)["mask-lrp"]
        assert np.array_equal(found.scores, right.scores)
        assert [dict(call.options) for call in plan.calls] == before


@contextmanager
def switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.mark.filterwarnings("ignore::whence.errors.Truncated")
def test_a_text_is_not_cut_by_the_truncation_of_another_thread() -> None:
    """How long a text may be is a setting of the tokenizer, which every call writes."""
    tokenizer = architectures.tokenizer()
    short = whence.load(architectures.build("bert", torch.float32), tokenizer)
    long = whence.load(architectures.build("bert", torch.float32, max_position_embeddings=2048), tokenizer)
    text, stop = "the film was good " * 200, threading.Event()

    def cut() -> None:
        while not stop.is_set():
            short.rows([text] * 8, [Question(1)] * 8, "truncate", 8192)

    with switching_often(), ThreadPoolExecutor(1) as pool:
        working = pool.submit(cut)
        lengths = {len(row) for _ in range(100) for row in long.rows([text] * 8, [Question(1)] * 8, "truncate", 8192)}
        stop.set()
        working.result()
    assert lengths == {802}


def test_texts_that_are_drawn_do_not_depend_on_other_threads() -> None:
    """torch has one state of chance for the whole process, whatever model draws from it."""
    explainers = [
        whence.load(architectures.build("gpt2", torch.float32, seed, "causal-lm"), architectures.tokenizer(False))
        for seed in (0, 1)
    ]

    for explainer in explainers:  # so that another thread has its turn between any two tokens
        explainer.model.register_forward_hook(lambda *_: time.sleep(0.002))

    def write(number: int) -> Any:
        found = explainers[number % 2].generate("the film", "random", max_new_tokens=12, sample=True, seed=number)
        return found.tokens

    alone = [write(number) for number in range(8)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(write, range(8))) == alone


def test_a_language_model_lends_its_head_while_it_is_explained() -> None:
    """Hooks of the thread that explains the language model must not meet the states that its head decodes."""
    model = architectures.build("llama", torch.float32)
    language_model = architectures.build("llama", torch.float32, 1, "causal-lm")
    explainer = whence.load(model, architectures.tokenizer())
    plain = explainer.explain(ROW, "decoded-grad-cam", 1, lm_head=language_model).scores
    heard: list[Any] = []
    handles = [m.register_forward_hook(lambda *args: heard.append(args)) for m in language_model.modules()]
    try:
        fresh = whence.load(model, architectures.tokenizer())
        assert np.array_equal(fresh.explain(ROW, "decoded-grad-cam", 1, lm_head=language_model).scores, plain)
    finally:
        for handle in handles:
            handle.remove()
    assert not heard
    with torch.no_grad():  # the weights are the language model's, as they are now
        language_model.model.norm.weight.mul_(-2)
    assert not np.allclose(explainer.explain(ROW, "decoded-grad-cam", 1, lm_head=language_model).scores, plain)


def test_rows_of_a_corpus_are_right_while_other_threads_explain() -> None:
    """400 rows by `attribute`, as a corpus run calls it, with two threads beside it. Words are few, so that the padding that is
    lent is the end of another row."""
    model = architectures.build("gpt2", torch.float32, pad_token_id=None)
    explainer = whence.load(model, architectures.tokenizer())
    random, stop = np.random.default_rng(0), threading.Event()
    items = [{"input_ids": [9, *random.integers(0, 4, length).tolist()]} for length in random.integers(2, 9, 60)]
    plan = Plan.of(["attcat"], {})

    def explained(start: int) -> Any:
        rows = [explainer.encode(item, Question(1))[0] for item in items[start : start + 4]]
        return scores(explainer.attribute(rows, [Question(1)] * len(rows), plan))

    def beside(number: int) -> None:
        while not stop.is_set():
            explainer.explain(items[number % 60 : number % 60 + 3], "occlusion", 1, progress=False)
            number += 1

    alone = [explained(start) for start in range(0, 60, 4)]
    with switching_often(), ThreadPoolExecutor(2) as pool:
        working = [pool.submit(beside, number) for number in (0, 30)]
        together = [[explained(start) for start in range(0, 60, 4)] for _ in range(3)]
        stop.set()
        for one in working:
            one.result()
    assert together == [alone] * 3
