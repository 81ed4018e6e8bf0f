"""`whence classes`: which words a model leans on, per predicted class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

import whence
from whence.classes import Background, ClassWords, class_words
from whence.cli.evaluate import as_columns
from whence.cli.main import app, as_options
from whence.cli.pictures import check_format, check_look, put
from whence.cli.saved import as_rows, models_of, read, saved_rows, saved_run
from whence.cli.streams import from_stdin, json_line
from whence.errors import InputError
from whence.explanation import Explanation
from whence.render.canvas import write
from whence.render.classes import classes_html, classes_text
from whence.render.clouds import clouds_figure
from whence.render.curves import Curve, curves_figure

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
) -> None:
    """List the words a model leans on, per predicted class: summed scores, weighted by how rare a word is."""
    check_format(format, FORMATS)
    check_look(theme)
    columns = as_columns(column)
    explanations, where = saved_or_explained(file, model, method, as_options(option or []), device, columns)
    found = class_words(explanations, as_background(background, columns), examples=max(examples, 1))
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
        put(json_line(as_data(found, top)), output)
    elif format == "html":
        put(classes_html(found, explanations, k=top, title=f"Words per class: {where}"), output)
    else:
        put(classes_text(found, explanations, k=top, examples=examples), output)


def saved_or_explained(
    file: str | None,
    model: str | None,
    method: str | None,
    options: dict[str, Any],
    device: str | None,
    columns: dict[str, str],
) -> tuple[Sequence[Explanation], str]:
    """Explanations of a saved run, or of texts that are explained now; and what they are of."""
    from whence import zoo
    from whence.data.runs import is_run, manifest_of
    from whence.evaluate import data

    chosen = MODEL if model is None else model
    if file is None:
        rows: list[Any] = zoo.samples(chosen)
        if not rows or "text" not in rows[0]:
            raise InputError(f"{chosen!r} has no sample texts of its own; give a file of texts, one per line.")
        inputs: list[Any] = [row["text"] for row in rows]
    else:
        if is_run(file):
            check_explains_nothing(file, model, options)
            return saved_run(file, method), str(manifest_of(file)["model"])
        rows = rows_of(file)
        saved = saved_rows(rows)
        if saved is not None:
            check_explains_nothing(file, model, options)
            return saved, models_of(saved) or file
        if not rows:
            raise InputError(f"{file!r} holds no text; give at least one line.")
        inputs = [e.input for e in data.read(rows, columns=columns)]
    explained: list[Explanation] = whence.load(chosen, device=device).explain(inputs, method or METHOD, **options)
    return explained, chosen


def check_explains_nothing(file: str, model: str | None, options: dict[str, Any]) -> None:
    """Saved explanations are shown as they are: what would make others is refused."""
    if model is not None or options:
        raise InputError(f"{file!r} holds explanations already: leave --model and --option out, or give texts.")


def rows_of(file: str) -> list[Any]:
    """Rows of a table, JSON, JSON lines, or plain lines."""
    from whence.evaluate import data

    if file.lower().endswith(TABLES):
        return list(data.records_of(file, None, None))
    return as_rows(from_stdin() if file == "-" else read(Path(file)), file)


def as_background(name: str, columns: dict[str, str]) -> Background | None:
    from whence import zoo
    from whence.evaluate import data

    if name == "builtin":
        return Background.of_ranks(zoo.words_by_frequency())
    if name == "own":
        return None
    inputs = [e.input for e in data.read(rows_of(name), columns=columns)]
    return Background.of_texts([t for one in inputs for t in texts_of(one)], Path(name).name)


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
