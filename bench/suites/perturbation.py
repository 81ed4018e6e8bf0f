"""What the perturbation methods cost against the floor, and beside captum, lime, shap and interpreto.

Every library gets the same number of changed rows per text and may run them in batches of 128. Peers explain text by text: they
are timed on fewer texts, and their seconds multiplied up. The last table compares the scheduler with a bare loop of forwards over
the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

import whence
from bench.measure import Runs, against, measure
from bench.ours import explaining, shape_for
from bench.peers import Company, Job
from bench.peers.common import logits_of
from bench.settings import Settings, multiplying
from bench.shapes import BERT_BASE, MASK, bert, floor, random_rows, words_tokenizer
from bench.table import Table
from whence.run.perturb import replace, score_rows, units_of
from whence.tasks import Term

ROWS, TOKENS, BATCH = 16, 64, 128
OWN_TEXTS, PEER_TEXTS = 4, 1  # of ROWS
BARS = {"occlusion": 36.0, "lime, 100 samples": 60.0}
SCHEDULED = 1.25  # of the bare loop's time: 80% of its rows a second


def tables(settings: Settings, company: Company) -> Iterator[Table]:
    shape = shape_for(settings, BERT_BASE)
    tokens, samples = (12, 10) if settings.quick else (TOKENS, 100)
    own_texts = ROWS if settings.cuda else OWN_TEXTS
    model = bert(shape, settings.device, settings.precision)
    explainer = whence.load(model, words_tokenizer(shape.words))
    texts = random_rows(ROWS, tokens, shape.words)
    chosen = {  # row → method, the option that counts, how many
        "occlusion": ("occlusion", None, 0),
        f"lime, {samples} samples": ("lime", "samples", samples),
        f"kernel-shap, {samples} samples": ("kernel-shap", "samples", samples),
        "shapley, an order and its reverse": ("shapley", "permutations", 2),
    }
    jobs = {
        row: Job(m, shape, PEER_TEXTS, tokens, points=k, batch=BATCH, **settings.for_job())
        for row, (m, _, k) in chosen.items()
    }
    own: Runs = {
        row: explaining(explainer, texts[:own_texts], method, **({option: count} if option else {}))
        for row, (method, option, count) in chosen.items()
    }
    theirs = company.runs(jobs)
    times = {**dict.fromkeys(own, ROWS / own_texts), **dict.fromkeys(theirs, ROWS / PEER_TEXTS)}
    with multiplying(settings.precision):
        found = measure(
            {"floor": floor(model, texts), **own, **theirs},
            settings,
            1 if settings.cuda else 0,
            times,
        )
        wanted = {name: {"ratio": bar} for name, bar in BARS.items() if name in own and not settings.quick}
        yield against(found, f"{shape}, {ROWS} × {tokens}, {settings.where()}", "floor", wanted)
        yield scheduler(settings, explainer, tokens)


def scheduler(settings: Settings, explainer: whence.Explainer, tokens: int) -> Table:
    """The scheduler against a bare loop over the same rows, in batches of the size that the device runs fastest."""
    model = explainer.model
    row = explainer.session.task.encoder.encode(random_rows(1, tokens, model.config.vocab_size))[0]
    units = units_of(row)
    count, batch = (64 * BATCH, BATCH) if settings.cuda else (32 if settings.quick else 128, 16)
    keep = np.random.default_rng(0).random((count, units.count)) < 0.5
    rows = replace(row, units.tokens_kept(keep), MASK)
    ids = torch.from_numpy(rows.ids.reshape(len(rows), -1)).to(model.device)
    terms = [Term((0,), (0,), (0,))] * len(rows)
    runs: Runs = {
        "bare forwards": lambda: logits_of(model, ids, batch).cpu(),
        "scheduler": lambda: score_rows(explainer.session, rows, terms, batch_tokens=BATCH * tokens, progress=False),
    }
    found = measure(runs, settings, 2)
    return against(
        found,
        f"{count} changed rows of {tokens} tokens, {settings.where()}",
        "bare forwards",
        {"scheduler": {"ratio": SCHEDULED}},
    )
