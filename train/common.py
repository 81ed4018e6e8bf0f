"""What every training script shares: data, tokenizers, packing, the schedule, the random seed, files.

Data are tables in one folder: Parquet, or the same rows as JSON in xz (`NAME.json.xz`) for a machine without pyarrow.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import lzma
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn
from transformers import BertConfig, BertTokenizerFast, GPT2Config, PreTrainedTokenizerFast

Row = dict[str, Any]
Document = tuple[str, ...]  # one text, or a pair that belongs together

VOCABULARY = 8192
PAD, UNK, CLS, SEP, MASK = range(5)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
END = "<|endoftext|>"

# Tables that are only ever measured on: no text of theirs may be trained on.
HELD_OUT = {
    "imdb_test": ("text",),
    "agnews_test": ("text",),
    "snli_test": ("premise", "hypothesis"),
    "squad2_dev_half": ("context",),
    "sst2_dev": ("text",),
}


# ---------------------------------------------------------------------------------------------------------- data


def read_table(data: Path, name: str, limit: int | None = None) -> list[Row]:
    """The rows of one table, at most ``limit`` of them."""
    parquet = data / f"{name}.parquet"
    if parquet.exists():
        import pyarrow.parquet as pq

        rows: list[Row] = pq.read_table(parquet).to_pylist()
    else:
        with lzma.open(data / f"{name}.json.xz", "rt", encoding="utf-8") as file:
            rows = json.load(file)
    return rows[:limit]


def write_table(data: Path, name: str, rows: list[Row]) -> None:
    """The rows as JSON in xz, where `read_table` finds them."""
    with lzma.open(data / f"{name}.json.xz", "wt", encoding="utf-8", preset=9) as file:
        json.dump(rows, file, ensure_ascii=False, separators=(",", ":"))


def has_table(data: Path, name: str) -> bool:
    return (data / f"{name}.parquet").exists() or (data / f"{name}.json.xz").exists()


def held_out_texts(data: Path) -> set[str]:
    """Every text of the evaluation tables that lie in the folder, in lower case."""
    return {
        row[column].lower()
        for table, columns in HELD_OUT.items()
        if has_table(data, table)
        for row in read_table(data, table)
        for column in columns
    }


def training_documents(data: Path, limit: int | None = None) -> list[Document]:
    """The texts both language models read; pairs stay pairs, so that the base sees its second segment.

    Pairs are given without their labels. Texts that also occur in an evaluation table are left out.
    """

    def column(table: str, name: str) -> list[Document]:
        return [(row[name],) for row in read_table(data, table, limit)]

    def pairs(table: str, first: str, second: str) -> list[Document]:
        return [(row[first], row[second]) for row in read_table(data, table, limit)]

    documents = column("imdb_train", "text") + column("sst2_train", "text")
    documents += column("agnews_train", "text") + column("books", "text")
    documents += pairs("snli_train", "premise", "hypothesis") + pairs("squad_train", "question", "context")
    forbidden = held_out_texts(data)
    return [d for d in dict.fromkeys(documents) if not any(text.lower() in forbidden for text in d)]


# ---------------------------------------------------------------------------------------------- models and tokenizers


def word_tokenizer(folder: Path) -> BertTokenizerFast:
    """The lower-casing WordPiece tokenizer of the cut vocabulary (`vocab.txt` in ``folder``)."""
    pieces = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    return BertTokenizerFast(vocab=vocab, do_lower_case=True, model_max_length=512)


def byte_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """The byte-level BPE tokenizer of the causal model (`bpe.json` in ``folder``)."""
    file = str(folder / "bpe.json")
    return PreTrainedTokenizerFast(
        tokenizer_file=file, bos_token=END, eos_token=END, pad_token=END, unk_token=END, model_max_length=256
    )


def bert_config(**changes: Any) -> BertConfig:
    """The shape of the base: MiniLM-L6 with the cut vocabulary."""
    shape: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 384,
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
        "intermediate_size": 1536,
        "max_position_embeddings": 512,
        "attn_implementation": "sdpa",
    }
    return BertConfig(**(shape | changes))


def gpt_config(**changes: Any) -> GPT2Config:
    """The shape of the causal model."""
    shape: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "n_positions": 256,
        "n_embd": 192,
        "n_layer": 4,
        "n_head": 6,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
        "attn_implementation": "sdpa",
    }
    return GPT2Config(**(shape | changes))


def encode(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> Iterator[list[int]]:
    """The ids of each text, no special tokens added."""
    for i in range(0, len(texts), 4096):
        batch = tokenizer.backend_tokenizer.encode_batch(texts[i : i + 4096], add_special_tokens=False)
        yield from (encoding.ids for encoding in batch)


def stream(tokenizer: PreTrainedTokenizerFast, documents: list[Document], separator: int) -> tuple[Tensor, Tensor]:
    """All documents one after the other: ids, each part closed by ``separator``, and which part of a pair each is."""
    parts = [(part, segment) for document in documents for segment, part in enumerate(document)]
    ids: list[int] = []
    segments: list[int] = []
    for (_, segment), encoded in zip(parts, encode(tokenizer, [part for part, _ in parts]), strict=True):
        ids += [*encoded, separator]
        segments += [segment] * (len(encoded) + 1)
    return torch.tensor(ids), torch.tensor(segments)


# ------------------------------------------------------------------------------------------------------ running


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def seed_everything(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = True


def autocast(where: torch.device) -> torch.autocast:
    """bfloat16 on a GPU; full precision elsewhere."""
    return torch.autocast(where.type, dtype=torch.bfloat16, enabled=where.type == "cuda")


def adamw(
    groups: Sequence[Tensor] | Sequence[dict[str, Any]], where: torch.device, **settings: Any
) -> torch.optim.AdamW:
    return torch.optim.AdamW(groups, fused=where.type == "cuda", **settings)


class Progress:
    """How far the training is, from 0 to 1: by steps, by seconds on the clock, or by whichever is further.

    With steps alone a run can be repeated exactly; the seconds keep it inside a lease.
    """

    def __init__(self, steps: int | None, seconds: float | None) -> None:
        if not steps and not seconds:
            raise ValueError("a training run needs a number of steps or of seconds")
        self.steps, self.seconds = steps, seconds
        self.step = 0
        self.started = time.monotonic()

    def fraction(self) -> float:
        by_steps = self.step / self.steps if self.steps else 0.0
        by_clock = (time.monotonic() - self.started) / self.seconds if self.seconds else 0.0
        return max(by_steps, by_clock)


def schedule(fraction: float, warmup: float = 0.06, floor: float = 0.02) -> float:
    """Linear warm-up, then linear decay to a small floor: the factor on the learning rate."""
    return min(1.0, fraction / warmup) * max(floor, 1 - fraction)


def compiled(function: Callable[..., Tensor], trials: list[tuple[Any, ...]], log: Log, limit: int = 150) -> Any:
    """``function`` through `torch.compile`, or as it is where that fails or takes longer than ``limit`` seconds.

    ``trials`` are arguments of every shape that will come; each is run forward and backward once.
    """

    def expire(*_: Any) -> None:
        raise TimeoutError(f"compiling took more than {limit} s")

    if not torch.cuda.is_available():
        return function
    fast = torch.compile(function, dynamic=False)
    previous = signal.signal(signal.SIGALRM, expire)
    signal.alarm(limit)
    try:
        for trial in trials:
            fast(*trial).backward()
        torch.cuda.synchronize()
    except Exception as error:  # whatever the compiler trips over, the plain function still trains
        log(f"not compiled: {type(error).__name__}: {str(error)[:300]}")
        return function
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    log("compiled")
    return fast


class Log:
    """Prints lines with a name and the seconds since the start."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.started = time.monotonic()

    def __call__(self, *words: Any) -> None:
        print(f"[{self.name} {self.seconds():.0f}s]", *words, flush=True)

    def seconds(self) -> float:
        return time.monotonic() - self.started


