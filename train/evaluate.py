"""Measure the shipped models on their whole evaluation sets, on a CPU, through `whence.models.zoo.load`.

    python -m train.evaluate --model sentiment --data DATA/sst2_dev.parquet
    python -m train.evaluate --model all --data DATA

``--data`` is one or more tables, or the folder of all of them: then each model meets the tables named in `TABLES`.

*Masked accuracy* is defined on text no model was trained on: up to 1,000 texts, chosen by a fixed seed, of each of
imdb_test, agnews_test, snli_test and squad2_dev_half (contexts), every text a row of its own of at most 128 tokens,
each of its tokens replaced by [MASK] with probability 0.15 (fixed seed); right answers over masked tokens, all tables
pooled. *Perplexity* of the causal model is per token of its own BPE over the same texts, each after <|endoftext|>,
at most 256 tokens. *Agreement* is how often the right verb form scores above the wrong one at the [MASK] of
agreement.parquet, over the rows whose two forms are single pieces.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from train.common import CLS, MASK, SEP, Log, Row, encode, read_table
from train.question_answering import encode_questions, scores
from whence.models import zoo

HELD_OUT_TEXTS = ("imdb_test", "agnews_test", "snli_test", "squad2_dev_half")
TABLES = {
    "sentiment": ("sst2_dev",),
    "topics": ("agnews_test",),
    "nli": ("snli_test",),
    "qa": ("squad2_dev_half",),
    "masked-lm": (*HELD_OUT_TEXTS, "agreement"),
    "causal-lm": HELD_OUT_TEXTS,
}
TEXTS_A_TABLE = 1000
PROMPTS = ("Once upon a time", "The film is", "He looked at her and")

Figures = dict[str, Any]
Tables = dict[str, list[Row]]


def by_length(items: Sequence[Any], lengths: Sequence[int], size: int) -> Iterator[list[Any]]:
    """Batches of items of like length: less padding, the same result."""
    order = sorted(range(len(items)), key=lengths.__getitem__)
    for i in range(0, len(order), size):
        yield [items[k] for k in order[i : i + size]]


def accuracy(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, rows: list[Row]) -> Figures:
    columns = ("premise", "hypothesis") if "premise" in rows[0] else ("text",)
    right = 0
    for batch in by_length(rows, [sum(len(r[c]) for c in columns) for r in rows], 64):
        texts = [[row[column] for row in batch] for column in columns]
        inputs = tokenizer(*texts, truncation=True, padding=True, return_tensors="pt")
        labels = torch.tensor([row["label"] for row in batch])
        right += int((model(**inputs).logits.argmax(-1) == labels).sum())
    return {"accuracy": right / len(rows), "rows": len(rows)}


def span_scores(model: Any, tokenizer: PreTrainedTokenizerFast, rows: list[Row]) -> Figures:
    """SQuAD's F1 and exact match over the answerable rows."""
    answerable = [row for row in rows if row["start"] >= 0]
    f1, match = scores(model, encode_questions(tokenizer, answerable, length=512), torch.device("cpu"))
    return {"f1": f1, "exact_match": match, "rows": len(answerable)}


def held_out_texts(tables: Tables) -> list[str]:
    chosen: list[str] = []
    for name, rows in tables.items():
        columns = (
            ("premise", "hypothesis") if "premise" in rows[0] else ("context",) if "context" in rows[0] else ("text",)
        )
        texts = sorted({row[column] for row in rows for column in columns})
        chosen += random.Random(f"whence {name}").sample(texts, min(TEXTS_A_TABLE, len(texts)))
    return chosen


def masked_accuracy(model: Any, tokenizer: PreTrainedTokenizerFast, tables: Tables) -> Figures:
    rows = [[CLS, *ids[:126], SEP] for ids in encode(tokenizer, held_out_texts(tables))]
    generator = torch.Generator().manual_seed(0)
    right = masked = 0
    loss = 0.0
    for batch in by_length(rows, [len(r) for r in rows], 32):
        ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(r) for r in batch], batch_first=True)
        hide = (torch.rand(ids.shape, generator=generator) < 0.15) & (ids > MASK)
        hidden = model.bert(ids.masked_fill(hide, MASK), attention_mask=(ids != 0).long()).last_hidden_state
        logits = model.cls(hidden[hide])
        loss += F.cross_entropy(logits, ids[hide], reduction="sum").item()
        right += int((logits.argmax(-1) == ids[hide]).sum())
        masked += int(hide.sum())
    return {"masked_accuracy": right / masked, "masked_loss": loss / masked, "masked_tokens": masked}


