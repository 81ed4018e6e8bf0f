"""What path methods cost against the floor, and beside captum, interpreto and inseq at equal work.

On a CPU four layers of the decoder stand for all twelve. The encoder keeps its twelve: what is left out of its last layer would
weigh more among four (whence.fast.first_token).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import whence
from bench.measure import Runs, against, measure
from bench.ours import explaining, shape_for, size_of
from bench.peers import Company, Job
from bench.peers.inseq import NEXT
from bench.settings import Settings, multiplying
from bench.shapes import BERT_BASE, Shape, bert, floor, gpt2, random_rows, words_of, words_tokenizer
from bench.table import Table

ROWS, TOKENS, STEPS, LM_STEPS = 16, 64, 50, 10
RATIO, MEMORY = 1.04, 300  # of integrated gradients: per step against the floor, and MB above it


def tables(settings: Settings, company: Company) -> Iterator[Table]:
    shape = shape_for(settings, BERT_BASE)
    rows, tokens, steps = (2, 16, 4) if settings.quick else (ROWS, TOKENS, STEPS)
    texts = random_rows(rows, tokens, shape.words)
    model = bert(shape, settings.device, settings.precision)
    explainer = whence.load(model)
    name = f"integrated-gradients, {steps} steps"
    job = Job("integrated-gradients", shape, rows, tokens, points=steps, batch=rows, **settings.for_job())
    own: Runs = {
        "floor": floor(model, texts),
        name: explaining(explainer, texts, "integrated-gradients", steps=steps, baseline="pad"),
        "smoothgrad, 10 samples": explaining(explainer, texts, "smoothgrad"),
        "gradient-shap, 5 samples": explaining(explainer, texts, "gradient-shap"),
        "deeplift": explaining(explainer, texts, "deeplift", baseline="pad"),
        "deeplift-shap, 5 samples": explaining(explainer, texts, "deeplift-shap"),
    }
    with multiplying(settings.precision):
        found = measure({**own, **company.runs({name: job})}, settings, 1 if settings.cuda else 0)
    bars = {"ratio": RATIO * steps} | (
        {} if settings.cuda else {"extra_megabytes": MEMORY}
    )  # a GPU takes larger batches
    wanted = {name: bars}
    yield against(found, f"{shape}, {size_of(texts)}, {settings.where()}", "floor", wanted)
    yield beside_inseq(settings, company, shape if settings.cuda else replace(shape, layers=min(shape.layers, 4)))


def beside_inseq(settings: Settings, company: Company, shape: Shape) -> Table:
    """Why does the language model write this token next? The same for every prompt, one token each."""
    rows, tokens, steps = (2, 16, 4) if settings.quick else (ROWS, TOKENS, LM_STEPS)
    texts = random_rows(rows, tokens, shape.words)
    model = gpt2(shape, settings.device, settings.precision, lm=True)
    explainer = whence.load(model, words_tokenizer(shape.words, frame=False))
    prompts, options = words_of(texts), {"continuation": f" {NEXT}", "of": "logit"}
    jobs = {
        "gradient": Job("gradient", shape, rows, tokens, "gpt2-lm", **settings.for_job()),
        "gradient-x-input": Job("gradient-x-input", shape, rows, tokens, "gpt2-lm", **settings.for_job()),
        f"integrated-gradients, {steps} steps": Job(
            "integrated-gradients", shape, rows, tokens, "gpt2-lm", steps, rows, **settings.for_job()
        ),
    }
    own = {
        name: explaining(explainer, prompts, job.method, **options, **({"steps": steps} if job.points else {}))
        for name, job in jobs.items()
    }
    runs: Runs = {"floor": floor(model, texts), **own, **company.runs(jobs)}
    with multiplying(settings.precision):
        found = measure(runs, settings, 1 if settings.cuda else 0)
    title = f"GPT-2 language model, {shape}, {rows} prompts of {tokens - 2} tokens, {settings.where()}"
    return against(found, title, "floor")
