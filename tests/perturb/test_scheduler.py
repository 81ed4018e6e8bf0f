"""The scheduler: the model's own answers, each distinct row once, and a model given back as it was found."""

from __future__ import annotations

import logging
import re
from typing import Any

import numpy as np
import pytest
import torch

import whence
from tests import architectures
from whence.run import progress
from whence.run.perturb import Rows, replace, score_rows
from whence.run.perturb.scheduler import unused_id
from whence.tasks import Term

TEXTS = ["a charming film", "dull", "the plot is slow , dull and never moving", "not bad !", "a charming film"]


def explainer(name: str = "bert", **changes: Any) -> whence.Explainer:
    return whence.load(architectures.build(name, **changes), architectures.tokenizer())


def label(index: int) -> Term:
    return Term((0,), (index,), (0,))


def literally(e: whence.Explainer, text: str) -> torch.Tensor:
    """The logits, one text at a time, the way anybody would ask for them."""
    with torch.no_grad():
        return e.model(**e.tokenizer(text, return_tensors="pt")).logits[0]


@pytest.mark.parametrize("batch_tokens", [1, 24, 4096])
@pytest.mark.parametrize("name", ["bert", "roberta", "deberta-v2", "gpt2"])
def test_values_are_the_models_own_at_any_budget(name: str, batch_tokens: int) -> None:
    e = explainer(name, **({} if name != "roberta" else {"max_position_embeddings": 66}))
    rows = e.session.task.encoder.encode(TEXTS)
    values = score_rows(e.session, rows, [label(i % 3) for i in range(5)], batch_tokens=batch_tokens, progress=False)
    answers = e.predict(TEXTS)
    for i in range(5):
        assert values.probability is not None
        assert values.probability[i] == pytest.approx(answers[i].probabilities[i % 3], abs=1e-9)
        assert values.predicted[i] == answers[i].index
        if name == "bert":
            assert values.y[i] == pytest.approx(float(literally(e, TEXTS[i])[i % 3]), abs=1e-9)
    assert values.forwards == 4  # the first text came twice, under two terms


