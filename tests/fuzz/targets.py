"""What is fuzzed: functions of bytes that are given to whence as a text, a row, a file. Each may end in a sentence of whence's
(a WhenceError) or in a right answer; anything else that it raises is a bug. `test_fuzz.py` feeds them by hypothesis,
`python -m bench.fuzz TARGET` by atheris.
"""

from __future__ import annotations

import io
import json
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import whence
from tests import architectures
from whence.apps.cli.saved import as_rows, saved_rows
from whence.apps.cli.streams import decode
from whence.corpus import Saved
from whence.corpus.bad_rows import BadRow
from whence.corpus.sources import source_of
from whence.corpus.sources.files import MANIFEST
from whence.corpus.sources.tables import Lines, comma_rows
from whence.evaluate.heads.conllu import read_conllu
from whence.evaluate.recipe import read_recipe
from whence.relevance.head_mask import as_mask

METHODS = ("gae", "gradient", "occlusion")
TARGETS: dict[str, Callable[[bytes], None]] = {}


@cache
def explainer() -> whence.Explainer:
    return whence.load(architectures.model("bert"), architectures.tokenizer())


def target(function: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Register a target; what it says on purpose is no finding."""

    def guarded(data: bytes) -> None:
        with suppress(whence.WhenceError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(data)

    TARGETS[function.__name__.replace("_", "-")] = guarded
    return guarded


def written(data: bytes, suffix: str) -> Path:
    """`data` in a file that goes with its folder at the end of the process."""
    path = Path(folder().name) / f"given{suffix}"
    path.write_bytes(data)
    return path


@cache
def folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


def check(e: whence.Explanation) -> None:
    """What every answer must be."""
    assert len(e.scores) == len(e.tokens) == len(e.input_ids) == len(e.special)
    assert np.isfinite(e.scores).all()
    assert whence.Explanation.from_dict(json.loads(json.dumps(e.to_dict(), allow_nan=False))) == e
    assert e.to_html()
    assert e.to_text(color=True)
    assert e.to_latex()


@target
def text(data: bytes) -> None:
    given = (
        data.decode("utf-8", "surrogatepass" if len(data) % 2 else "replace") if valid(data) else data.decode("latin-1")
    )
    for e in explainer().explain(given, METHODS).values():
        check(e)


def valid(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


@target
def row(data: bytes) -> None:
    """A row that was tokenised elsewhere, or anything else that JSON can say."""
    given = parsed(data)
    for e in explainer().explain(given, METHODS).values():
        for one in e if isinstance(e, list) else [e]:
            check(one)


def parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return {"input_ids": list(data)}


def data_file(suffix: str) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        file = written(data, suffix)
        report = whence.evaluate(
            explainer(), file, ["gradient"], ["comprehensiveness", "rationale-f1"], limit=2, progress=False
        )
        assert json.dumps(report.to_dict(), allow_nan=False)

    run.__name__ = f"data_{suffix[1:]}"
    return target(run)


def rows_file(suffix: str) -> Callable[[bytes], None]:
    """The rows of a corpus run: as many as were counted, from wherever they are read."""

    def run(data: bytes) -> None:
        source = source_of(written(data, suffix))
        rows = list(map(repr, source.read(0, len(source))))
        half = len(source) // 2
        assert len(rows) == len(source)
        assert list(map(repr, source.read(half, len(source)))) == rows[half:]

    run.__name__ = f"rows_{suffix[1:]}"
    return target(run)


for _suffix in (".jsonl", ".csv", ".tsv", ".parquet"):
    data_file(_suffix)
    rows_file(_suffix)


@target
def csv_rows(data: bytes) -> None:
    """Every line belongs to one row, and from any row on the rest is read the same."""
    rows = list(comma_rows(Lines(io.BytesIO(data))))
    assert sum(row.lines for row in rows) == len(io.BytesIO(data).readlines())
    for i, row in enumerate(rows):
        assert list(comma_rows(Lines(io.BytesIO(data[row.at :]), row.line, row.at))) == rows[i:]


@target
def lines(data: bytes) -> None:
    """Plain lines, and lines of JSON that may be saved explanations: every line has its row, and its row its place."""
    text = decode_or_refuse(data)
    rows = as_rows(text, "given.txt")
    assert all(place.startswith("given.txt") for place, _ in rows)
    for row in saved_rows(as_rows(text, "given.jsonl")) or []:
        assert json.dumps(row.to_dict(), allow_nan=False).encode()
        assert isinstance(row, BadRow) or len(row.tokens) == len(row.scores)


def decode_or_refuse(data: bytes) -> str:
    try:
        return decode(data, "given.txt", by_line=True)
    except UnicodeDecodeError as error:
        raise whence.InputError("no line is text") from error


@target
def manifest(data: bytes) -> None:
    file = written(data, ".json")
    file.replace(file.with_name(MANIFEST))
    Saved(file.parent)


@target
def recipe(data: bytes) -> None:
    file = written(data, ".json")
    found = read_recipe(file)
    assert found.title
    check(whence.load(architectures.model("bert"), architectures.tokenizer(), recipe=file).explain("a good film"))


@target
def mask(data: bytes) -> None:
    mask = as_mask(written(data, ".json"))
    assert mask.count >= 0
    check(explainer().explain("a good film", "mask-lrp", head_mask=mask))


@target
def conllu(data: bytes) -> None:
    for sentence in read_conllu(written(data, ".conllu")):
        assert all(0 <= w.start <= w.end <= len(sentence.text) for w in sentence.words)
        assert all(-1 <= w.head < len(sentence.words) for w in sentence.words)


@target
def conllu_gz(data: bytes) -> None:
    read_conllu(written(data, ".conllu.gz"))


@target
def stored_explanation(data: bytes) -> None:
    check(whence.Explanation.from_dict(parsed(data)))
