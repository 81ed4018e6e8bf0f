"""Choose the layers that `layer="auto"` of decoded saliency stands for in the embedded classifiers.

    python -m train.layers

Each model plays the revealing and the hiding game on its own samples (`whence.evaluate.layers`), which are part of no evaluation
set. Run it again whenever the weights change: src/whence/models/zoo/layers.json belongs to the weights beside it.
"""

from __future__ import annotations

import json

import whence
from whence.evaluate.layers import layer_scores
from whence.models import zoo
from whence.models.zoo.catalogue import ROOT


def main() -> None:
    chosen: dict[str, dict[str, int]] = {}
    for entry in zoo.models():
        if entry.task != "sequence-classification":
            continue
        chosen[entry.name] = {}
        for method, scores in layer_scores(whence.load(entry.name), zoo.samples(entry.name)).items():
            chosen[entry.name][method] = max(scores, key=scores.__getitem__)
            print(f"{entry.name:12s}{method:20s}" + "  ".join(f"{i}: {v:+.4f}" for i, v in scores.items()), flush=True)
    (ROOT / "layers.json").write_text(json.dumps(chosen, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
