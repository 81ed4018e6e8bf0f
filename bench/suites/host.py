"""What Python does around the kernels: models of BERT-base's and GPT-2's modules, so small that they compute next to nothing.

On a batch that does not fill a GPU, this is what decides. Any machine can measure it. The rows "beside" do while the backward runs what is
done then on a GPU; without them everything is done in turn, as on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator

import whence
from bench.measure import Run, against, measure
from bench.ours import explaining, size_of
from bench.peers import Company
from bench.settings import Settings
from bench.shapes import TINY, Shape, bert, floor, random_rows
from bench.suites import relevance, single_pass
from bench.table import Table
from whence.fast import meanwhile
from whence.trace import recorder

SHAPE = Shape(12, 8, 1, 1000, 512)
SIZES = ((16, 8), (1, 24))  # rows, tokens
TURNS = 100
METHODS = ("gradient-x-input", "attcat", "gae", "attnlrp")


def tables(settings: Settings, company: Company) -> Iterator[Table]:
    shape = TINY if settings.quick else SHAPE
    for rows, tokens in SIZES:
        yield single_pass.gradients_beside_peers(settings, company, rows, tokens, TURNS, shape)
    yield relevance.beside_lxt(settings, company, *SIZES[0], turns=TURNS, shape=shape)
    yield in_turn_and_beside(settings, shape)


def in_turn_and_beside(settings: Settings, shape: Shape) -> Table:
    """Our methods as on a CPU, and as on a GPU."""
    texts = random_rows(*SIZES[0], shape.words)
    model = bert(shape, settings.device, settings.precision)
    explainer = whence.load(model)
    runs: dict[str, Run] = {"floor": floor(model, texts)}
    for name in METHODS:
        runs[name] = explaining(explainer, texts, name)
        runs[f"{name}, beside"] = as_on_a_gpu(runs[name])
    found = measure(runs, settings, TURNS)
    return against(found, f"In turn, and beside the backward: {shape}, {size_of(texts)}, {settings.where()}", "floor")


def as_on_a_gpu(run: Run) -> Run:
    def beside() -> object:
        here = meanwhile.launched_by_another_thread
        meanwhile.launched_by_another_thread = recorder.launched_by_another_thread = lambda tensor: True
        try:
            return run()
        finally:
            meanwhile.launched_by_another_thread = recorder.launched_by_another_thread = here

    return beside
