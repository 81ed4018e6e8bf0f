"""`whence …`: thin commands over the Python interface; errors are one sentence on stderr and exit status 2."""

from __future__ import annotations

import ast
import logging
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

import whence
from whence.apps.cli.bad_rows import Strict, explain_rows, finish, say
from whence.apps.cli.pictures import SHOWN_AS, as_shown, check_format, check_look, draw_one, put
from whence.apps.cli.saved import bad_of
from whence.apps.cli.streams import from_stdin, let_go, lines_of, ready
from whence.errors import InputError, UnknownName, WhenceError, as_error, is_panic
from whence.render.table import Table
from whence.run import interrupts
from whence.version import versions

app = typer.Typer(
    name="whence",
    help="Which input tokens made a language model decide as it did?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
INTERRUPTED = interrupts.STATUS
MISTAKEN = 2
UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # of click, or of the copy of it that newer Typers bring
FORMATS = ("text", "json")
INDEX = re.compile(r"-?\d{1,18}")  # longer ones number nothing, and Python refuses those of thousands of digits


# the embedded model that serves a task when none is named
TASK_MODELS = {
    "sequence-classification": "sentiment",
    "question-answering": "qa",
    "masked-lm": "masked-lm",
    "causal-lm": "causal-lm",
}


@app.command()
def explain(
    text: Annotated[
        str | None, typer.Argument(help="The text to explain; '-' reads texts from stdin, one per line.")
    ] = None,
    pair: Annotated[str | None, typer.Option(help="The second text of a pair (e.g. a hypothesis).")] = None,
    question: Annotated[str | None, typer.Option(help="A question, answered from --context.")] = None,
    context: Annotated[str | None, typer.Option(help="Where the answer stands; '-' reads it from stdin.")] = None,
    answer: Annotated[str | None, typer.Option(help="Explain this answer; default: the model's own.")] = None,
    task: Annotated[
        str | None, typer.Option(help="qa, masked-lm, causal-lm, ner, classification; default: told from the model.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="An embedded model's name, a directory, or a hub id; default: by the task.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="A method's name; may be given several times; default: attnlrp.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Label, word or index to explain, or 'all'; default: the prediction.")
    ] = None,
    contrast: Annotated[
        tuple[str, str] | None, typer.Option(metavar="THIS THAT", help="Explain why THIS rather than THAT.")
    ] = None,
    continuation: Annotated[str | None, typer.Option(help="causal-lm: explain this text after the prompt.")] = None,
    generate: Annotated[
        int | None, typer.Option(min=1, help="causal-lm: write this many tokens and explain each.")
    ] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="Draw what --generate writes (--option seed=N), not always the likeliest.")
    ] = False,
    place: Annotated[
        str | None, typer.Option(help="Which [MASK] or token of the continuation (0, 1, … or 'all'); ner: which word.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the method, as name=value; repeatable.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="A file that `whence tune` wrote: its method and options are the defaults.")
    ] = None,
    layer_texts: Annotated[
        str | None, typer.Option(help="A file of texts on which decoded methods choose their layer (layer=auto).")
    ] = None,
    format: Annotated[str, typer.Option(help="'text', 'json', 'html' or 'latex'.")] = "text",
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of the screen.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the explanation into this file (.png, .svg, .pdf).")] = None,
    picture: Annotated[
        str | None,
        typer.Option("--kind", help="The figure: bars, layers, text, matrix or matrices; default: layers, else bars."),
    ] = None,
    theme: Annotated[str, typer.Option(help="'light' or 'dark' figures.")] = "light",
    layers: Annotated[bool, typer.Option("--layers", help="Show a block per word and layer.")] = False,
    top: Annotated[int | None, typer.Option(min=0, help="List this many of the words that weigh most.")] = None,
    pieces: Annotated[bool, typer.Option("--pieces", help="Show the tokenizer's own pieces.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, float64, bfloat16 or float16.")] = None,
    strict: Strict = False,
) -> None:
    """Explain a text: which tokens speak for the prediction, which against it.

    Exit status: 0 when every text was explained, 3 when some lines of stdin could not be read and hold an error in their place instead.
    """
    from whence.tasks.base import ALIASES, TASKS

    check_format(format, SHOWN_AS)
    check_look(theme, picture, figure=figure)
    if format != "text" and (layers or top is not None):
        raise InputError(f"--layers and --top say how --format text shows words: leave them out of {format}.")
    inputs = read_inputs(text, pair, question, context, answer)
    kind = "qa" if question is not None and task is None else task
    known = ALIASES.get(kind, kind) if kind else "sequence-classification"
    if known not in TASKS:
        raise UnknownName("task", known, (*TASKS, *ALIASES))
    name = TASK_MODELS.get(known) if model is None else model
    if name is None:
        raise InputError(f"no embedded model serves the task {known!r}: name one with --model.")
    explainer = whence.load(
        name, device=device, dtype=dtype, task=None if model is None else kind, recipe=recipe, sample=layer_texts
    )
    options = as_options(option or [])
    asked: dict[str, Any] = {"target": as_number(target), "contrast": contrast}
    asked |= {"continuation": continuation, "place": as_number(place)}
    if generate is None and sample:
        raise InputError("--sample says how --generate writes: give --generate, a number of tokens, too.")
    if generate is not None and any(value is not None for value in asked.values()):
        raise InputError(
            "--generate explains what the model itself writes: leave --target, --contrast and --continuation out."
        )

    def explained(part: list[Any]) -> list[list[whence.Explanation]]:
        """The explanations of each input."""
        if generate is None:
            answers = explainer.explain(part, method, **asked, **options)
            columns = answers.values() if isinstance(answers, dict) else [answers]
            return [[e for one in row for e in as_list(one)] for row in zip(*columns, strict=True)]
        how: dict[str, Any] = {"max_new_tokens": generate, "sample": sample, **options}
        return [list(explainer.generate(one, as_single(method), **how).explanations) for one in part]

    def unreadable(part: list[Any]) -> dict[int, str]:
        from whence.evaluate.data import unreadable as reasons

        return reasons(explainer, part, explainer.ask(**asked), "truncate" if generate is None else "error")

    if text == "-":
        rows = explain_rows(inputs, unreadable, explained, strict)
    else:
        rows = explained([item for _, item in inputs])
    flat = in_place(rows)
    if figure is not None:
        draw_one(flat, figure, picture, theme, pieces)
    put(as_shown(flat, format, pieces=pieces, top=top, layers=layers), output)
    bad = bad_of(rows)
    say(bad, len(rows))
    finish(bad)


def in_place(rows: list[Any]) -> list[Any]:
    """Every row's explanations; a row that could not be read stands as often as the others have explanations."""
    counts = {len(row) for row in rows if isinstance(row, list)}
    width = counts.pop() if len(counts) == 1 else 1
    return [one for row in rows for one in (row if isinstance(row, list) else [row] * width)]


def read_inputs(
    text: str | None, pair: str | None, question: str | None, context: str | None, answer: str | None
) -> list[tuple[str, Any]]:
    """Texts, pairs, or one question with its context, each with its place; an InputError stands for a line that is no text."""
    if question is None:
        if context is not None or answer is not None:
            raise InputError("--context and --answer go with --question.")
        if text is None:
            raise InputError("give a text to explain, or --question and --context.")
        return [(place, (t, pair) if isinstance(t, str) and pair is not None else t) for place, t in read_texts(text)]
    if text is not None or pair is not None:
        raise InputError("give a text or a --question with its --context, not both.")
    if context is None:
        raise InputError("--question needs the --context it is answered from.")
    item = {"question": question, "context": from_stdin() if context == "-" else context}
    return [("stdin", item if answer is None else {**item, "answer": answer})]


def as_single(method: list[str] | None) -> str | None:
    if method is not None and len(method) > 1:
        raise InputError("--generate takes one --method.")
    return method[0] if method else None


def as_list(one: Any) -> list[Any]:
    return one if isinstance(one, list) else [one]


def read_texts(text: str) -> list[tuple[str, Any]]:
    """The text itself, or with '-' every line of stdin, each with its place."""
    if text != "-":
        return [("", text)]
    lines = lines_of(from_stdin(by_line=True), "stdin")
    if not any(str(line).strip() for _, line in lines):
        raise InputError("stdin holds no text; give at least one line.")
    return list(lines)


def as_number(given: str | None) -> str | int | None:
    """A number on the command line is an index."""
    return int(given) if given is not None and INDEX.fullmatch(given) else given


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


@app.command("metrics")
def list_metrics() -> None:
    """List the metrics."""
    print_table(whence.metrics(), ("name", "better", "family", "paper", "needs", "presets", "summary"))


@app.command("models")
def list_models(
    export: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="NAME DIR", help="Write a model as a plain Hugging Face directory."),
    ] = None,
) -> None:
    """List the embedded models, or export one."""
    if export is not None:
        from whence.models import zoo

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
        print(", ".join(f"{name} {versions()[name]}" for name in ("whence", "python", "torch", "transformers")))
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Show the version, and torch's.")
    ] = False,
) -> None:
    """Which input tokens made a language model decide as it did?"""
    check_directory()


