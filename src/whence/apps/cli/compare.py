"""`whence compare`: several methods on one text, a row each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import whence
from whence.apps.cli.main import app, as_number, as_options
from whence.apps.cli.pictures import check_format, check_look, put
from whence.apps.cli.streams import json_line
from whence.render.canvas import PAGE, write
from whence.render.highlight import text_figure
from whence.render.html import compare_html, page
from whence.render.terminal import compare_text

FORMATS = ("text", "json", "html")
METHODS = ("attnlrp", "attcat", "gae", "alti", "rollout", "gradient")  # one of each family, all from two passes


@app.command("compare")
def compare(
    text: Annotated[str, typer.Argument(help="The text to explain.")],
    pair: Annotated[str | None, typer.Option(help="The second text of a pair (e.g. a hypothesis).")] = None,
    model: Annotated[str, typer.Option(help="An embedded model's name, a directory, or a hub id.")] = "sentiment",
    method: Annotated[
        list[str] | None, typer.Option(help=f"A method's name; repeatable; default: {', '.join(METHODS)}.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Label or index to explain; default: the prediction.")] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the methods that take it, as name=value; repeatable.")
    ] = None,
    delta: Annotated[
        bool,
        typer.Option("--delta", help="Also show where the first method weighs tokens differently from the others."),
    ] = False,
    format: Annotated[str, typer.Option(help="'text', 'json' or 'html'.")] = "text",
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of the screen.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the rows into this file (.png, .svg, .pdf).")] = None,
    theme: Annotated[str, typer.Option(help="'light' or 'dark' figures.")] = "light",
    pieces: Annotated[bool, typer.Option("--pieces", help="Show the tokenizer's own pieces.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None,
) -> None:
    """Compare methods on one text: a row each, on one scale."""
    check_format(format, FORMATS)
    check_look(theme)
    explainer = whence.load(model, device=device)
    given = text if pair is None else (text, pair)
    found = explainer.explain(given, list(method or METHODS), as_number(target), **as_options(option or []))
    if figure is not None:
        write(text_figure(found, width=PAGE, theme=theme, pieces=pieces, delta=delta), figure)
    if format == "json":
        put(json_line({name: e.to_dict() for name, e in found.items()}), output)
    elif format == "html":
        put(page("Methods compared", compare_html(found, pieces=pieces, delta=delta)), output)
    else:
        put(compare_text(found, pieces=pieces, delta=delta), output)
