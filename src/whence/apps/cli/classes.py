"""`whence classes`: which words a model leans on, per predicted class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import whence
from whence.apps.cli.bad_rows import Strict, finish, say
from whence.apps.cli.evaluate import as_columns
from whence.apps.cli.main import app, as_options
from whence.apps.cli.pictures import check_format, check_look, put
from whence.apps.cli.saved import as_rows, bad_of, models_of, read, saved_rows, saved_run
from whence.apps.cli.streams import from_stdin, json_line
from whence.corpus.bad_rows import BadRow
from whence.errors import InputError
from whence.explanation import Explanation
from whence.render.canvas import write
from whence.render.classes import classes_html, classes_text
from whence.render.clouds import clouds_figure
from whence.render.curves import Curve, curves_figure

if TYPE_CHECKING:
    from whence.evaluate.classes import Background, ClassWords

FORMATS = ("text", "json", "html")
METHOD = "attnlrp"
MODEL = "sentiment"
TABLES = (".parquet", ".csv", ".tsv")


@app.command("classes")
def classes(
    file: Annotated[
        str | None,
        typer.Argument(
            help="Texts, one per line ('-': stdin); a corpus: .parquet, .csv, .tsv or .jsonl; or a saved run: a directory of "
            "`whence corpus`, or what `whence explain --format json` wrote. Without it, the embedded model's own sample texts."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="An embedded model's name, a directory, or a hub id; default: sentiment.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="The method that scores the words; default: attnlrp, or a saved run's first.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the method, as name=value; repeatable.")
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="Which column of a corpus is what, as text=NAME; repeatable.")
    ] = None,
    background: Annotated[
        str,
        typer.Option(
            help="How rare words are: 'builtin' (English word ranks), 'own' (these texts), or a file like the corpus."
        ),
    ] = "builtin",
    top: Annotated[int, typer.Option(min=1, help="Words per class.")] = 10,
    examples: Annotated[int, typer.Option(min=0, help="Texts shown under each word.")] = 1,
    format: Annotated[str, typer.Option(help="'text', 'json' or 'html'.")] = "text",
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of the screen.")] = None,
    cloud: Annotated[Path | None, typer.Option(help="Draw word clouds into this file (.png, .svg, .pdf).")] = None,
    overlap: Annotated[Path | None, typer.Option(help="Draw the overlap of the classes' words into this file.")] = None,
    theme: Annotated[str, typer.Option(help="'light' or 'dark' figures.")] = "light",
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None,
    strict: Strict = False,
) -> None:
    """List the words a model leans on, per predicted class: summed scores, weighted by how rare a word is.

    Exit status: 0 when every row was explained, 3 when some rows could not be read (stderr names them).
    """
    check_format(format, FORMATS)
    check_look(theme)
    columns = as_columns(column)

    explanations, where, bad = saved_or_explained(
        file, model, method, as_options(option or []), device, columns, strict
    )
    texts, lost = as_background(background, columns, strict)
    from whence.evaluate.classes import class_words

    found = class_words(explanations, texts, examples=max(examples, 1))
    if cloud is not None:
        write(
            clouds_figure(
                {c: {w.word: w.score for w in words[:60]} for c, words in found.classes.items()}, theme=theme
            ),
            cloud,
        )
    if overlap is not None:
        write(overlap_figure(found, theme), overlap)
    if format == "json":
        put(json_line({**as_data(found, top), "errors": [row.to_dict() for row in bad]}), output)
    elif format == "html":
        put(classes_html(found, explanations, k=top, title=f"Words per class: {where}"), output)
    else:
        put(classes_text(found, explanations, k=top, examples=examples), output)
    finish([*bad, *lost])


def saved_or_explained(
    file: str | None,
    model: str | None,
    method: str | None,
    options: dict[str, Any],
    device: str | None,
    columns: dict[str, str],
    strict: bool,
) -> tuple[Sequence[Explanation | None], str, Sequence[BadRow]]:
    """Explanations of a saved run, or of texts that are explained now, with None in the place of a row that could not be read; what
    they are of; and those rows."""
    from whence.corpus.sources.runs import is_run
    from whence.evaluate import data
    from whence.models import zoo

    chosen = MODEL if model is None else model
    if file is None:
        samples = zoo.samples(chosen)
        if not samples or "text" not in samples[0]:
            raise InputError(f"{chosen!r} has no sample texts of its own; give a file of texts, one per line.")
        examples = data.read([row["text"] for row in samples])
    else:
        if is_run(file):
            check_explains_nothing(file, model, options)
            return of_run(file, method, strict)
        rows = rows_of(file)
        saved = saved_rows(rows)
        if saved is not None:
            check_explains_nothing(file, model, options)
            bad = bad_of(saved)
            say(bad, len(saved), strict)
            return [None if isinstance(row, BadRow) else row for row in saved], models_of(saved) or file, bad
        if not rows:
            raise InputError(f"{file!r} holds no text; give at least one line.")
        examples = data.examples_of(rows, columns)
    explainer = whence.load(chosen, device=device)
    sample = data.checked(explainer, examples, strict)
    explanations: list[Explanation | None] = [None] * sample.total
    explained = explainer.explain([e.input for e in sample.examples], method or METHOD, **options)
    for row, explanation in zip(sample.rows, explained, strict=True):
        explanations[row] = explanation
    return explanations, chosen, sample.bad


def of_run(directory: str, method: str | None, strict: bool) -> tuple[Sequence[Explanation], str, Sequence[BadRow]]:
    """What a run holds, rows in error left out; the model; and those rows."""
    import whence.corpus
    from whence.corpus.sources.runs import manifest_of

    explanations, run = saved_run(directory, method), whence.corpus.open(directory)
    name = Path(directory).name
    bad = [BadRow(row, f"{name}, row {row}", error) for row, error in run.errors()]
    say(bad, len(run), strict)
    return explanations, str(manifest_of(directory)["model"]), bad


def check_explains_nothing(file: str, model: str | None, options: dict[str, Any]) -> None:
    """Saved explanations are shown as they are: what would make others is refused."""
    if model is not None or options:
        raise InputError(f"{file!r} holds explanations already: leave --model and --option out, or give texts.")


def rows_of(file: str) -> list[tuple[str, Any]]:
    """Rows of a table, JSON, JSON lines, or plain lines, each with its place; an InputError stands where one cannot be read."""
    from whence.evaluate import data

    if file.lower().endswith(TABLES):
        return list(data.placed_of(file, None, None))
    return as_rows(from_stdin(by_line=True) if file == "-" else read(Path(file)), file)


def as_background(name: str, columns: dict[str, str], strict: bool) -> tuple[Background | None, Sequence[BadRow]]:
    """How rare words are, and the rows of a background corpus that could not be read."""
    from whence.evaluate import data
    from whence.evaluate.classes import Background
    from whence.models import zoo

    if name == "builtin":
        return Background.of_ranks(zoo.words_by_frequency()), []
    if name == "own":
        return None, []
    examples = data.examples_of(rows_of(name), columns)
    reasons = [e.error or (None if is_text(e.input) else "the text is empty, or none.") for e in examples]
    bad = [data.bad_row(i, examples[i], reason) for i, reason in enumerate(reasons) if reason is not None]
    say(bad, len(examples), strict)
    inputs = [e.input for e, reason in zip(examples, reasons, strict=True) if reason is None]
    return Background.of_texts([t for one in inputs for t in texts_of(one)], Path(name).name), bad


def is_text(one: Any) -> bool:
    """Whether an input is text, with a word in it."""
    parts = [one] if isinstance(one, str) else one.values() if isinstance(one, dict) else one
    return isinstance(parts, Iterable) and any(isinstance(part, str) and part.strip() for part in parts)


def texts_of(one: Any) -> list[str]:
    """The texts of an input: itself, both of a pair, a question's context."""
    return [one] if isinstance(one, str) else [str(t) for t in (one.values() if isinstance(one, dict) else one)]


def overlap_figure(found: ClassWords, theme: str) -> Any:
    curve = found.overlap_curve()
    if not curve["x"] or len(found.classes) < 2:
        raise InputError("an overlap needs two classes with at least one word each.")
    drawn: Curve = {"x": curve["x"], "mean": curve["mean"]}
    return curves_figure(
        {found.method: drawn}, "strongest words of each class", "shared by two classes (%)", theme=theme
    )


def as_data(found: ClassWords, top: int) -> dict[str, Any]:
    return {
        "method": found.method,
        "background": found.background,
        "texts": found.texts,
        "classes": {name: [asdict(w) for w in words] for name, words in found.top(top).items()},
        "overlap": found.overlap_curve(),
    }
