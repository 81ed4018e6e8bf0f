"""Train the adapter that finds the answer to a question as a span of the context.

    python -m train.question_answering --data DATA --start START --base OUT/base --out OUT/adapters/qa

The questions of some contexts are held out to pick the epoch. The evaluation table is not read here: see
`train.evaluate`. About two minutes on one H200.
"""

from __future__ import annotations

import math
import random
import re
import string
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BertForQuestionAnswering, PreTrainedTokenizerFast

from train.classify import batches, pad
from train.common import (
    Log,
    Progress,
    Row,
    adamw,
    arguments,
    autocast,
    bert_config,
    device,
    evaluating,
    load_into,
    load_weights,
    read_table,
    save_json,
    schedule,
    seed_everything,
    word_tokenizer,
)
from train.lora import RANK, adapter_state, add_adapters, save_adapter

LENGTH = 384
LONGEST_ANSWER = 24  # word pieces
HELD_CONTEXTS = 0.06


@dataclass(frozen=True)
class Question:
    """A question and its context as one row of tokens, with the answer's first and last token where they fit."""

    row: Row
    ids: list[int]
    segments: list[int]
    offsets: list[tuple[int, int]]
    in_context: list[bool]
    first: int | None
    last: int | None


def encode_questions(tokenizer: PreTrainedTokenizerFast, rows: list[Row], length: int = LENGTH) -> list[Question]:
    encoding = tokenizer(
        [row["question"] for row in rows],
        [row["context"] for row in rows],
        truncation="only_second",
        max_length=length,
        return_offsets_mapping=True,
    )
    questions = []
    for i, row in enumerate(rows):
        offsets = encoding["offset_mapping"][i]
        in_context = [part == 1 for part in encoding.sequence_ids(i)]
        begin, end = row["start"], row["start"] + len(row["answer"])
        inside = [k for k, c in enumerate(in_context) if c and offsets[k][0] < end and offsets[k][1] > begin]
        fits = bool(inside) and offsets[inside[-1]][1] >= end
        span = (inside[0], inside[-1]) if fits else (None, None)
        ids, segments = encoding["input_ids"][i], encoding["token_type_ids"][i]
        questions.append(Question(row, ids, segments, offsets, in_context, *span))
    return questions


def collate(questions: list[Question], where: torch.device) -> dict[str, Tensor]:
    ids = pad([q.ids for q in questions], where)
    segments = pad([q.segments for q in questions], where)
    return {"input_ids": ids, "token_type_ids": segments, "attention_mask": (ids != 0).long()}


def best_span(start: Tensor, end: Tensor, question: Question) -> str:
    """The text of the span with the highest sum of logits, inside the context and not too long."""
    n = len(question.ids)
    outside = ~torch.tensor(question.in_context)
    start, end = start[:n].masked_fill(outside, -1e9), end[:n].masked_fill(outside, -1e9)
    score = start[:, None] + end[None, :]  # (first, last)
    allowed = torch.ones(n, n, dtype=torch.bool).triu().tril(LONGEST_ANSWER - 1)
    first, last = divmod(int(score.masked_fill(~allowed, -1e9).argmax()), n)
    context: str = question.row["context"]
    return context[question.offsets[first][0] : question.offsets[last][1]]


def normalise(answer: str) -> list[str]:
    """SQuAD's words of an answer: lower case, without punctuation and articles."""
    plain = re.sub(f"[{re.escape(string.punctuation)}]", "", answer.lower())
    return [word for word in plain.split() if word not in ("a", "an", "the")]


def f1_and_match(given: str, right: str) -> tuple[float, float]:
    """SQuAD's word F1 and exact match of one answer."""
    a, b = normalise(given), normalise(right)
    common = (Counter(a) & Counter(b)).total()
    return (2 * common / (len(a) + len(b)) if common else 0.0), float(a == b)


