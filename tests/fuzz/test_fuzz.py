"""Fuzzing by hypothesis: raw bytes, and data that are nearly right, into everything whence reads."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import whence
from tests import architectures
from tests.fuzz.targets import TARGETS

# the suite draws the same cases every time, so that a failure means a change; `make fuzz` looks for new ones (WHENCE_FUZZ=10: ten times as many)
DEPTH = int(os.environ.get("WHENCE_FUZZ", "0"))
SETTINGS = settings(
    max_examples=40 * (DEPTH or 1),
    deadline=None,
    derandomize=not DEPTH,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
SCALARS = st.none() | st.booleans() | st.integers(-3, 80) | st.floats() | st.text(max_size=8) | st.integers()
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
WORDS = st.lists(st.sampled_from([*architectures.WORDS, "[MASK]", "[SEP]", "🎬", "\x00", "=1+1", "<b>"]), max_size=70)
IDS = st.lists(st.integers(-1, len(architectures.VOCABULARY)), max_size=70)


def record(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """JSON objects that are nearly right: each field right, anything, or missing."""
    return st.fixed_dictionaries({}, optional={k: v | JSON for k, v in fields.items()}).map(as_bytes)


def as_bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True).encode()


TEXTS = WORDS.map(" ".join)
EXAMPLE = record(
    text=TEXTS,
    pair=TEXTS,
    question=TEXTS,
    context=TEXTS,
    label=st.integers(-1, 3) | st.sampled_from(["LABEL_0", "label_2", "x"]),
    rationales=st.lists(st.lists(st.integers(-1, 9), min_size=2, max_size=2)) | st.lists(st.integers(0, 1)),
    answer=TEXTS,
    start=st.integers(-1, 9),
    input_ids=IDS,
)
LINES = st.lists(EXAMPLE, min_size=1, max_size=3).map(b"\n".join)
CELLS = st.lists(st.lists(st.text(max_size=9), min_size=1, max_size=4).map(",".join), max_size=4).map("\n".join)
TABLE = st.builds(
    lambda head, body: f"{head}\n{body}".encode("utf-8", "surrogatepass"),
    st.sampled_from(
        ["text,label", "text", "premise,hypothesis,label", "label", "text,text", "question,context,answer,start"]
    ),
    CELLS,
)
METHOD_NAMES = st.sampled_from(
    ["cat", "gradient", "occlusion", "integrated-gradients", "alti", "decoded-grad-cam", "none"]
)
# no numbers that would only ask for a long run
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 12) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=2),
    max_leaves=4,
)
OPTIONS = st.dictionaries(
    st.sampled_from(["layer", "norm", "of", "steps", "window", "variant", "aggregate"]), VALUES, max_size=2
)
GRIDS = st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), min_size=3, max_size=3)
COLUMNS = st.sampled_from(
    ["1", "2", "1-2", "3-1", "1.1", "_", "0", "nsubj", "film", "a", "SpaceAfter=No", "", "x-y", "9"]
)
PARSES = st.lists(st.lists(COLUMNS, min_size=9, max_size=10).map("\t".join), max_size=5).map("\n".join).map(str.encode)
METHODS_OF_A_RUN = st.fixed_dictionaries(
    {"methods": VALUES | st.lists(st.fixed_dictionaries({"name": METHOD_NAMES, "options": OPTIONS}))}
)
NEARLY: dict[str, st.SearchStrategy[bytes]] = {
    "text": st.text(max_size=90).map(lambda s: s.encode("utf-8", "surrogatepass")) | TEXTS.map(str.encode),
    "row": record(
        input_ids=IDS, token_type_ids=st.lists(st.integers(0, 2)), attention_mask=st.lists(st.integers(0, 1))
    ),
    "data-jsonl": LINES,
    "data-csv": TABLE,
    "data-tsv": TABLE.map(lambda data: data.replace(b",", b"\t")),
    "rows-jsonl": LINES,
    "rows-csv": TABLE,
    "rows-tsv": TABLE.map(lambda data: data.replace(b",", b"\t")),
    "csv-rows": st.text('ab",\n\r\ufeff', max_size=60).map(str.encode),
    "lines": st.lists(
        EXAMPLE | record(tokens=st.just([]), error=TEXTS, place=TEXTS) | st.binary(max_size=9), max_size=4
    ).map(b"\n".join),
    "manifest": record(settings=VALUES | METHODS_OF_A_RUN, shards=VALUES, runs=VALUES),
    "recipe": record(method=METHOD_NAMES, options=OPTIONS, tuned=st.dictionaries(METHOD_NAMES, OPTIONS, max_size=2)),
    "mask": record(format=st.just("whence head mask 1"), heads=GRIDS, syntactic=GRIDS, positional=GRIDS),
    "conllu": PARSES,
    "stored-explanation": record(
        tokens=st.lists(st.text(max_size=4), max_size=4),
        scores=st.lists(st.floats(), max_size=4),
        target=st.text(max_size=4),
        target_index=st.integers(0, 3),
        method=st.just("gae"),
        input_ids=st.lists(st.integers(0, 9), max_size=4),
        special=st.lists(st.booleans(), max_size=4),
        offsets=st.lists(st.lists(st.integers(-1, 5), max_size=3), max_size=4),
        dtype=st.sampled_from(["float32", "float64", "object", "complex64", "no"]),
        layers=st.lists(st.lists(st.floats(), max_size=4), max_size=4),
        word_ids=st.lists(st.none() | st.integers(0, 3), max_size=4),
        segments=st.lists(st.none() | st.integers(0, 1), max_size=4),
    ),
}


@pytest.mark.parametrize("name", TARGETS)
@SETTINGS
@given(data=st.binary(max_size=200) | JSON.map(as_bytes))
def test_any_bytes_end_in_a_sentence_or_an_answer(name: str, data: bytes) -> None:
    TARGETS[name](data)


@pytest.mark.parametrize("name", NEARLY)
@SETTINGS
@given(data=st.data())
def test_what_is_nearly_right_ends_in_a_sentence_or_an_answer(name: str, data: st.DataObject) -> None:
    TARGETS[name](data.draw(NEARLY[name]))


CHOICES = [(m["name"], option) for m in whence.methods() for option in whence.registry.get_method(m["name"]).defaults]


@pytest.mark.parametrize(("method", "option"), CHOICES)
@settings(SETTINGS, max_examples=12 * (DEPTH or 1))
@given(value=VALUES)
def test_any_value_of_an_option(method: str, option: str, value: Any) -> None:
    TARGETS["recipe"](as_bytes({"method": method, "options": {option: value}}))
