"""A shard as an Arrow table and as Parquet bytes: the same rows give the same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Sized
from itertools import accumulate
from typing import Any

import numpy as np

from whence import version
from whence.corpus.job import Finished, Job, Profile
from whence.corpus.rows import Row, Scored, as_json
from whence.corpus.sources.checksums import BLANK, KEY, seal
from whence.corpus.sources.runs import FORMAT
from whence.errors import UNEXPLAINED, InputError, WhenceError
from whence.inputs.numbers import short

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:  # pragma: no cover
    raise WhenceError("a corpus run writes Parquet: pip install 'whence[corpus]' (pyarrow).") from None

SPAN = pa.struct([pa.field("start", pa.int32(), False), pa.field("end", pa.int32(), False)])
# column → type, in the order of the files; kept columns stand after `row`, scores at the end
COLUMNS: dict[str, Any] = {
    "row": pa.int64(),
    "text": pa.string(),
    "pair": pa.string(),
    "target": pa.string(),
    "target_index": pa.int32(),
    "contrast": pa.string(),
    "prediction": pa.string(),
    "probability": pa.float64(),
    "truncated": pa.bool_(),
    "error": pa.string(),
    "tokens": pa.list_(pa.string()),
    "offsets": pa.list_(SPAN),
    "input_ids": pa.list_(pa.int32()),
    "special": pa.list_(pa.bool_()),
    "word_ids": pa.list_(pa.int32()),
    "segments": pa.list_(pa.int8()),
    "facts": pa.string(),
}
SCORES = "scores"
KEPT = "--keep"  # in `facts`, beside the names of methods
UNFIT = (pa.ArrowException, OverflowError, TypeError, ValueError, RecursionError)  # a value that a type does not hold
KINDS = {"float16": pa.float16(), "float32": pa.float32(), "float64": pa.float64()}


def schema_of(job: Job, metadata: Mapping[str, str] | None = None) -> Any:
    """The columns of every shard of a job."""
    kept = [pa.field(name, kind) for name, kind in job.keep.items()]
    own = [pa.field(name, kind) for name, kind in COLUMNS.items()]
    scores = pa.struct([pa.field(name, pa.list_(KINDS[job.scores])) for name in job.methods])
    return pa.schema([own[0], *kept, *own[1:], pa.field(SCORES, scores)], metadata=metadata)


def check_kept(names: Iterable[str]) -> None:
    for name in names:
        if name in COLUMNS or name == SCORES:
            raise InputError(
                f"the output has a column {name!r} of its own: rename yours to keep it, or leave --keep {name} out."
            )


def kept_types(names: Sequence[str], records: Sequence[Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The Arrow type of each kept column: the file's own, else what the first records hold, else text."""
    found = {}
    for name in names:
        kind = known.get(name)
        if kind is None:
            kind = kind_of([r.get(name) for r in records if isinstance(r, Mapping)])
        found[name] = pa.string() if pa.types.is_null(kind) else kind
    return found


def kind_of(values: Sequence[Any]) -> Any:
    """The type that holds these values in Arrow and in Parquet; text where they have none in common."""
    try:
        kind = pa.array(values).type
        pq.write_table(pa.table({"": pa.array([], kind)}), pa.BufferOutputStream())  # Parquet knows no empty structs
    except UNFIT:
        return pa.string()
    return kind


def finish(job: Job, shard: int, rows: Sequence[Row], profile: Profile) -> tuple[Finished, bytes]:
    """A shard's bytes, and what it holds in short."""
    fit_kept(job, rows)
    table = table_of(job, rows)
    finished = Finished(
        shard,
        len(rows),
        sum(row.error is not None for row in rows),
        sum(row.error is None and row.encoded is not None and row.encoded.truncated for row in rows),
        sum(len(row.encoded) for row in rows if row.encoded is not None and row.error is None),
        profile,
        sum(len(row.unkept) for row in rows),
        sum(map(is_incomplete, rows)),
    )
    short = {
        "rows": finished.rows,
        "errors": finished.errors,
        "truncated": finished.truncated,
        "tokens": finished.tokens,
        **({"unkept": finished.unkept} if finished.unkept else {}),
        **({"incomplete": finished.incomplete} if finished.incomplete else {}),
    }
    about = {
        "format": FORMAT,
        "whence": version.__version__,
        "settings": job.digest,
        "shard": shard,
        **short,
        KEY: BLANK,
    }
    out = pa.BufferOutputStream()
    table = table.replace_schema_metadata({"whence": json.dumps(about)})
    pq.write_table(table, out, compression="zstd", store_schema=True)
    return finished, seal(memoryview(out.getvalue()))


def is_incomplete(row: Row) -> bool:
    """Whether a method's scores leave too much unexplained; its facts say how much."""
    facts = [facts for scored in row.found if row.error is None for facts in scored.facts.values()]
    return any((each.get("unexplained") or 0.0) > UNEXPLAINED for each in facts)