def scores(model: BertForQuestionAnswering, questions: list[Question], where: torch.device) -> tuple[float, float]:
    """Mean F1 and exact match."""
    order = sorted(questions, key=lambda q: len(q.ids))
    f1 = match = 0.0
    with evaluating(model):
        for i in range(0, len(order), 64):
            chunk = order[i : i + 64]
            output = model(**collate(chunk, where))
            starts, ends = output.start_logits.float().cpu(), output.end_logits.float().cpu()
            for question, start, end in zip(chunk, starts, ends, strict=True):
                one = f1_and_match(best_span(start, end, question), question.row["answer"])
                f1, match = f1 + one[0], match + one[1]
    return f1 / len(questions), match / len(questions)


def split(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """(training rows, rows to select by): a context is on one side only; the same for every seed."""
    contexts = sorted({row["context"] for row in rows})
    chosen = set(random.Random(20).sample(contexts, max(1, int(HELD_CONTEXTS * len(contexts)))))
    return [r for r in rows if r["context"] not in chosen], [r for r in rows if r["context"] in chosen]


def start_model(base: Path) -> BertForQuestionAnswering:
    model = BertForQuestionAnswering(bert_config())
    body = {k: v for k, v in load_weights(base / "model.safetensors").items() if k.startswith("bert.")}
    load_into(model, body, new=["qa_outputs."])
    return model


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--base", type=Path, required=True, help="the trained base, a Hugging Face directory")
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--rate", type=float, default=1.2e-3)
    parser.add_argument("--rank", type=int, default=RANK)
    parser.add_argument("--batch", type=int, default=24)
    options = parser.parse_args()
    log = Log(f"qa seed {options.seed}")
    seed_everything(options.seed)
    where = device()

    tokenizer = word_tokenizer(options.start or options.data)
    kept, held = split([r for r in read_table(options.data, "squad_train", options.limit) if r["start"] >= 0])
    train = [q for q in encode_questions(tokenizer, kept) if q.first is not None]
    select = encode_questions(tokenizer, held)
    log(f"{len(train)} questions to train on, {len(select)} to select by, rate {options.rate}")

    model = start_model(options.base)
    trained = add_adapters(model, options.rank)
    model.to(where).train()
    optimizer = adamw(trained, where, lr=0.0, weight_decay=0.01)
    lengths = [len(q.ids) for q in train]
    left = None if options.seconds is None else max(1.0, options.seconds - log.seconds() - 8)
    progress = Progress(options.epochs * math.ceil(len(train) / options.batch), left)
    best, epoch = -1.0, 0
    while progress.fraction() < 1:
        for pick in batches(lengths, options.batch):
            if (fraction := progress.fraction()) >= 1:
                break
            optimizer.param_groups[0]["lr"] = options.rate * schedule(fraction)
            chunk = [train[i] for i in pick]
            with autocast(where):
                output = model(**collate(chunk, where))
            first = torch.tensor([q.first for q in chunk], device=where)
            last = torch.tensor([q.last for q in chunk], device=where)
            loss = F.cross_entropy(output.start_logits.float(), first)
            loss = loss + F.cross_entropy(output.end_logits.float(), last)
            loss.backward()
            nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            progress.step += 1
        f1, match = scores(model, select, where)
        log(f"epoch {epoch}, step {progress.step}: loss {loss.item():.3f}, selection F1 {f1:.4f}, EM {match:.4f}")
        epoch += 1
        if f1 >= best:
            best = f1
            save_adapter(adapter_state(model), options.out)
            figures = {
                "selection": best,
                "seed": options.seed,
                "rate": options.rate,
                "rank": options.rank,
                "steps": progress.step,
            }
            figures["seconds"] = round(log.seconds())
            save_json(options.out / "training.json", figures)
    save_json(options.out / "training.json", figures | {"finished": True})
    log(f"done: selection F1 {best:.4f}")


if __name__ == "__main__":
    main()