def arguments(description: str | None, *, out: bool = True) -> argparse.ArgumentParser:
    """The options that every script takes."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--start", type=Path, help="folder of the vocabularies and first weights; else --data")
    if out:
        parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="rows of each table to read: for a smoke test")
    parser.add_argument("--seconds", type=float, help="finish the schedule within this time")
    return parser


# -------------------------------------------------------------------------------------------------------- files


def save_weights(file: Path, state: Mapping[str, Tensor]) -> None:
    """The tensors in float16, as safetensors; a reader never sees a half-written file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    half = {key: tensor.detach().to("cpu", torch.float16).contiguous() for key, tensor in state.items()}
    partial = file.with_suffix(".partial")
    partial.write_bytes(save(half, metadata={"format": "pt"}))
    partial.replace(file)


def save_json(file: Path, value: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load_weights(file: Path) -> dict[str, Tensor]:
    return {key: tensor.float() for key, tensor in load_file(file).items()}


def load_into(model: nn.Module, state: Mapping[str, Tensor], new: Iterable[str] = ()) -> None:
    """Copy the weights in; only parameters whose names start with one of ``new`` may be missing."""
    result = model.load_state_dict(state, strict=False)
    lost = [key for key in result.missing_keys if not key.startswith(tuple(new))]
    if lost or result.unexpected_keys:
        raise ValueError(f"weights do not fit: missing {lost}, unexpected {result.unexpected_keys}")


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode and no gradients inside the block; the mode it was in after it."""
    before = model.training
    model.eval()
    with torch.no_grad():
        yield
    model.train(before)
