"""Train the adapter of one classification task: sentiment, topics or nli.

    python -m train.classify sentiment --data DATA --start START --base OUT/base --out OUT/adapters/sentiment

Part of the training table is held out to pick the epoch. The evaluation table is not read here: see `train.evaluate`.
One to three minutes on one H200; an epoch of SST-2 takes about a quarter of an hour on two CPU cores.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BertForSequenceClassification, BertTokenizerFast

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


@dataclass(frozen=True)
class Task:
    """Where a task's rows are and how it is trained."""

    table: str
    columns: tuple[str, ...]
    labels: tuple[str, ...]
    rate: float
    batch: int
    epochs: int
    length: int
    selected: int  # rows held out to pick the epoch


TASKS = {
    "sentiment": Task("sst2_train", ("text",), ("negative", "positive"), 6e-4, 64, 4, 80, 500),
    "topics": Task("agnews_train", ("text",), ("World", "Sports", "Business", "Sci/Tech"), 6e-4, 64, 4, 192, 1500),
    "nli": Task(
        "snli_train",
        ("premise", "hypothesis"),
        ("entailment", "neutral", "contradiction"),
        rate=1.2e-3,
        batch=128,
        epochs=7,
        length=112,
        selected=3000,
    ),
}

# The AG News rows come from several public samples, some with far more of one class than of another. Those that look
# alike are one format; within a format no class is to be likelier than another, as in the test set.
FORMATS = {"vic": "plain", "lst": "plain", "fx": "plain", "dtc_train": "tokenised", "dtc_ub_train": "tokenised"}


# ----------------------------------------------------------------------------------------------------- the split


