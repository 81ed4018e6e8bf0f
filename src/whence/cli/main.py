"""`whence …`: thin commands over the Python interface; errors are one sentence on stderr and exit status 2."""

from __future__ import annotations

import ast
import json
import sys
import warnings
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

import whence
from whence import zoo
from whence.errors import InputError, UnknownName, WhenceError
from whence.explanation import Explanation
from whence.render.terminal import explanation_text
from whence.table import Table

app = typer.Typer(
    name="whence",
    help="Which input tokens made a language model decide as it did?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
FORMATS = ("text", "json")


@app.command()
def explain(
    text: Annotated[str, typer.Argument(help="The text to explain; '-' reads texts from stdin, one per line.")],
    pair: Annotated[str | None, typer.Option(help="The second text of a pair (e.g. a hypothesis).")] = None,
    model: Annotated[str, typer.Option(help="An embedded model's name, a directory, or a hub id.")] = "sentiment",
    method: Annotated[
        list[str] | None, typer.Option(help="A method's name; may be given several times; default: attnlrp.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Label or index to explain, or 'all'; default: the prediction.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the method, as name=value; repeatable.")
    ] = None,
    format: Annotated[str, typer.Option(help="'text' or 'json'.")] = "text",
    top: Annotated[int | None, typer.Option(min=0, help="List this many of the words that weigh most.")] = None,
    pieces: Annotated[bool, typer.Option("--pieces", help="Show the tokenizer's own pieces.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, float64, bfloat16 or float16.")] = None,
) -> None:
    """Explain a text: which tokens speak for the prediction, which against it."""
    if format not in FORMATS:
        raise UnknownName("format", format, FORMATS)
    texts = read_texts(text)
    inputs: list[Any] = [(t, pair) for t in texts] if pair is not None else list(texts)
    explainer = whence.load(model, device=device, dtype=dtype)
    found = explainer.explain(inputs, method, as_target(target), **as_options(option or []))
    columns = found.values() if isinstance(found, dict) else [found]
    flat = [e for per_input in zip(*columns, strict=True) for one in per_input for e in as_list(one)]
    if format == "json":
        dicts = [e.to_dict() for e in flat]
        print(json.dumps(dicts[0] if len(dicts) == 1 else dicts, ensure_ascii=False, allow_nan=False))
        return
    print("\n\n".join(explanation_text(e, pieces=pieces, top=top) for e in flat))


def as_list(one: Explanation | list[Explanation]) -> list[Explanation]:
    return one if isinstance(one, list) else [one]


def read_texts(text: str) -> list[str]:
    """The text itself, or with '-' every line of stdin that is not blank."""
    if text != "-":
        return [text]
    lines = [line.rstrip("\r\n") for line in sys.stdin if line.strip()]
    if not lines:
        raise InputError("stdin holds no text; give at least one line.")
    return lines


def as_target(target: str | None) -> str | int | None:
    """A number on the command line is an index."""
    return int(target) if target is not None and target.lstrip("-").isdecimal() else target


def as_options(pairs: list[str]) -> dict[str, Any]:
    """name=value pairs; values are Python literals where they read as such, strings elsewhere.

    >>> as_options(["layer=3", "variant=paper"])
    {'layer': 3, 'variant': 'paper'}
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--option {pair!r} must read name=value.")
        try:
            options[name.replace("-", "_")] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[name.replace("-", "_")] = value
    return options


@app.command("methods")
def list_methods() -> None:
    """List the attribution methods."""
    print_table(whence.methods(), ("name", "family", "paper", "cost", "options", "summary"))


@app.command("models")
def list_models(
    export: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="NAME DIR", help="Write a model as a plain Hugging Face directory."),
    ] = None,
) -> None:
    """List the embedded models, or export one."""
    if export is not None:
        name, directory = export
        print(f"{name} written to {zoo.export(name, directory)}")
        return
    print_table(whence.models(), ("name", "task", "labels", "MB", "measured"))


def print_table(table: Table, columns: tuple[str, ...]) -> None:
    """A table for people on a terminal; tab-separated lines for programs elsewhere."""
    if not sys.stdout.isatty():
        print("\n".join("\t".join(str(row[c]) for c in columns) for row in table))
        return
    shown = RichTable(*columns, header_style="bold", show_lines=False)
    for row in table:
        shown.add_row(*(str(row[c]) for c in columns))
    Console().print(shown)


def version(show: bool) -> None:
    if show:
        print(f"whence {whence.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Which input tokens made a language model decide as it did?"""


def main() -> None:
    """The console script: whence's own errors and warnings are sentences, never tracebacks."""
    warnings.showwarning = lambda message, *_, **__: print(f"whence: {message}", file=sys.stderr)
    try:
        app()
    except WhenceError as error:
        print(f"whence: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("whence: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader (head, less) has seen enough
        sys.stderr.close()
        sys.exit(0)