def check_directory() -> None:
    """Relative paths, torch and numpy need the working directory: without it Python cannot even load them."""
    try:
        os.getcwd()
    except OSError as error:
        raise InputError(
            f"the working directory is gone ({error.strerror or error}; was it deleted or moved?): change to one that exists "
            "(cd) and give the command again."
        ) from error


def main() -> None:
    """The console script: whence's own errors and warnings are sentences, never tracebacks."""
    logging.basicConfig(format="whence: %(message)s")
    logging.getLogger("whence").setLevel(logging.INFO)  # how far long work is, where there is no terminal for a bar
    warnings.showwarning = lambda message, *_, **__: print(f"whence: {message}", file=sys.stderr)
    ready()
    try:
        code = run()
        sys.stdout.flush()  # what is not written yet fails here, where it can be said, and not when Python ends
    except WhenceError as error:
        code = told(str(error))
    except BrokenPipeError:  # the reader (head, less) has seen enough
        let_go()
        code = 0
    except OSError as error:  # a disk that is full, a file that vanished
        let_go()
        about = f"{error.filename!r}: " if error.filename else ""
        code = told(f"the command could not go on: {about}{error.strerror or error}.")
    except SystemExit as end:
        interrupts.finish(end.code if isinstance(end.code, int) else MISTAKEN)
        raise
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BaseException as error:
        if not is_panic(error):
            raise
        code = told(str(as_error(error)))
    if code == INTERRUPTED:
        told("interrupted")
    interrupts.finish(code)
    sys.exit(code)


def run() -> int:
    """The command's exit status. Typer frames what is wrong with a command's words; here it is a sentence like all others."""
    try:
        code = app(standalone_mode=False)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # which Typer makes an exit with status 1
            raise end.__context__ from None
        raise
    except UsageError as error:
        context = getattr(error, "ctx", None)
        said = str(error.format_message()).rstrip(".")  # type: ignore[attr-defined]  # nothing where the help was shown instead
        return told(f"{said}; see `{context.command_path if context else 'whence'} --help`.") if said else MISTAKEN
    return code if isinstance(code, int) else 0


def told(sentence: str) -> int:
    print(f"whence: {sentence}", file=sys.stderr)
    return MISTAKEN
