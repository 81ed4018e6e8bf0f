"""What a run will do, found out before it begins: columns, types, methods that work, and the settings it must agree with."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whence.corpus.identity import as_setting, heads_of, masks_of, with_masks
from whence.corpus.job import Job
from whence.corpus.rows import PER_ROW, as_json, item_of, sentence
from whence.corpus.sources import Files, Source, guess_inputs, typical
from whence.corpus.sources.parquet import parquet_file
from whence.corpus.table import check_kept, kept_types
from whence.errors import Incomplete, InputError, NotSupported, Truncated, UnknownName
from whence.explainer import Explainer
from whence.registry import get_method
from whence.run.plan import Plan

ROLES = ("text", "pair", "question", "context", "answer", "start", *PER_ROW)
LOOK = 1000  # records that are looked at before the run begins


def planned(
    job: Job,
    explainer: Explainer,
    method: str | Sequence[str] | None,
    columns: Mapping[str, str],
    keep: Sequence[str],
    seed: int,
) -> Job:
    """The job with its columns found in the first records and its methods tried on the first row that can be explained."""
    if not job.rows:
        raise InputError("the data hold no rows; give at least one text.")
    head = job.source.read(0, min(job.rows, LOOK))
    names = list(map(str, typical(head, columns) or ()))
    job = replace(job, roles=roles_of(names, columns), keep=kept_of(job.source, head, names, keep))
    if names and not job.roles and "input_ids" not in names:
        raise InputError(
            f"no column with a text among {', '.join(names)}; say which by columns={{'text': NAME}} (--text NAME)."
        )
    if names:
        job.source.columns = tuple({*job.roles.values(), *job.keep, "input_ids", "token_type_ids", "attention_mask"})
    wanted = None if method is None else [method] if isinstance(method, str) else list(method)
    options = with_masks(explainer, job.options)
    if seed and any("seed" in get_method(name).defaults for name in wanted or []):
        options.setdefault("seed", seed)
    chosen = tried(job, explainer, head, wanted, options)
    return replace(job, methods=tuple(chosen), options=options)


def from_anywhere(given: Any) -> Any:
    """A path that is here, so that workers that stand elsewhere find it; a name stays a name."""
    return str(Path(given).absolute()) if isinstance(given, (str, Path)) and Path(given).exists() else given


def roles_of(names: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Columns as they were named, the rest of the model's input guessed."""
    for role, column in columns.items():
        if role not in ROLES:
            raise UnknownName("role of a column", role, ROLES)
        if column not in names:
            raise InputError(f"there is no column {column!r}; the data have: {', '.join(names) or 'no columns'}.")
    named = {"text", "pair", "question", "context"} & set(columns)
    guessed = {} if named or "input_ids" in names else guess_inputs(names)
    return {**guessed, **columns}


def kept_of(source: Source, head: Sequence[Any], names: Sequence[str], keep: Sequence[str]) -> dict[str, Any]:
    for name in keep:
        if name not in names:
            raise InputError(f"there is no column {name!r} to keep; the data have: {', '.join(names) or 'no columns'}.")
    check_kept(keep)
    known: dict[str, Any] = {}
    if isinstance(source, Files) and source.parts[0].path.suffix.lower() == ".parquet":
        known = {f.name: f.type for f in parquet_file(source.parts[0].path).schema_arrow}
    return kept_types(keep, head, known)


def tried(
    job: Job, explainer: Explainer, head: Sequence[Any], wanted: Sequence[str] | None, options: Mapping[str, Any]
) -> list[str]:
    """The methods, which explain the first row that can be explained; an error that every row would meet is raised now."""
    if wanted is not None:
        Plan.of(wanted, options, explainer.defaults)
    first = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Truncated)
        warnings.simplefilter("ignore", Incomplete)
        for record in head:
            try:
                if isinstance(record, InputError):
                    raise record
                item, asked = item_of(record, job)
                explainer.encode(item, explainer.ask(**asked), job.on_long)
                found = explainer.explain(item, wanted, **asked, progress=False, **options)
            except NotSupported:
                raise
            except (InputError, UnknownName) as error:
                first = first or sentence(error)
                continue
            one = found if isinstance(found, Mapping) else {one_of(found).method: found}
            return list(one)
    raise InputError(f"none of the first {len(head):,} rows can be explained. The first says: {first}")


def one_of(found: Any) -> Any:
    return found[0] if isinstance(found, list) else found


def settings_of(job: Job, explainer: Explainer, device: str, seed: int) -> dict[str, Any]:
    """What a second run into the same directory must agree with."""
    plan = Plan.of(job.methods, job.options, explainer.defaults)
    settings = {
        **job.identity,
        "lm_heads": heads_of(explainer, plan),
        "head_masks": masks_of(plan),
        "task": explainer.task,
        "dtype": str(explainer.model.dtype).removeprefix("torch."),
        "device": device,
        "methods": [
            {"name": call.name, "options": {k: as_setting(v) for k, v in call.options.items()}} for call in plan.calls
        ],
        "asked": {name: value for name, value in job.asked.items() if value is not None},
        "columns": dict(job.roles),
        "keep": list(job.keep),
        "data": job.source.identity(),
        "rows": job.rows,
        "shard_rows": job.shard_rows,
        "batch_tokens": job.batch_tokens,
        "on_long": job.on_long,
        "scores": job.scores,
        "seed": seed,
    }
    plain: dict[str, Any] = json.loads(as_json(settings))
    return plain
