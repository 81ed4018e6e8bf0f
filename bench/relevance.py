"""What relevance costs, as a ratio to the floor: one batched forward (sdpa) + backward to the input of the same rows.

    python -m bench.relevance [--rows 16] [--tokens 64] [--repeat 5] [--threads N] [--device cpu]

BERT-base shape, random weights, float32. Floor and methods take turns and the fastest turn of each counts, so that a busy
machine disturbs all alike. Where the package `lxt` runs, its AttnLRP on GPT-2 (small shape) is compared with ours as well.
Prints tables; asserts nothing on time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import GPT2Config, GPT2ForSequenceClassification

import whence
from bench.common import bert_base, floor, ids_of, measure, print_table, random_rows

METHODS: dict[str, dict[str, Any]] = {
    "attnlrp": {},
    "transatt": {},
    "mask-lrp": {"head_mask": np.random.default_rng(0).random((12, 12)) < 0.2},
    "partial-lrp": {},
    "lrp": {},
}


def gpt2(device: str) -> GPT2ForSequenceClassification:
    """Without dropout: LXT patches dropout away for good, and both must run the same model."""
    torch.manual_seed(0)
    config = GPT2Config(
        num_labels=2, pad_token_id=0, attn_implementation="sdpa", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    return GPT2ForSequenceClassification(config).to(device).eval().requires_grad_(False)


def lxt_switch() -> Callable[[bool], None]:
    """LXT's own rules and GPT-2 patches, to be switched on and off; past what keeps lxt 2.1 from importing with transformers 5.

    Its packages' __init__ files import copies of other models (BERT, ViT) that no longer load: empty packages stand in for
    them. It puts a plain dict where transformers 5 asks for `get_interface`.
    """
    import importlib.util
    import sys
    import types

    from transformers.models.gpt2 import modeling_gpt2

    spec = importlib.util.find_spec("lxt")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("no package lxt")
    root = spec.submodule_search_locations[0]
    for name in ("lxt", "lxt.efficient", "lxt.efficient.models"):
        package = types.ModuleType(name)
        package.__path__ = [root + name.removeprefix("lxt").replace(".", "/")]
        sys.modules[name] = package
    from lxt.efficient.models.gpt2 import attnLRP

    class Functions(dict[str, Any]):
        def get_interface(self, name: str, default: Any) -> Any:
            return self.get(name, default)

    places = [(target, "forward") for target in attnLRP if isinstance(target, type)]
    places += [(modeling_gpt2, "eager_attention_forward"), (modeling_gpt2, "ALL_ATTENTION_FUNCTIONS")]
    off = [getattr(*place) for place in places]
    for target, patch in attnLRP.items():
        patch(target)
    modeling_gpt2.ALL_ATTENTION_FUNCTIONS = Functions(modeling_gpt2.ALL_ATTENTION_FUNCTIONS)
    on = [getattr(*place) for place in places]

    def switch(patched: bool) -> None:
        for place, value in zip(places, on if patched else off, strict=True):
            setattr(*place, value)

    switch(False)
    return switch


def compare_with_lxt(args: argparse.Namespace) -> None:
    """Same scores, and not slower? Turns alternate, with LXT's patches switched on for its own only."""
    model = gpt2(args.device)
    rows = random_rows(args.rows, args.tokens)
    explainer = whence.load(model, task="sequence-classification")
    ours = explainer.explain(rows, "attnlrp")
    calls: dict[str, Callable[[], Any]] = {
        "floor": floor(model, rows),
        "attnlrp (whence)": lambda: explainer.explain(rows, "attnlrp"),
    }
    try:
        switch = lxt_switch()
    except Exception as error:  # absent, or not made for this transformers
        print_table("GPT-2 shape", measure(calls, args.repeat), "floor")
        print(f"  lxt does not run here: {type(error).__name__}: {error}")
        return
    ids = ids_of(rows, model.device)
    kept: list[torch.Tensor] = []

    def theirs() -> torch.Tensor:
        switch(True)
        kept.clear()
        hook = model.transformer.drop.register_forward_hook(lambda m, a, y: kept.append(y) or y)
        embeddings = model.get_input_embeddings()(ids).detach().requires_grad_(True)
        logits = model(inputs_embeds=embeddings, attention_mask=torch.ones_like(ids)).logits
        # rows of inputs_embeds have no ids to tell padding by: Hugging Face reads the last position, as we do
        hook.remove()
        (found,) = torch.autograd.grad(logits.max(-1).values.sum(), kept[0])
        switch(False)
        return (found * kept[0].detach()).sum(-1)

    reference = theirs().cpu().numpy()
    gap = max(np.abs(e.scores - r).max() / np.abs(r).max() for e, r in zip(ours, reference, strict=True))
    calls["attnlrp (lxt)"] = theirs
    print_table(f"GPT-2 shape, {args.rows} × {args.tokens}", measure(calls, args.repeat), "floor")
    print(f"  largest difference from lxt: {gap:.1e} of the largest score")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--no-lxt", action="store_true")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    model = bert_base(args.device)
    rows = random_rows(args.rows, args.tokens)
    explainer = whence.load(model, task="sequence-classification")
    calls: dict[str, Callable[[], Any]] = {"floor": floor(model, rows)}
    for name in args.methods:
        calls[name] = lambda name=name: explainer.explain(rows, name, **METHODS[name])
    title = f"BERT-base shape, {args.rows} × {args.tokens}, float32, {args.device}, {torch.get_num_threads()} threads"
    print_table(title, measure(calls, args.repeat), "floor")
    if not args.no_lxt:
        compare_with_lxt(args)


if __name__ == "__main__":
    main()
