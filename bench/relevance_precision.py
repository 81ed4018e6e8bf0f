"""How far float32 relevance is from float64, on sample sentences of the embedded models.

    python -m bench.relevance_precision [--sentences 70] [--own-dtype]

The difference of a sentence is max|d| / max|score|. --own-dtype computes everything in the model's dtype, also the methods
that whence runs in float64 by default: that is what the decision in docs/decisions rests on.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import whence
from whence.models import zoo
from whence.run.plan import ForwardPass

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("transatt", {}),
    ("mask-lrp", {}),
    ("attnlrp", {}),
    ("lrp", {}),
    ("partial-lrp", {}),
    ("lrp", {"rules": "deep-taylor"}),
    ("lrp", {"rules": "epsilon"}),
    ("transatt", {"rules": "lrp"}),
]


def texts_of(name: str, count: int) -> list[Any]:
    rows = zoo.samples(name)[:count]
    return [(r["premise"], r["hypothesis"]) if "premise" in r else r["text"] for r in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=70, help="of each of sentiment, topics and nli")
    parser.add_argument("--own-dtype", action="store_true")
    args = parser.parse_args()
    if args.own_dtype:
        ForwardPass.dtype = lambda self, own: None  # type: ignore[method-assign,assignment]
    models = {n: (whence.load(n), whence.load(n, dtype="float64")) for n in ("sentiment", "topics", "nli")}
    for method, options in CALLS:
        gaps, seconds = [], np.zeros(2)
        for name, (single, double) in models.items():
            texts = texts_of(name, args.sentences)
            targets = [e.target_index for e in double.explain(texts, "random")]
            found = []
            for i, explainer in enumerate((single, double)):
                start = time.perf_counter()
                found.append(explainer.explain(texts, method, targets, **options))
                seconds[i] += time.perf_counter() - start
            pairs = zip(*found, strict=True)
            gaps += [np.abs(a.scores - b.scores).max() / max(np.abs(b.scores).max(), 1e-300) for a, b in pairs]
        label = method + (f" ({options['rules']})" if options else "")
        quantiles = f"median {np.median(gaps):.1e}  p90 {np.quantile(gaps, 0.9):.1e}  worst {max(gaps):.1e}"
        print(
            f"{label:24s} {len(gaps)} sentences  {quantiles}   {seconds[0]:.1f} s, float64 model {seconds[1]:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
