"""`whence heads`: which heads are syntactic or positional, as a table, a mask file and a picture."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import whence
from whence.apps.cli.main import FORMATS, app, print_table
from whence.apps.cli.saved import read as text_of
from whence.errors import InputError, UnknownName
from whence.render.canvas import write
from whence.render.heads import mask_figure
from whence.render.table import Table
from whence.run.limits import XI_POSITIONAL, XI_SYNTACTIC

if TYPE_CHECKING:
    from whence.evaluate.heads.conllu import Sentence
    from whence.evaluate.heads.statistics import HeadStatistics
    from whence.relevance.head_mask import HeadMask

COLUMNS = ("layer", "head", "kind", "function", "share", "threshold")


@app.command("heads")
def heads(
    files: Annotated[
        list[Path], typer.Argument(help="CoNLL-U files (.gz too); with --parser, text files, a text per line.")
    ],
    model: Annotated[str, typer.Option(help="An embedded model's name, a directory, or a hub id.")] = "sentiment",
    output: Annotated[Path | None, typer.Option(help="Write the mask to this JSON file.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the mask into this file (.png, .svg, .pdf).")] = None,
    xi_synt: Annotated[
        float, typer.Option(help="How far a syntactic head must beat the best fixed distance.")
    ] = XI_SYNTACTIC,
    xi_pos: Annotated[
        float, typer.Option(help="How often a positional head must point to one position.")
    ] = XI_POSITIONAL,
    parser: Annotated[str | None, typer.Option(help="Parse raw text with 'stanza' or 'spacy', if installed.")] = None,
    language: Annotated[str, typer.Option(help="The language (Stanza) or pipeline (spaCy) to parse with.")] = "en",
    limit: Annotated[int | None, typer.Option(min=1, help="Use this many sentences only.")] = None,
    random: Annotated[
        int | None, typer.Option(help="Give a random mask of as many heads, drawn from this seed.")
    ] = None,
    corrupt: Annotated[
        float | None, typer.Option(help="Switch on this percentage of the mask's zeros, at random.")
    ] = None,
    format: Annotated[str, typer.Option(help="'text' or 'json'.")] = "text",
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None,
) -> None:
    """Find a model's syntactic and positional heads and make the mask that mask-lrp uses."""
    from whence.evaluate import heads as head_masks

    if format not in FORMATS:
        raise UnknownName("format", format, FORMATS)
    sentences = read(files, parser, language)[:limit]
    explainer = whence.load(model, device=device)
    if explainer.tokenizer is None:
        raise InputError("this model has no tokenizer: its heads cannot be matched with words.")
    statistics = head_masks.head_statistics(explainer.model, explainer.tokenizer, sentences)
    origin = {"model": model, "corpus": [corpus_of(file) for file in files], "whence": whence.__version__}
    mask = statistics.mask(xi_synt, xi_pos, **origin, **({"parser": parser} if parser else {}))
    if corrupt is not None:
        mask = head_masks.corrupted_mask(mask, corrupt, random or 0)
    elif random is not None:
        mask = head_masks.random_mask(mask, random)
    if output is not None:
        mask.save(output)
    if figure is not None:
        draw(mask, statistics if corrupt is None and random is None else None, (xi_synt, xi_pos), model, figure)
    report(mask, statistics.describe(xi_synt, xi_pos), statistics, format)


def read(files: Sequence[Path], parser: str | None, language: str) -> list[Sentence]:
    from whence.evaluate import heads as head_masks
    from whence.evaluate.heads.conllu import PARSERS

    if parser is None:
        return [s for file in files for s in head_masks.read_conllu(file)]
    if parser not in PARSERS:
        raise UnknownName("parser", parser, PARSERS)
    lines = [line for file in files for line in text_of(file).splitlines() if line.strip()]
    return head_masks.parse_texts(lines, parser, language)


def corpus_of(file: Path) -> str:
    """The file's name and the beginning of its digest: enough to know it again, and nothing about this machine."""
    return f"{file.name} (sha256 {hashlib.sha256(file.read_bytes()).hexdigest()[:16]})"


def draw(mask: HeadMask, statistics: HeadStatistics | None, xi: tuple[float, float], model: str, file: Path) -> None:
    panels = {k: v for k, v in mask.to_dict().items() if k != "source"}
    labels: dict[str, dict[tuple[int, int], str]] = {}
    for row in statistics.describe(*xi) if statistics else []:
        cell = labels.setdefault(row["kind"], {})
        at = (row["layer"] - 1, row["head"] - 1)
        cell[at] = f"{cell[at]} {row['function']}" if at in cell else row["function"]
    picture = mask_figure(panels, labels, f"{model}: {mask.source if not statistics else 'heads with a function'}")
    write(picture, file)


def report(mask: HeadMask, rows: list[dict[str, Any]], statistics: HeadStatistics, format: str) -> None:
    if format == "json":
        print(json.dumps({**mask.to_dict(), "provenance": mask.provenance, "heads_found": rows}, ensure_ascii=False))
        return
    print_table(Table(rows), COLUMNS)
    total = mask.array.size
    skipped = f"; {statistics.skipped} sentences too long" if statistics.skipped else ""
    print(f"{mask.count} of {total} heads in the mask, from {statistics.sentences} sentences{skipped}.")