def split(rows: list[Row], columns: tuple[str, ...], count: int) -> tuple[list[Row], list[Row]]:
    """(training rows, about ``count`` rows to select by), with nothing of the second in the first.

    The split is the same for every seed of the training. Rows that share the first text (a premise) go together; of
    single texts, those that contain or are part of a held-out one are dropped, as SST-2 has the phrases of a sentence
    beside the sentence.
    """
    generator = random.Random(20)
    first = columns[0]
    if len(columns) > 1:
        groups = sorted({row[first] for row in rows})
        generator.shuffle(groups)
        wanted = min(count, len(rows) // 4)
        chosen = set(groups[: max(1, wanted * len(groups) // len(rows))])
        return [r for r in rows if r[first] not in chosen], [r for r in rows if r[first] in chosen]
    sentences = [row for row in rows if len(row[first].split()) >= 12]
    held = generator.sample(sentences or rows, min(count, max(1, len(sentences) // 4)))
    texts = {f" {row[first].strip()} " for row in held}
    joined = "\n".join(sorted(texts))
    shortest = min(map(len, texts))

    def overlaps(text: str) -> bool:
        padded = f" {text.strip()} "
        return padded in joined or (len(padded) >= shortest and any(t in padded for t in texts))

    return [r for r in rows if not overlaps(r[first])], held


# ----------------------------------------------------------------------------------------------------- batches


@dataclass(frozen=True)
class Encoded:
    ids: list[list[int]]
    segments: list[list[int]]
    labels: list[int]
    shares: list[list[float]]  # of each class, among the rows of the same format

    def __len__(self) -> int:
        return len(self.ids)


def class_shares(rows: list[Row], count: int) -> list[list[float]]:
    """For each row, how frequent each class is among the rows of its format; all alike where no format is known."""
    formats = [FORMATS.get(row.get("source", ""), row.get("source")) for row in rows]
    seen = Counter(zip(formats, (row["label"] for row in rows), strict=True))
    table = {f: [seen[f, label] + 1 for label in range(count)] if f else [1] * count for f in set(formats)}
    return [[n / sum(table[f]) for n in table[f]] for f in formats]


def encode_rows(tokenizer: BertTokenizerFast, rows: list[Row], task: Task) -> Encoded:
    texts = [[row[column] for row in rows] for column in task.columns]
    encoding = tokenizer(*texts, truncation=True, max_length=task.length)
    labels = [row["label"] for row in rows]
    return Encoded(encoding["input_ids"], encoding["token_type_ids"], labels, class_shares(rows, len(task.labels)))


def pad(lists: list[list[int]], where: torch.device) -> Tensor:
    width = max(map(len, lists))
    return torch.tensor([x + [0] * (width - len(x)) for x in lists]).to(where, non_blocking=True)


def collate(data: Encoded, pick: list[int], where: torch.device) -> tuple[dict[str, Tensor], Tensor]:
    ids = pad([data.ids[i] for i in pick], where)
    inputs = {"input_ids": ids, "token_type_ids": pad([data.segments[i] for i in pick], where)}
    inputs["attention_mask"] = (ids != 0).long()
    return inputs, torch.tensor([data.labels[i] for i in pick], device=where)


def batches(lengths: list[int], size: int) -> Iterator[list[int]]:
    """One epoch of row numbers: rows of like length together within pools of fifty batches, in random order."""
    order = list(range(len(lengths)))
    random.shuffle(order)
    pools = [sorted(order[i : i + 50 * size], key=lengths.__getitem__) for i in range(0, len(order), 50 * size)]
    chunks = [pool[i : i + size] for pool in pools for i in range(0, len(pool), size)]
    random.shuffle(chunks)
    yield from chunks


# ----------------------------------------------------------------------------------------------------- training


def start(base: Path, first: Path, task: Task) -> BertForSequenceClassification:
    """The base under a new classifier, with MiniLM's pooler."""
    config = bert_config(num_labels=len(task.labels))
    model = BertForSequenceClassification(config)
    body = {k: v for k, v in load_weights(base / "model.safetensors").items() if k.startswith("bert.")}
    pooler = {k: v for k, v in load_weights(first / "init.safetensors").items() if "pooler" in k}
    load_into(model, body | pooler, new=["classifier."])
    return model


def accuracy(model: BertForSequenceClassification, data: Encoded, where: torch.device) -> float:
    """Share of right answers, every class of a format counting the same."""
    order = sorted(range(len(data)), key=lambda i: len(data.ids[i]))
    right: list[bool] = []
    with evaluating(model):
        for i in range(0, len(order), 256):
            inputs, labels = collate(data, order[i : i + 256], where)
            right += (model(**inputs).logits.argmax(-1) == labels).tolist()
    weights = [1 / data.shares[i][data.labels[i]] for i in order]
    return sum(w for w, r in zip(weights, right, strict=True) if r) / sum(weights)


def adjusted_loss(logits: Tensor, labels: Tensor, data: Encoded, pick: list[int]) -> Tensor:
    """Cross-entropy with each class's share added to its logit (Menon et al., 2021).

    What is frequent in the rows is then put down to the rows, and the logits alone are for classes of equal share.
    """
    shares = torch.tensor([data.shares[i] for i in pick], device=logits.device)
    return F.cross_entropy(logits + shares.log(), labels)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("name", choices=sorted(TASKS))
    parser.add_argument("--base", type=Path, required=True, help="the trained base, a Hugging Face directory")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--rank", type=int, default=RANK)
    options = parser.parse_args()
    options.start = options.start or options.data
    task = TASKS[options.name]
    epochs, peak = options.epochs or task.epochs, options.rate or task.rate
    log = Log(f"{options.name} seed {options.seed}")
    seed_everything(options.seed)
    where = device()

    tokenizer = word_tokenizer(options.start)
    kept, held = split(read_table(options.data, task.table, options.limit), task.columns, task.selected)
    train, select = encode_rows(tokenizer, kept, task), encode_rows(tokenizer, held, task)
    log(f"{len(train)} rows to train on, {len(select)} to select by, rate {peak}")

    model = start(options.base, options.start, task)
    trained = add_adapters(model, options.rank)
    model.to(where).train()
    optimizer = adamw(trained, where, lr=0.0, weight_decay=0.01)
    lengths = [len(ids) for ids in train.ids]
    left = None if options.seconds is None else max(1.0, options.seconds - log.seconds() - 5)
    progress = Progress(epochs * math.ceil(len(train) / task.batch), left)
    best, epoch = -1.0, 0
    while progress.fraction() < 1:
        for pick in batches(lengths, task.batch):
            if (fraction := progress.fraction()) >= 1:
                break
            optimizer.param_groups[0]["lr"] = peak * schedule(fraction)
            inputs, labels = collate(train, pick, where)
            with autocast(where):
                logits = model(**inputs).logits
            loss = adjusted_loss(logits.float(), labels, train, pick)
            loss.backward()
            nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            progress.step += 1
        score = accuracy(model, select, where)
        log(f"epoch {epoch}, step {progress.step}: loss {loss.item():.3f}, selection accuracy {score:.4f}")
        epoch += 1
        if score >= best:
            best = score
            save_adapter(adapter_state(model), options.out)
            figures = {
                "selection": best,
                "seed": options.seed,
                "rate": peak,
                "rank": options.rank,
                "steps": progress.step,
            }
            figures["seconds"] = round(log.seconds())
            save_json(options.out / "training.json", figures)
    save_json(options.out / "training.json", figures | {"finished": True})
    log(f"done: selection accuracy {best:.4f}")


if __name__ == "__main__":
    main()
