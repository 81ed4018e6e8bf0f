"""Cost against one thing at a time: tokens, rows, layers, vocabulary, number of methods. Curves for docs/speed.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import whence
from bench.measure import Runs, measure
from bench.ours import explaining, single_pass_methods
from bench.peers import Company
from bench.settings import Settings, multiplying
from bench.shapes import TINY, Shape, bert, bert_lm, floor, forward, random_rows
from bench.table import Row, Table

SMALL = Shape(4, 192, 12, 8000, 4096)  # narrow, so that curves take a minute each; docs/speed.md says what carries over
METHODS = ("gradient", "rollout", "gae", "attnlrp", "transatt", "alti")
Point = tuple[int, Runs]


def tables(settings: Settings, company: Company) -> Iterator[Table]:
    shape = TINY if settings.quick else SMALL
    axes: dict[str, Callable[[Settings, Shape], Iterable[Point]]] = {
        "tokens": by_tokens,
        "rows": by_rows,
        "layers": by_layers,
        "words in the vocabulary": by_words,
        "methods": by_methods,
    }
    for axis, points in axes.items():
        yield curve(settings, shape, axis, points(settings, shape))


def curve(settings: Settings, shape: Shape, axis: str, points: Iterable[Point]) -> Table:
    rows: list[Row] = []
    with multiplying(settings.precision):
        for x, runs in points:
            for row in measure(runs, settings, 2):
                row.x, row.series, row.name = x, row.name, f"{row.name}, {x:,} {axis}"
                rows.append(row)
    return Table(f"Cost against {axis}: {shape}, {settings.where()}", rows, axis=axis)


def methods_on(settings: Settings, shape: Shape, rows: int, tokens: int, names: Iterable[str] = METHODS) -> Runs:
    model = bert(shape, settings.device, settings.precision)
    texts = random_rows(rows, tokens, shape.words)
    explainer = whence.load(model)
    return {"floor": floor(model, texts), **{name: explaining(explainer, texts, name) for name in names}}


def by_tokens(settings: Settings, shape: Shape) -> Iterator[Point]:
    """One row."""
    for tokens in (16, 32) if settings.quick else (64, 128, 256, 512, 1024, 2048, 4096):
        yield tokens, methods_on(settings, shape, 1, tokens)


def by_rows(settings: Settings, shape: Shape) -> Iterator[Point]:
    """64 tokens each."""
    for rows in (1, 2) if settings.quick else (1, 2, 4, 8, 16, 32):
        yield rows, methods_on(settings, shape, rows, 16 if settings.quick else 64)


def by_layers(settings: Settings, shape: Shape) -> Iterator[Point]:
    """4 rows of 128 tokens."""
    for layers in (1, 2) if settings.quick else (2, 4, 8, 16):
        yield layers, methods_on(settings, replace(shape, layers=layers), *((1, 16) if settings.quick else (4, 128)))


def by_words(settings: Settings, shape: Shape) -> Iterator[Point]:
    """Decoded saliency, one row of 128 tokens, one layer and all."""
    for words in (500, 1000) if settings.quick else (4000, 8000, 16_000, 32_000, 64_000):
        sized = replace(shape, words=words)
        model = bert(sized, settings.device, settings.precision)
        explainer, head = whence.load(model), bert_lm(sized, settings.device, settings.precision)
        texts = random_rows(1, 16 if settings.quick else 128, words)
        runs: Runs = {
            "forward": forward(model, texts),
            "decoded, one layer": explaining(explainer, texts, "decoded-grad-cam", lm_head=head),
            "decoded, all layers": explaining(explainer, texts, "decoded-grad-cam", lm_head=head, layer="all"),
        }
        yield words, runs


def by_methods(settings: Settings, shape: Shape) -> Iterator[Point]:
    """The first k single-pass methods, in one call and each in a call of its own; 4 rows of 128 tokens."""
    model = bert(shape, settings.device, settings.precision)
    texts = random_rows(*((1, 16) if settings.quick else (4, 128)), shape.words)
    explainer = whence.load(model)
    names = [m.name for m in single_pass_methods()]
    for count in (1, 2) if settings.quick else (1, 2, 4, 8, len(names)):
        each = [explaining(explainer, texts, name) for name in names[:count]]
        yield (
            count,
            {
                "in one call": explaining(explainer, texts, names[:count]),
                "one call each": lambda each=each: [run() for run in each],  # type: ignore[misc]
            },
        )
