"""Scores of the authors' released code (float64, their own tiny models), alone and in padded batches."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whence

GOLDEN = Path(__file__).parent.parent / "golden"
PADDING = {"bert_cls": 0, "distilbert_cls": 0, "roberta_cls": 1, "gpt2_cls": None}
AVERAGED = ("attcat", "grads", "attention-gradcam")  # over all tokens: the released code counts padding among them
TOLERANCE = 2e-5  # of the largest reference score; rollout was released in float32


@cache
def groups() -> dict[tuple[str, str], list[dict[str, Any]]]:
    found = defaultdict(list)
    for case in json.loads(gzip.decompress((GOLDEN / "engine.json.gz").read_bytes())):
        found[case["model"], case["method"]].append(case)
    return dict(found)


@cache
def explainer(model: str) -> whence.Explainer:
    return whence.load(GOLDEN / "models" / model, dtype="float64")


def row(case: dict[str, Any]) -> dict[str, Any]:
    return {key: case[key] for key in ("input_ids", "attention_mask", "token_type_ids") if case[key] is not None}


def padded(case: dict[str, Any]) -> bool:
    return not case["attention_mask"][-1] and case["input_ids"][-1] == PADDING[case["model"]]


def difference(case: dict[str, Any], scores: np.ndarray) -> float:
    reference = np.array(case["scores"])[case["first"] :]
    return float(np.abs(scores[case["first"] :] - reference).max() / max(np.abs(reference).max(), 1e-12))


@pytest.mark.parametrize(("model", "method"), sorted(groups()))
def test_agrees_with_the_authors_code(model: str, method: str) -> None:
    cases = [c for c in groups()[model, method] if not (padded(c) and method in AVERAGED)]
    options = cases[0]["options"]
    alone = [explainer(model).explain(row(c), method, c["target"], **options) for c in cases]
    together = explainer(model).explain([row(c) for c in cases], method, [c["target"] for c in cases], **options)
    for case, one, many in zip(cases, alone, together, strict=True):
        assert difference(case, one.scores) <= TOLERANCE
        assert difference(case, many.scores) <= TOLERANCE


@pytest.mark.parametrize(("model", "method"), sorted({key for key in groups() if key[1] in AVERAGED}))
def test_padding_is_not_averaged_over(model: str, method: str) -> None:
    """A departure from the released code: a padded row has the scores of the row without its padding."""
    for case in filter(padded, groups()[model, method]):
        found = explainer(model).explain(row(case), method, case["target"], **case["options"])
        real = {key: value[: sum(case["attention_mask"])] for key, value in row(case).items()}
        right = explainer(model).explain(real, method, case["target"], **case["options"])
        np.testing.assert_allclose(found.scores[: len(right)], right.scores, rtol=1e-9, atol=1e-12)
        assert not found.scores[len(right) :].any()


def test_golden_covers_masks_and_every_model() -> None:
    cases = [c for group in groups().values() for c in group]
    assert {c["model"] for c in cases} == {"bert_cls", "roberta_cls", "distilbert_cls", "gpt2_cls"}
    assert sum(not all(c["attention_mask"]) and not padded(c) for c in cases) > 50
    assert sum(map(padded, cases)) > 20


def test_layers_of_attcat_sum_to_its_scores() -> None:
    case = groups()["bert_cls", "attcat"][0]
    e = explainer("bert_cls").explain(row(case), "attcat", case["target"])
    assert e.layers.shape == (3, len(e))
    np.testing.assert_allclose(e.layers.sum(0), e.scores, rtol=1e-12)
