"""Which column plays which role, and the input that a record makes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from whence.errors import InputError
from whence.inputs.encode import ROW_KEYS

# role → names that columns go by, the likeliest first
TEXT = ("text", "sentence", "review", "content", "document", "prompt")
PAIRS = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("text_a", "text_b"),
    ("question", "sentence"),
    ("text", "pair"),
)
LABEL = ("label", "labels", "class", "gold_label")
RATIONALES = ("rationales", "rationale", "evidence")
ANSWER, START = ("answer", "answers"), ("start", "answer_start")


def guess(names: Sequence[str]) -> dict[str, str]:
    """Which column plays which role.

    >>> guess(["premise", "hypothesis", "label"])
    {'text': 'premise', 'pair': 'hypothesis', 'label': 'label'}
    """
    found = guess_inputs(names)
    for role, candidates in (("label", LABEL), ("rationales", RATIONALES), ("answer", ANSWER), ("start", START)):
        name = next((c for c in candidates if c in names), None)
        if name is not None:
            found[role] = name
    return found


def guess_inputs(names: Sequence[str]) -> dict[str, str]:
    """The columns that the model reads.

    >>> guess_inputs(["id", "question", "context", "answers"])
    {'question': 'question', 'context': 'context'}
    """
    pair = next((p for p in PAIRS if set(p) <= set(names)), None)
    if {"question", "context"} <= set(names):
        return {"question": "question", "context": "context"}
    if pair:
        return {"text": pair[0], "pair": pair[1]}
    text = next((c for c in TEXT if c in names), None)
    return {} if text is None else {"text": text}


def typical(records: Iterable[Any], columns: Mapping[str, str]) -> Mapping[str, Any] | None:
    """The record whose columns are taken for those of all: the first that has what is named and something that a model reads, else
    the first that has columns at all.

    >>> typical([{"oops": 1}, {"text": "good"}], {})
    {'text': 'good'}
    """
    tables = [record for record in records if isinstance(record, Mapping)]
    return next((record for record in tables if is_typical(record, columns)), tables[0] if tables else None)


def is_typical(record: Mapping[str, Any], columns: Mapping[str, str]) -> bool:
    readable = columns or "input_ids" in record or guess_inputs(list(map(str, record)))
    return bool(readable) and set(columns.values()) <= set(record)


def input_of(record: Mapping[str, Any], roles: Mapping[str, str]) -> Any:
    """What the model is given of a record: a question with its context, ids, a pair, or a text.

    >>> input_of({"review": "good", "stars": 5}, {"text": "review"})
    'good'
    """
    if "question" in roles and "context" in roles:
        return {"question": record[roles["question"]], "context": record[roles["context"]]}
    if "input_ids" in record:
        return {key: record[key] for key in ROW_KEYS if record.get(key) is not None}
    if "text" in roles:
        return (record[roles["text"]], record[roles["pair"]]) if "pair" in roles else record[roles["text"]]
    raise InputError(
        f"no column with a text among {', '.join(map(str, record))}; say which by columns={{'text': NAME}} "
        "(--column text=NAME)."
    )
