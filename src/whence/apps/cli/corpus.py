"""`whence corpus`: explain a whole corpus into a Parquet dataset; `whence report`: a page of what was saved."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from whence.apps.cli.bad_rows import Strict, finish, say
from whence.apps.cli.evaluate import as_columns
from whence.apps.cli.main import app, as_number, as_options
from whence.apps.cli.pictures import put
from whence.apps.cli.saved import as_rows, bad_of, read, saved_rows, saved_run
from whence.apps.cli.streams import from_stdin
from whence.corpus.bad_rows import BadRow
from whence.corpus.cluster import Connection
from whence.errors import InputError
from whence.render.report import report_html
from whence.run.limits import BATCH_TOKENS
from whence.run.progress import duration

SHARD_ROWS = 8192


@app.command("corpus")
def corpus(
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Parquet, CSV, TSV or JSONL files, patterns or directories, or the name of a Hugging Face dataset.",
        ),
    ],
    output: Annotated[Path, typer.Option(help="Directory of the dataset; given again, the run goes on.")],
    model: Annotated[str, typer.Option(help="An embedded model's name, a directory, or a hub id.")] = "sentiment",
    method: Annotated[
        list[str] | None, typer.Option(help="A method's name; may be given several times; default: attnlrp.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="The column of the text; default: guessed.")] = None,
    pair: Annotated[str | None, typer.Option(help="The column of the second text.")] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="Which column is what, as role=NAME; roles: text, pair, question, context, answer, start, target, contrast, "
            "continuation, place."
        ),
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="A column of the input to copy into the output; repeatable.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Label, word or index to explain, or 'all'; default: the prediction.")
    ] = None,
    contrast: Annotated[str | None, typer.Option(help="Explain the target rather than this.")] = None,
    continuation: Annotated[str | None, typer.Option(help="causal-lm: explain this text after every prompt.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="An option of the methods, as name=value.")] = None,
    split: Annotated[str | None, typer.Option(help="The split of a Hugging Face dataset.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many rows.")] = None,
    shard_rows: Annotated[int, typer.Option(min=1, help="Rows of one file, and of one unit of work.")] = SHARD_ROWS,
    batch_tokens: Annotated[int, typer.Option(min=1, help="How many tokens run at once.")] = BATCH_TOKENS,
    on_long: Annotated[str, typer.Option(help="Texts over what the model reads: 'truncate' or 'error'.")] = "truncate",
    scores: Annotated[str, typer.Option(help="float32, float16 or float64 on disk.")] = "float32",
    seed: Annotated[int, typer.Option(help="Seed of methods that draw.")] = 0,
    engine: Annotated[str, typer.Option(help="'local' or 'ray'.")] = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Workers, each with a model; default: one per GPU, or one.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads of each worker.")] = None,
    address: Annotated[
        str | None, typer.Option(help="ray: the cluster's address; default: $RAY_ADDRESS, or a cluster of its own.")
    ] = None,
    gpus: Annotated[float | None, typer.Option(min=0.0, help="ray: GPUs of each worker, whole or a fraction.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …; default: every GPU there is.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, float64, bfloat16 or float16.")] = None,
    task: Annotated[str | None, typer.Option(help="qa, masked-lm, …; default: told from the model.")] = None,
    recipe: Annotated[str | None, typer.Option(help="A file that `whence tune` wrote.")] = None,
    accept_version: Annotated[
        bool, typer.Option("--accept-version", help="Go on with a run that another version of whence began.")
    ] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Tell where the time went.")] = False,
    strict: Strict = False,
) -> None:
    """Explain every row of a corpus into a Parquet dataset. Interrupted or killed, the same command goes on.

    Exit status: 0 when every row was explained, 3 when some rows hold an error instead (the last line says how many), 2 when the
    run could not go on.
    """
    columns = as_columns(column) | {k: v for k, v in (("text", text), ("pair", pair)) if v is not None}
    with Connection(address) as connection:
        if engine == "ray" and not output.exists():
            connection.begin(hiring=not gpus)  # while torch is imported
        import whence.corpus

        done = whence.corpus.run(
            named(data),
            output,
            model,
            method,
            columns=columns,
            keep=keep or [],
            target=as_number(target),
            contrast=as_number(contrast),
            continuation=continuation,
            split=split,
            limit=limit,
            shard_rows=shard_rows,
            batch_tokens=batch_tokens,
            on_long=on_long,
            scores=scores,
            seed=seed,
            engine=engine,
            workers=workers,
            threads=threads,
            address=connection,
            gpus=gpus or None,
            device=device,
            dtype=dtype,
            task=task,
            recipe=recipe,
            accept_version=accept_version,
            strict=strict,
            **as_options(option or []),
        )
    if profile:
        print(profiled(done), file=sys.stderr)
    cut = f", {done.truncated:,} texts cut to what the model reads" if done.truncated else ""
    lost = f", {done.unkept:,} kept values of another type left null (column 'facts')" if done.unkept else ""
    wrong = f", {done.errors:,} in error (column 'error')" if done.errors else ""
    short = f", {done.incomplete:,} with more than 2% unexplained (column 'facts')" if done.incomplete else ""
    new = f"{done.made:,} now in {duration(done.seconds)}" if done.made else "complete: nothing was missing"
    print(f"{done.rows:,} rows in {done.shards:,} shards in {output} ({new}){cut}{short}{lost}{wrong}")
    say(done.bad, done.rows, count=done.errors)
    finish(done.bad)


def named(data: list[str]) -> str | list[Path]:
    """One input as it was given, which may be a dataset's name; several as files, patterns and directories."""
    from whence.corpus.sources.files import NO_NAME

    if "" in data:  # as a Path it would be the directory one stands in
        raise InputError(NO_NAME)
    return data[0] if len(data) == 1 else [Path(d) for d in data]