def test_a_row_runs_once_for_all_its_terms() -> None:
    e = explainer()
    rows = e.session.task.encoder.encode(TEXTS[:2] * 6)
    seen = count_rows(e)
    terms = [label(i // 4) for i in range(12)]
    values = score_rows(e.session, rows, terms, batch_tokens=4096, progress=False)
    assert values.forwards == 2 == sum(seen)
    for i in range(12):
        assert values.y[i] == pytest.approx(float(literally(e, TEXTS[i % 2])[i // 4]), abs=1e-9)


def count_rows(e: whence.Explainer) -> list[int]:
    """The size of every batch that the model runs from now on."""
    seen: list[int] = []
    e.model.register_forward_pre_hook(lambda m, a, k: seen.append(len(k["input_ids"])), with_kwargs=True)
    return seen


def test_contrasts_and_log_probabilities() -> None:
    e = explainer()
    rows = e.session.task.encoder.encode(TEXTS[:1] * 3)
    terms = [label(0), Term((0,), (0,), (0,), (2,)), Term((0,), (1,), (0,), of="log-probability")]
    values = score_rows(e.session, rows, terms, batch_tokens=4096, progress=False)
    logits = literally(e, TEXTS[0])
    np.testing.assert_allclose(
        values.y, [logits[0], logits[0] - logits[2], logits.log_softmax(-1)[1]], rtol=0, atol=1e-9
    )
    assert values.log_probability is not None
    assert values.log_probability[1] == pytest.approx(float((logits[0] - logits[2]).sigmoid().log()), abs=1e-9)


def test_regression_has_no_probability_and_nothing_is_nothing() -> None:
    e = explainer(num_labels=1)
    rows = e.session.task.encoder.encode(TEXTS)
    assert score_rows(e.session, rows, [label(0)] * 5, batch_tokens=64).log_probability is None
    assert len(score_rows(e.session, [], [], batch_tokens=64).y) == 0
    with pytest.raises(whence.InputError, match="1 terms for 5 rows"):
        score_rows(e.session, rows, [label(0)], batch_tokens=64)


def test_a_decoder_answers_at_its_last_token_even_if_that_was_replaced_by_padding() -> None:
    e = explainer("gpt2")
    row = e.session.task.encoder.encode([TEXTS[2]])[0]
    last = len(row) - 1
    keep = np.ones((1, len(row)), bool)
    keep[0, last] = False
    value = score_rows(e.session, replace(row, keep, 0), [label(1)], batch_tokens=64, progress=False).y[0]
    ids = torch.tensor([[*row.input_ids[:last], 0]])
    with torch.no_grad():
        hidden = e.model.transformer(ids).last_hidden_state
        assert value == pytest.approx(float(e.model.score(hidden)[0, last, 1]), abs=1e-9)


def test_padding_for_a_model_that_has_none() -> None:
    rows = Rows(np.array([0, 1, 3, 1]), np.array([2, 2]), np.ones(4, bool), None, None, np.zeros((2, 0), np.int64))
    assert unused_id(rows) == 2
    e = explainer("gpt2", pad_token_id=None)
    encoded = e.session.task.encoder.encode(TEXTS)
    together = score_rows(e.session, encoded, [label(0)] * 5, batch_tokens=4096, progress=False).y
    alone = [score_rows(e.session, [r], [label(0)], batch_tokens=1, progress=False).y[0] for r in encoded]
    np.testing.assert_allclose(together, alone, atol=1e-9)
    assert e.model.config.pad_token_id is None


def test_the_model_is_given_back_after_an_interrupt() -> None:
    e = explainer()
    e.model.train()
    rows = e.session.task.encoder.encode(TEXTS)
    calls = []

    def interrupt(*_: object) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    handle = e.model.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        score_rows(e.session, rows, [label(0)] * 5, batch_tokens=1, progress=False)
    handle.remove()
    assert all(m.training for m in e.model.modules())
    assert all(p.requires_grad for p in e.model.parameters())


def test_memory_that_does_not_suffice_halves_the_batch() -> None:
    e = explainer()
    rows = e.session.task.encoder.encode(TEXTS)
    expected = score_rows(e.session, rows, [label(0)] * 5, batch_tokens=4096, progress=False).y

    def small(module: Any, args: Any, kwargs: Any) -> None:
        if len(kwargs["input_ids"]) > 1:
            raise torch.OutOfMemoryError("not enough memory")

    e.model.register_forward_pre_hook(small, with_kwargs=True)
    found = score_rows(e.session, rows, [label(0)] * 5, batch_tokens=4096, progress=False).y
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_logits_that_are_not_finite_are_refused() -> None:
    e = explainer()
    rows = e.session.task.encoder.encode(TEXTS)

    def break_it(module: Any, args: Any, output: Any) -> Any:
        output.logits[0, 0] = torch.nan
        return output

    e.model.register_forward_hook(break_it)
    with pytest.raises(whence.ModelError, match="not finite"):
        score_rows(e.session, rows, [label(0)] * 5, batch_tokens=4096, progress=False)


def test_progress_counts_rows_and_logs_lines_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.0)
    e = explainer()
    rows = e.session.task.encoder.encode(TEXTS)
    with caplog.at_level(logging.INFO, "whence"):
        score_rows(e.session, rows, [label(0)] * 5, batch_tokens=1, label="measuring")
        score_rows(e.session, rows, [label(0)] * 5, batch_tokens=1, label="measuring quietly", progress=False)
    assert caplog.messages[-1].startswith("measuring: 5 of 5 rows, ")
    assert re.search(r" rows/s, [\d:]+ left$", caplog.messages[-1])


def test_progress_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "SHOWN_SECONDS", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress.counting("perturbing", 10, None) as counter:
        counter.advance(4)
        counter.expect(20)
        counter.advance(4)
    shown = capsys.readouterr().err
    assert "perturbing" in shown
    assert "8 of 20 rows" in shown
    assert "rows/s" in shown
