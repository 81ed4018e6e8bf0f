"""What the single-pass methods cost against the floor, and beside captum.

    python -m bench.single_pass [--turns 5] [--threads 2]

The floor is one batched forward + input-gradient backward of the same rows with sdpa.
"""

from __future__ import annotations

import argparse

import captum.attr
import torch

import whence
from bench.common import Run, bert_base, floor, ids_of, measure, print_table, random_rows
from whence.registry import all_methods

SHAPES = ((16, 64), (8, 256))
FAMILIES = {"gradient": 1.1, "attention gradient": 1.5, "activation": 1.5}
ALL = 2.8


def captum_runs(model: torch.nn.Module, ids: torch.Tensor) -> dict[str, Run]:
    table = model.get_input_embeddings()

    def forward(x: torch.Tensor) -> torch.Tensor:
        return model(inputs_embeds=x, attention_mask=torch.ones_like(ids)).logits

    target = forward(table(ids)).argmax(-1)
    saliency, product = captum.attr.Saliency(forward), captum.attr.InputXGradient(forward)

    def embeddings() -> torch.Tensor:
        return table(ids).detach().requires_grad_(True)

    return {
        "captum Saliency": lambda: saliency.attribute(embeddings(), target=target),
        "captum InputXGradient": lambda: product.attribute(embeddings(), target=target),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = bert_base()
    explainer = whence.load(model)
    methods = [
        m for m in all_methods() if m.family in (*FAMILIES, "attention", "baseline") and m.name != "attention-flow"
    ]
    for rows, tokens in SHAPES:
        inputs = random_rows(rows, tokens)
        ids = ids_of(inputs, model.device)
        everything = [m.name for m in methods]

        def explain(name: str | list[str], inputs: list[dict[str, list[int]]] = inputs) -> Run:
            return lambda: explainer.explain(inputs, name, progress=False)

        runs: dict[str, Run] = {"floor": floor(model, inputs)}
        runs |= {m.name: explain(m.name) for m in methods}
        runs["all of them together"] = explain(everything)
        runs |= captum_runs(model, ids)
        figures = measure(runs, options.turns)
        print_table(f"BERT-base shape, {rows} × {tokens}, {options.threads} threads", figures, "floor")
        unit = figures["floor"].seconds
        for family, wanted in FAMILIES.items():
            worst = max(figures[m.name].seconds / unit for m in methods if m.family == family)
            print(f"  {family}: worst {worst:.2f}× (wanted ≤ {wanted})")
        print(f"  all together: {figures['all of them together'].seconds / unit:.2f}× (wanted ≤ {ALL})")


if __name__ == "__main__":
    main()