def profiled(done: Any) -> str:
    """Stages run side by side, so that their seconds add up to more than the clock's."""
    found = done.profile
    if not done.made:
        return "profile: nothing was run"
    stages = "\n".join(f"  {name:9s}{seconds:10.1f} s" for name, seconds in found.seconds.items())
    rows, tokens = done.made / done.seconds, found.tokens / done.seconds
    return (
        f"profile: {done.seconds:.1f} s, {rows:,.0f} rows/s, {tokens:,.0f} tokens/s, padding {found.padding:.1%}; "
        f"thread seconds of each stage, which overlap:\n{stages}"
    )


@app.command("report")
def report(
    file: Annotated[
        str,
        typer.Argument(help="A directory of `whence corpus`, or the JSON (lines) of `whence explain --format json`."),
    ],
    output: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
    method: Annotated[str | None, typer.Option(help="A method of the run; default: its first.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many rows.")] = 10_000,
    label: Annotated[
        str | None,
        typer.Option(help="The kept column with the right answers: rows where the model is wrong are marked."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="The page's title.")] = None,
    strict: Strict = False,
) -> None:
    """Make one self-contained page of many explained texts, to search, filter and sort.

    Exit status: 0 when every row is on it, 3 when some rows could not be read and stand on it with their errors.
    """
    from whence.corpus.sources.runs import is_run, manifest_of

    labels = None
    if is_run(file):
        run = saved_run(file, method)
        shown, total = list(islice(run.in_place(), limit)), run.lines
        about = manifest_of(file)
        if label is not None:
            import whence.corpus

            names, values = about["labels"], whence.corpus.open(file).column(label)
            labels = [None if isinstance(row, BadRow) else as_label(next(values), names) for row in shown]
    else:
        rows = saved_rows(as_rows(from_stdin(by_line=True) if file == "-" else read(Path(file)), file))
        if rows is None:
            raise InputError(f"{file!r} holds no saved explanations: give a directory of `whence corpus`, or JSON.")
        found = [row for row in rows if isinstance(row, BadRow) or method in (None, row.method)]
        shown, total = found[:limit], len(found)
        if label is not None:
            raise InputError("--label names a column that `whence corpus --keep` kept: give such a run's directory.")
    bad = bad_of(shown)
    say(bad, len(shown), strict)
    put(report_html(shown, title=title or f"Explanations: {Path(file).name}", labels=labels), output)
    more = f" (the first of {total:,}; --limit shows more)" if total > limit else ""
    print(f"{len(shown) - len(bad):,} explanations in {output}{more}")
    finish(bad)


def as_label(value: Any, names: list[str]) -> str:
    """A class's name from its name or number."""
    number = as_number(str(value))
    return names[number] if isinstance(number, int) and 0 <= number < len(names) else str(value)
