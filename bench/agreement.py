"""Subject–verb agreement: do the tokens a method ranks highest hold up the right verb?

    python -m bench.agreement AGREEMENT.parquet [--sentences 300] [--skip 0] [--steps 50] [--device cuda]

The file has columns text (with [MASK]), right, wrong and attractors. Each sentence with at least one attractor is explained with
contrast=(right, wrong) by the embedded masked LM; its highest-ranked tokens are deleted, and what that takes from
logit(right) − logit(wrong) is compared, sentence by sentence, with the mean over 20 random choices of as many tokens: of all sentences,
and of those where the model prefers the right verb. How many are deleted: one, three, a fifth, and as comprehensiveness has it,
the mean over 1, 5, 10, 20 and 50% (whence.evaluate.metrics.erasure.ERASER_BINS).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import ceil
from typing import Any

import numpy as np
from scipy.stats import permutation_test

import whence
from whence.evaluate.data import records_of
from whence.evaluate.metrics.erasure import ERASER_BINS
from whence.inputs import Encoded
from whence.run.perturb import Rows, delete, score_rows
from whence.tasks import Term

METHODS = (
    "integrated-gradients", "alti", "attcat", "transatt", "attnlrp", "gae", "gradient-x-input", "rollout", "occlusion",
)  # fmt: skip
SIZES: dict[str, Callable[[int], tuple[int, ...]]] = {  # n tokens → how many are removed; of several the mean counts
    "the highest token": lambda n: (1,),
    "the three highest tokens": lambda n: (min(3, n),),
    "the highest fifth": lambda n: (ceil(0.2 * n),),
    "the highest 1, 5, 10, 20 and 50%": lambda n: tuple(ceil(b * n) for b in ERASER_BINS),
}
DRAWS = 20


def sentences(file: str, lm: whence.Explainer, count: int, skip: int = 0) -> list[dict[str, Any]]:
    """`count` sentences with attractors whose two verbs are single tokens, after the first `skip` of them."""
    vocabulary = lm.tokenizer.get_vocab()  # type: ignore[union-attr]
    rows = list(records_of(file, None, None))
    fit = [r for r in rows if r["attractors"] >= 1 and r["right"] in vocabulary and r["wrong"] in vocabulary]
    return fit[skip : skip + count]


def without(row: Encoded, chosen: list[np.ndarray]) -> Rows:
    """The row once per choice, without the chosen positions."""
    keep = np.ones((len(chosen), len(row)), bool)
    for i, positions in enumerate(chosen):
        keep[i, positions] = False
    return delete(row, keep)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--skip", type=int, default=0, help="how many sentences to leave out at the beginning")
    parser.add_argument("--steps", type=int, default=50, help="of integrated gradients")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    lm = whence.load("masked-lm", device=args.device)
    data = sentences(args.file, lm, args.sentences, args.skip)
    texts, contrasts = [r["text"] for r in data], [(r["right"], r["wrong"]) for r in data]
    found = lm.explain(texts, list(METHODS), contrast=contrasts, steps=args.steps)

    task = lm.session.task
    asks = [task.ask(None, c, None, None) for c in contrasts]
    rows = [windows[0] for windows in task.encode(texts, asks, "truncate")]
    for removed, sizes in SIZES.items():
        random = np.random.default_rng(0)
        parts, terms, per_row = [], [], len(METHODS) + DRAWS
        for i, row in enumerate(rows):
            free = np.array(row.free)
            chosen = [np.zeros(0, int)]
            for k in sizes(len(free)):
                chosen += [free[np.argsort(-found[m][i].scores[free], kind="stable")[:k]] for m in METHODS]
                chosen += [random.choice(free, k, replace=False) for _ in range(DRAWS)]
            parts.append(without(row, chosen))
            right, wrong = (tuple(ask) for ask in (asks[i].target, asks[i].contrast))
            terms.append(Term((0,), right, row.places, wrong))
        repeats = [len(part) for part in parts]
        y = score_rows(lm.session, Rows.join(parts), terms, batch_tokens=8192, repeats=repeats).y.reshape(len(rows), -1)
        mean = y[:, 1:].reshape(len(rows), -1, per_row).mean(1)
        y = np.concatenate([y[:, :1], mean], axis=1)
        print_table(y, f"{removed} removed, all sentences")
        print_table(y[y[:, 0] > 0], f"{removed} removed, those where the model prefers the right verb")


def print_table(y: np.ndarray, title: str) -> None:
    """y: (sentence, 1 + methods + draws) the preference with nothing removed, without each method's choice, without random ones."""
    drop = y[:, :1] - y[:, 1:]  # (sentence, method or draw)
    by_chance = drop[:, len(METHODS) :].mean(1)
    print(f"\n{title}: {len(y)}; right verb preferred in {np.mean(y[:, 0] > 0):.1%}, by {y[:, 0].mean():.2f} logits\n")
    print("| removed | preference lost | right verb still preferred | p against random |")
    print("|---|---|---|---|")
    for j, name in enumerate(METHODS):
        test = permutation_test(
            (drop[:, j], by_chance), lambda a, b, axis: (a - b).mean(axis), permutation_type="samples",
            alternative="greater", n_resamples=9999, vectorized=True, rng=np.random.default_rng(1),
        )  # fmt: skip
        print(f"| `{name}` | {drop[:, j].mean():.2f} | {np.mean(y[:, 1 + j] > 0):.1%} | {test.pvalue:.4f} |")
    print(f"| random | {by_chance.mean():.2f} | {np.mean(y[:, 1 + len(METHODS) :] > 0):.1%} | |")


if __name__ == "__main__":
    main()
