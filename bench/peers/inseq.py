"""inseq: attribution of what a language model writes; here of one token after each prompt."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from bench.peers import Job
from bench.shapes import Texts, words_of, words_tokenizer

NEXT = "w200"  # the token whose attribution is asked for


def method(kind: str, *, points: bool = False) -> Callable[[Job, Any, Texts], Callable[[], object]]:
    def make(job: Job, model: Any, texts: Texts) -> Callable[[], object]:
        inseq: Any = import_module("inseq")
        tokenizer = words_tokenizer(job.shape.words, frame=False)
        made = inseq.load_model(model, kind, tokenizer=tokenizer, device=job.device)
        prompts = words_of(texts)
        written = [f"{prompt} {NEXT}" for prompt in prompts]
        options: dict[str, Any] = {"n_steps": job.points, "internal_batch_size": job.batch} if points else {}
        return lambda: made.attribute(
            prompts, written, batch_size=len(prompts), show_progress=False, device=job.device, **options
        )

    return make


METHODS = {
    ("gpt2-lm", "gradient"): method("saliency"),
    ("gpt2-lm", "gradient-x-input"): method("input_x_gradient"),
    ("gpt2-lm", "integrated-gradients"): method("integrated_gradients", points=True),
}
