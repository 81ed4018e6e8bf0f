"""The slowest way to answer a metric's rows: one forward each. What the engine must agree with."""

from __future__ import annotations

import numpy as np
import torch
from transformers import PreTrainedModel

from whence.evaluate.metrics import Answers, Case, Steps

PAD, MASK = 0, 103


def rows(case: Case, steps: Steps) -> list[tuple[list[int], list[int]]]:
    """(ids, attention mask) of every step."""
    made = []
    for count in steps.counts:
        top = set(steps.order[:count].tolist())
        free = set(case.free.tolist())
        gone = {"delete": top, "keep": free - top}.get(steps.action, set())
        hidden = {"hide": top, "reveal": free - top}.get(steps.action, set())
        ids = [
            PAD if steps.action == "pad" and i in top else MASK if i in hidden else token
            for i, token in enumerate(case.ids)
            if i not in gone
        ]
        made.append((ids, [0 if i in hidden else 1 for i in range(len(case.ids)) if i not in gone]))
    return made


def answers(model: PreTrainedModel, case: Case, steps: Steps) -> Answers:
    logp, choices = [], []
    for ids, mask in [(list(case.ids), [1] * len(case.ids)), *rows(case, steps)]:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids]), attention_mask=torch.tensor([mask])).logits[0]
        logp.append(float(logits.log_softmax(-1)[case.target]))
        choices.append(int(logits.argmax()))
    return Answers(logp[0], choices[0], np.array(logp[1:]), np.array(choices[1:]))