def fit_kept(job: Job, rows: Sequence[Row]) -> None:
    """Kept values as their columns hold them. One of another type is null, and the row says why; it keeps its scores."""
    for row in rows:
        if not isinstance(row.record, Mapping):
            continue
        for name, kind in job.keep.items():
            given = row.record.get(name)
            try:
                value = as_text(given) if pa.types.is_string(kind) else given
                pa.scalar(value, kind)
            except UNFIT:
                value = None
                row.unkept[name] = f"{short(given)} is no {kind} as in the first rows"
            if value is not given:
                row.record = {**row.record, name: value}


def as_text(value: Any) -> str | None:
    """A value in a column of text.

    >>> as_text(5), as_text({"a": [1]}), as_text("5")
    ('5', '{"a": [1]}', '5')
    """
    if value is None or isinstance(value, str):
        return value
    return as_json(value) if isinstance(value, (dict, list, tuple)) else str(value)


def table_of(job: Job, rows: Sequence[Row]) -> Any:
    """One line per row and target; a row in error has one line."""
    lines: list[tuple[Row, Scored | None]] = [
        (row, s) for row in rows for s in (row.found if row.error is None else [None])
    ]
    encoded = [None if s is None else row.encoded for row, s in lines]
    columns: dict[str, Any] = {
        "row": [row.number for row, _ in lines],
        "text": [writable(row.text if e is None else e.text) for (row, _), e in zip(lines, encoded, strict=True)],
        "pair": [writable(row.pair if e is None else e.pair) for (row, _), e in zip(lines, encoded, strict=True)],
        "target": [None if s is None else s.target for _, s in lines],
        "target_index": [None if s is None else s.index for _, s in lines],
        "contrast": [None if s is None else s.contrast for _, s in lines],
        "prediction": [None if s is None else s.prediction for _, s in lines],
        "probability": [None if s is None else s.probability for _, s in lines],
        "truncated": [None if e is None else e.truncated for e in encoded],
        "error": [writable(row.error) for row, _ in lines],
        "facts": [facts_of(row, s) for row, s in lines],
    }
    arrays = {name: pa.array(values, COLUMNS[name]) for name, values in columns.items()}
    for name, values in job.keep.items():
        arrays[name] = pa.array(
            [row.record.get(name) if isinstance(row.record, Mapping) else None for row, _ in lines], values
        )
    for name in ("tokens", "input_ids", "special", "word_ids", "segments"):
        arrays[name] = lists([None if e is None else getattr(e, name) for e in encoded], COLUMNS[name])
    arrays["offsets"] = spans([None if e is None else e.offsets for e in encoded])
    missing = pa.array([s is None for _, s in lines])
    kind = pa.list_(KINDS[job.scores])
    per_method = [numbers([None if s is None else s.scores[m] for _, s in lines], kind) for m in job.methods]
    schema = schema_of(job)
    arrays[SCORES] = pa.StructArray.from_arrays(per_method, fields=list(schema.field(SCORES).type), mask=missing)
    return pa.Table.from_arrays([arrays[name] for name in schema.names], schema=schema)


def facts_of(row: Row, scored: Scored | None) -> str | None:
    """What there is to say of a row besides its columns: by method, and of kept columns that are null."""
    facts = {**(scored.facts if scored else {}), **({KEPT: row.unkept} if row.unkept else {})}
    return as_json(facts) if facts else None


def ends(values: Sequence[Sized | None]) -> Any:
    """Offsets of a list column; where a value is missing the entry before it is null."""
    at = list(accumulate((0 if v is None else len(v) for v in values), initial=0))
    return pa.array([None if i < len(values) and values[i] is None else end for i, end in enumerate(at)], pa.int32())


def lists(values: Sequence[Sequence[Any] | None], kind: Any) -> Any:
    flat = [x for v in values if v is not None for x in v]
    return pa.ListArray.from_arrays(ends(values), pa.array(flat, kind.value_type), type=kind)


def numbers(values: Sequence[np.ndarray[Any, Any] | None], kind: Any) -> Any:
    there = [v for v in values if v is not None]
    flat = np.concatenate(there) if there else np.zeros(0)
    return pa.ListArray.from_arrays(ends(values), pa.array(flat, kind.value_type), type=kind)


def spans(values: Sequence[Sequence[tuple[int, int]] | None]) -> Any:
    flat = np.array([pair for v in values if v is not None for pair in v], dtype=np.int32).reshape(-1, 2)
    structs = pa.StructArray.from_arrays([pa.array(flat[:, 0]), pa.array(flat[:, 1])], fields=list(SPAN))
    return pa.ListArray.from_arrays(ends(values), structs, type=COLUMNS["offsets"])


def writable(text: str | None) -> str | None:
    """Half characters become question marks: the row's error says that they were there."""
    return None if text is None else text.encode("utf-8", "replace").decode()
