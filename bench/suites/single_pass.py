"""What the single-pass methods cost against the floor, and beside captum and interpreto."""

from __future__ import annotations

from collections.abc import Iterator

import whence
from bench.measure import Runs, against, measure
from bench.ours import explaining, shape_for, single_pass_methods, size_of
from bench.peers import Company, Job
from bench.settings import Settings, multiplying
from bench.shapes import Shape, Texts, bert, floor, random_rows
from bench.table import Table

SHAPES = ((16, 64), (8, 256))
AS_PEERS = {
    "gradient": {"of": "logit"},
    "gradient-x-input": {"of": "logit", "aggregate": "sum"},
}  # what theirs work out
FAMILIES = {"gradient": 1.1, "attention gradient": 1.5, "activation": 1.5}
TOGETHER, ALL = "all of them together", 2.8


def tables(settings: Settings, company: Company) -> Iterator[Table]:
    shape = shape_for(settings)
    model = bert(shape, settings.device, settings.precision)
    explainer = whence.load(model)
    for rows, tokens in ((2, 16),) if settings.quick else SHAPES:
        texts = random_rows(rows, tokens, shape.words)
        with multiplying(settings.precision):
            runs = {**own_runs(explainer, texts), **company.runs(peer_jobs(settings, texts))}
            found = measure(runs, settings, 5)
        wanted = {m.name: {"ratio": FAMILIES[m.family]} for m in single_pass_methods() if m.family in FAMILIES}
        wanted[TOGETHER] = {"ratio": ALL}
        yield against(found, f"{shape}, {size_of(texts)}, {settings.where()}", "floor", wanted)


def own_runs(explainer: whence.Explainer, texts: Texts) -> Runs:
    names = [m.name for m in single_pass_methods()]
    runs: Runs = {"floor": floor(explainer.model, texts)}
    return {
        **runs,
        **{name: explaining(explainer, texts, name) for name in names},
        TOGETHER: explaining(explainer, texts, names),
    }


def peer_jobs(settings: Settings, texts: Texts, shape: Shape | None = None) -> dict[str, Job]:
    shape, rows, tokens = shape or shape_for(settings), len(texts), len(texts[0]["input_ids"])
    return {name: Job(name, shape, rows, tokens, batch=rows, **settings.for_job()) for name in AS_PEERS}


def gradients_beside_peers(
    settings: Settings, company: Company, rows: int, tokens: int, turns: int, shape: Shape | None = None
) -> Table:
    """Peers take the gradient of the logit, and sum its products with the input: so do ours here."""
    shape = shape or shape_for(settings)
    texts: Texts = random_rows(*((2, 16) if settings.quick else (rows, tokens)), shape.words)
    model = bert(shape, settings.device, settings.precision)
    explainer = whence.load(model)
    jobs = peer_jobs(settings, texts, shape)
    own = {name: explaining(explainer, texts, name, **AS_PEERS[name]) for name in jobs}
    runs: Runs = {"floor": floor(model, texts), **own, **company.runs(jobs)}
    with multiplying(settings.precision):
        found = measure(runs, settings, turns)
    return against(found, f"Beside peers: {shape}, {size_of(texts)}, {settings.where()}", "floor")
