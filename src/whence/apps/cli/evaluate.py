"""`whence evaluate`, `whence tune` and `whence check`: how far explanations can be trusted, and which to use."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

import whence
from whence.apps.cli.bad_rows import Strict, finish
from whence.apps.cli.main import app, as_options, print_table
from whence.apps.cli.streams import json_line
from whence.errors import InputError, UnknownName
from whence.run.limits import BATCH_TOKENS

Data = Annotated[
    str, typer.Argument(help="A .parquet, .csv, .tsv or .jsonl file, or the name of a Hugging Face dataset.")
]
Model = Annotated[str, typer.Option(help="An embedded model's name, a directory, or a hub id.")]
Methods = Annotated[
    list[str] | None,
    typer.Option("--method", help="A method, as name or 'name(option=value)'; repeatable; default: all that apply."),
]
Columns = Annotated[
    list[str] | None, typer.Option("--column", help="Which column is what, as text=NAME, label=NAME, …; repeatable.")
]
Seed = Annotated[int, typer.Option(help="Seed of the baseline, the intervals and the tests.")]
Shuffle = Annotated[bool, typer.Option("--shuffle", help="Draw texts at random instead of taking the first.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, …")]
Dtype = Annotated[str | None, typer.Option(help="float32, float64, bfloat16 or float16.")]
Tokens = Annotated[int, typer.Option(min=1, help="How many tokens, padding included, run at once.")]


@app.command("evaluate")
def evaluate(
    data: Data,
    model: Model = "sentiment",
    method: Methods = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="A metric, as name or name:preset; repeatable; default: all that apply."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use this many texts only.")] = None,
    shuffle: Shuffle = False,
    seed: Seed = 0,
    target: Annotated[
        str, typer.Option(help="Explain the 'predicted' class, or the 'label' in the data.")
    ] = "predicted",
    column: Columns = None,
    split: Annotated[str | None, typer.Option(help="The split of a Hugging Face dataset.")] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(help="A model that differs by seed only (for jaccard and spearman); repeatable."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for tables, numbers and figures; given again, the run goes on.")
    ] = None,
    format: Annotated[str, typer.Option(help="text, json, markdown, latex or csv.")] = "text",
    batch_tokens: Tokens = BATCH_TOKENS,
    device: Device = None,
    dtype: Dtype = None,
    strict: Strict = False,
) -> None:
    """Measure methods by metrics on your data: a table with intervals and significance.

    Exit status: 0 when every row was measured, 3 when some rows could not be read (stderr names them).
    """
    from whence.evaluate.report import FORMATS

    formats = ("text", "json", *FORMATS)
    if format not in formats:
        raise UnknownName("format", format, formats)
    check_split(data, split)
    report = whence.evaluate(
        whence.load(model, device=device, dtype=dtype),
        data,
        method,
        metric,
        seed=seed,
        limit=limit,
        shuffle=shuffle,
        target=target,
        columns=as_columns(column),
        split=split,
        models=[whence.load(name, device=device, dtype=dtype) for name in against or []],
        output=output,
        batch_tokens=batch_tokens,
        strict=strict,
    )
    if format == "json":
        print(json_line(report.to_dict()))
    elif format != "text":
        print(report.table(format), end="")
    else:
        show(report)
    finish(report.errors)


def show(report: whence.Report) -> None:
    """Best in bold, ties underlined, on a terminal; marks for both elsewhere."""
    from whence.evaluate.tables import ARROWS, cell

    if not sys.stdout.isatty():
        print(report.table())
        return
    table = RichTable("method", *(f"{m} {ARROWS[report.better[m]]}" for m in report.metrics), header_style="bold")
    for name in report.rank():
        found = [report.figures[m][name] for m in report.metrics]
        table.add_row(
            name, *(f"[bold]{cell(f)}[/]" if f.best else f"[u]{cell(f)}[/]" if f.tied else cell(f) for f in found)
        )
    Console().print(table)
    print("* best; ≈ not significantly different from the best (paired permutation test, Holm-corrected, 5%).")


def check_split(data: str, split: str | None) -> None:
    from whence.corpus.sources import expand, is_run

    if split is not None and (is_run(data) or expand(data) is not None):
        raise InputError(
            f"--split {split} names a part of a Hugging Face dataset, and {data!r} is a file: leave it out."
        )


def as_columns(pairs: list[str] | None) -> dict[str, str]:
    """
    >>> as_columns(["text=body"])
    {'text': 'body'}
    """
    found = {}
    for pair in pairs or []:
        role, equals, name = pair.partition("=")
        if not equals:
            raise InputError(f"--column {pair!r} must read role=name, for example text=body.")
        found[role] = name
    return found


@app.command("tune")
def tune(
    data: Data,
    model: Model = "sentiment",
    method: Methods = None,
    output: Annotated[Path | None, typer.Option(help="Write the recipe to this JSON file.")] = None,
    objective: Annotated[
        list[str] | None, typer.Option(help="A metric of the objective; repeatable; ranks by all are averaged.")
    ] = None,
    limit: Annotated[int, typer.Option(min=8, help="Use this many texts.")] = 200,
    shuffle: Shuffle = False,
    seed: Seed = 0,
    column: Columns = None,
    split: Annotated[str | None, typer.Option(help="The split of a Hugging Face dataset.")] = None,
    format: Annotated[str, typer.Option(help="'text' or 'json'.")] = "text",
    batch_tokens: Tokens = BATCH_TOKENS,
    device: Device = None,
    dtype: Dtype = None,
    strict: Strict = False,
) -> None:
    """Find the method and options that explain a model best on a sample of your texts; no labels needed.

    Exit status: 0 when every row was used, 3 when some rows could not be read (stderr names them).
    """
    if format not in ("text", "json"):
        raise UnknownName("format", format, ("text", "json"))
    check_split(data, split)
    from whence.evaluate.tune import tune as run_tune

    tuned = run_tune(
        whence.load(model, device=device, dtype=dtype),
        data,
        method,
        objective=objective,
        limit=limit,
        shuffle=shuffle,
        seed=seed,
        columns=as_columns(column),
        split=split,
        batch_tokens=batch_tokens,
        strict=strict,
    )
    if output is not None:
        tuned.recipe.save(output)
    if format == "json":
        print(json_line(tuned.to_dict()))
    else:
        print_table(tuned.table(), ("candidate", "texts", "mean rank", *tuned.objective))
        print(tuned.sentence())
    finish(tuned.errors)


@app.command("check")
def check(
    method: Annotated[str, typer.Argument(help="The method to check.")],
    model: Model = "sentiment",
    data: Annotated[
        str | None, typer.Option(help="Texts to check on, a file or dataset; default: the embedded model's samples.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Use this many texts.")] = 16,
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the method, as name=value; repeatable.")
    ] = None,
    column: Columns = None,
    seed: Seed = 0,
    format: Annotated[str, typer.Option(help="'text' or 'json'.")] = "text",
    device: Device = None,
    dtype: Dtype = None,
    strict: Strict = False,
) -> None:
    """Is a method sane on a model? Weight randomisation, conservation, determinism, agreement: a one-page verdict."""
    if format not in ("text", "json"):
        raise UnknownName("format", format, ("text", "json"))
    from whence.evaluate.check import check as run_check

    options: dict[str, Any] = as_options(option or [])
    explainer = whence.load(model, device=device, dtype=dtype)
    how: dict[str, Any] = {"limit": limit, "seed": seed, "columns": as_columns(column), "strict": strict}
    verdict = run_check(explainer, method, data, **how, **options)
    print(json_line(verdict.to_dict()) if format == "json" else verdict)
    finish(verdict.errors)