def agreement(model: Any, tokenizer: PreTrainedTokenizerFast, rows: list[Row]) -> Figures:
    """How often the verb form that agrees with its subject is preferred; also by the number of attractors."""
    vocabulary = tokenizer.get_vocab()
    rows = [row for row in rows if row["right"] in vocabulary and row["wrong"] in vocabulary]
    tally: dict[int, list[bool]] = {}
    for batch in by_length(rows, [len(r["text"]) for r in rows], 64):
        inputs = tokenizer([row["text"] for row in batch], truncation=True, padding=True, return_tensors="pt")
        at = inputs["input_ids"] == MASK
        logits = model.cls(model.bert(**inputs).last_hidden_state[at])
        for row, one in zip(batch, logits, strict=True):
            better = bool(one[vocabulary[row["right"]]] > one[vocabulary[row["wrong"]]])
            tally.setdefault(min(row["attractors"], 4), []).append(better)
    every = [better for one in tally.values() for better in one]
    parts = {str(k): sum(v) / len(v) for k, v in sorted(tally.items())}
    return {"agreement": sum(every) / len(every), "agreement_rows": len(every), "agreement_by_attractors": parts}


def masked_figures(model: Any, tokenizer: PreTrainedTokenizerFast, tables: Tables) -> Figures:
    texts = {name: rows for name, rows in tables.items() if "right" not in rows[0]}
    figures = masked_accuracy(model, tokenizer, texts) if texts else {}
    for rows in tables.values():
        if "right" in rows[0]:
            figures |= agreement(model, tokenizer, rows)
    return figures


def causal_figures(model: Any, tokenizer: PreTrainedTokenizerFast, tables: Tables) -> Figures:
    """Perplexity, and three texts written by the model with a fixed seed."""
    rows = [[0, *ids[:255]] for ids in encode(tokenizer, held_out_texts(tables))]
    loss, tokens = 0.0, 0
    for batch in by_length(rows, [len(r) for r in rows], 32):
        ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(r) for r in batch], batch_first=True)
        target = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(r[1:]) for r in batch], batch_first=True, padding_value=-1
        )
        mask = (torch.arange(ids.shape[1]) < torch.tensor([[len(r)] for r in batch])).long()
        logits = model(ids, attention_mask=mask).logits[:, :-1]
        loss += F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-1, reduction="sum").item()
        tokens += sum(len(r) - 1 for r in batch)
    torch.manual_seed(0)
    written = []
    for prompt in PROMPTS:
        inputs = tokenizer(prompt, return_tensors="pt")
        ids = model.generate(**inputs, max_new_tokens=40, do_sample=True, temperature=0.8, top_k=40, pad_token_id=0)
        written.append(tokenizer.decode(ids[0]))
    return {"perplexity": math.exp(loss / tokens), "tokens": tokens, "samples": written}


def measure(name: str, tables: Tables) -> Figures:
    model, tokenizer = zoo.load(name)
    first = next(iter(tables.values()))
    with torch.no_grad():
        if name == "qa":
            return span_scores(model, tokenizer, first)
        if name == "masked-lm":
            return masked_figures(model, tokenizer, tables)
        if name == "causal-lm":
            return causal_figures(model, tokenizer, tables)
        return accuracy(model, tokenizer, first)


def tables_of(name: str, data: list[Path]) -> Tables:
    if len(data) == 1 and data[0].is_dir():
        return {table: read_table(data[0], table) for table in TABLES[name]}
    return {file.name.partition(".")[0]: read_table(file.parent, file.name.partition(".")[0]) for file in data}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True, choices=[*TABLES, "all"])
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="tables, or the folder of them")
    options = parser.parse_args()
    log = Log("evaluate")
    for name in TABLES if options.model == "all" else [options.model]:
        log(name, json.dumps(measure(name, tables_of(name, options.data)), indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
