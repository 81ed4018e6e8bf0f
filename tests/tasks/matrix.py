"""Which method runs on which task and architecture: tried, not claimed. `python -m tests.tasks.matrix` rewrites docs/matrix.md.

Every combination is run on a small model made from a config. What METHODS cannot do on an architecture is listed in EXCLUDED
with the reason; the test holds that exactly these raise, with an error that says what works instead.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

import whence
from tests import architectures

CONTEXT = "the film was a charming journey and the music is lovely ."
# task → (how it is shown, inputs of different lengths, what is asked)
TASKS: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "single": ("sequence-classification", ["a charming film", "the plot is slow , dull and never moving"], {}),
    "pair": (
        "sequence-classification",
        [("a good film", "the film is fine"), ("it is sad", "the story was not funny")],
        {},
    ),
    "question answering": (
        "question-answering",
        [
            {"question": "is it good ?", "context": CONTEXT},
            {"question": "the music ?", "context": "the music was fast ."},
        ],
        {},
    ),
    "masked LM": ("masked-lm", ["the keys [MASK] on the table .", "the [MASK] was very dull"], {"contrast": "are"}),
    "causal LM": ("causal-lm", ["the film was a", "the plot is slow and the music"], {}),
    "continuation": ("causal-lm", ["the film was a", "the plot is slow and the"], {"continuation": "charming journey"}),
    "token": ("token-classification", ["the film was a charming journey", "the keys are cold"], {}),
}
METHODS = [row["name"] for row in whence.methods()]
OPTIONS: dict[str, Any] = {"head_mask": [[1, 0, 2, 1], [0, 1, 1, 0], [1, 1, 0, 3]], "progress": False}
CLIPPED = ("grads", "attention-gradcam", "attgrads", "grad-cam", "decoded-grad-cam", "partial-lrp")
NO_RULES = "no relevance rules"
NO_SPEC = "no architecture spec"
NO_HEAD = "no language-model head"


def has_head(task: str, architecture: str) -> bool:
    """Does transformers have this head on this architecture, and does it mean anything there?"""
    name = TASKS[task][0]
    if name == "causal-lm":
        return architecture in architectures.DECODERS
    if name == "masked-lm":
        return architecture not in architectures.DECODERS
    return True


def family(method: str) -> str:
    return next(str(row["family"]) for row in whence.methods() if row["name"] == method)


def excluded(task: str, method: str, architecture: str) -> str | None:
    """Why a combination cannot run; None if it must."""
    own_attention = architecture in ("mpnet", "deberta-v2")
    if own_attention and (family(method) == "relevance" or method.startswith("deeplift")):
        return NO_RULES
    if family(method) == "mixing" and (own_attention or architecture == "modernbert"):
        return NO_SPEC
    if family(method) == "decoded" and (own_attention or TASKS[task][0] not in ("masked-lm", "causal-lm")):
        return NO_HEAD
    return None


def explainer(task: str, architecture: str) -> whence.Explainer:
    name = TASKS[task][0]
    model = architectures.model(architecture, task=name)
    return whence.load(model, architectures.tokenizer(framed=name != "causal-lm"))


def explain(ex: whence.Explainer, task: str, methods: list[str]) -> dict[str, list[whence.Explanation]]:
    _, inputs, asked = TASKS[task]
    known = {option for m in methods for option in whence.registry.get_method(m).defaults}
    options = {k: v for k, v in OPTIONS.items() if k in known or k == "progress"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: dict[str, list[whence.Explanation]] = ex.explain(inputs, methods, **asked, **options)
    return found


def is_sound(e: whence.Explanation) -> bool:
    """A score for every token, and not all of them nothing, unless the method cuts off what is negative."""
    something = e.method in CLIPPED or bool(np.abs(e.scores).max() > 0)
    return e.scores.shape == (len(e.tokens),) and bool(np.isfinite(e.scores).all()) and something


def table() -> str:
    """The matrix in Markdown: rows are methods, columns tasks; what is missing on an architecture is named."""
    lines = ["| method | " + " | ".join(TASKS) + " |", "|---|" + "---|" * len(TASKS)]
    for method in METHODS:
        cells = []
        for task in TASKS:
            homes = [a for a in architectures.NAMES if has_head(task, a)]
            without = {a: why for a in homes if (why := excluded(task, method, a))}
            if len(without) == len(homes):
                cells.append("with `lm_head=`" if set(without.values()) == {NO_HEAD} else "—")
            else:
                cells.append(f"yes, not {', '.join(without)}" if without else "yes")
        lines.append(f"| `{method}` | " + " | ".join(cells) + " |")
    heads = [f"* {task}: {', '.join(a for a in architectures.NAMES if has_head(task, a))}." for task in TASKS]
    return "\n".join([*lines, "", "Architectures tried, by task:", "", *heads])


PAGE = Path(__file__).parents[2] / "docs" / "matrix.md"
HEAD = """# What runs where

Every cell was run by `tests/tasks/test_matrix.py` on small models made from configs; this page is written from that test's own
data (`python -m tests.tasks.matrix`). *yes*: on every architecture below that has the head. *with `lm_head=`*: the model has no
language-model head of its own (or one that whence cannot take apart), so one must be named. MPNet and DeBERTa-v2 compute attention by
themselves: relevance has no rules and mixing no spec for it, nor for ModernBERT; the error says so, and which methods work instead.
"""


def page() -> str:
    return f"{HEAD}\n{table()}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
