"""Train the causal model from scratch: a GPT-2 of 4 layers and 192 dimensions with a byte-level BPE of 8,192.

    python -m train.causal_lm --data DATA --start START --out OUT/causal-lm --seconds 240

The same texts as the base, one long stream with <|endoftext|> between documents, rows of 256 tokens. About four
minutes on one H200, beside another run.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GPT2LMHeadModel

from train.common import (
    Log,
    Progress,
    adamw,
    arguments,
    autocast,
    byte_tokenizer,
    compiled,
    device,
    evaluating,
    gpt_config,
    save_json,
    save_weights,
    schedule,
    seed_everything,
    stream,
    training_documents,
)

LENGTH = 256
END_ID = 0


def endless_batches(ids: Tensor, size: int) -> Iterator[Tensor]:
    """Rows of the stream, cut at a fresh offset and shuffled each epoch."""
    while True:
        offset = random.randrange(LENGTH)
        count = (len(ids) - offset) // LENGTH
        rows = ids[offset : offset + count * LENGTH].view(count, LENGTH)
        order = torch.randperm(count, device=ids.device)
        for i in range(0, max(1, count - size + 1), size):
            yield rows[order[i : i + size]]


def loss_function(model: GPT2LMHeadModel, where: torch.device) -> Callable[..., Tensor]:
    def loss(rows: Tensor) -> Tensor:
        with autocast(where):
            logits = model(rows, use_cache=False).logits  # (row, position, vocabulary)
        return F.cross_entropy(logits[:, :-1].float().flatten(0, 1), rows[:, 1:].flatten())

    return loss


def save_model(model: GPT2LMHeadModel, start: Path, out: Path) -> None:
    """A plain Hugging Face directory; the tied output layer is left out of the file."""
    save_weights(out / "model.safetensors", {k: v for k, v in model.state_dict().items() if k != "lm_head.weight"})
    gpt_config(architectures=["GPT2LMHeadModel"], dtype="float16").save_pretrained(out)
    byte_tokenizer(start).save_pretrained(out)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--steps", type=int, help="length of the run; with --seconds, whichever ends first")
    parser.add_argument("--batch", type=int, help="rows a step; 128 on a GPU, few on a CPU")
    parser.add_argument("--rate", type=float, default=2e-3)
    options = parser.parse_args()
    options.start = options.start or options.data
    log = Log("causal-lm")
    seed_everything(options.seed)
    where = device()
    options.batch = options.batch or (128 if where.type == "cuda" else 8)

    documents = training_documents(options.data, options.limit)
    random.shuffle(documents)
    # a pair is read as one document: its parts are joined by a space, not by the end mark
    ids, _ = stream(byte_tokenizer(options.start), [(" ".join(d),) for d in documents], END_ID)
    ids = ids.to(where)
    watched = ids[-min(500 * LENGTH, len(ids) // 10) :]
    watched = watched[: len(watched) // LENGTH * LENGTH].view(-1, LENGTH)
    ids = ids[: -watched.numel()]
    log(f"{len(documents)} documents, {len(ids) / 1e6:.1f}M tokens")

    # no padding here; naming a pad token would make the model look for it at every step
    model = GPT2LMHeadModel(gpt_config(pad_token_id=None)).to(where).train()
    optimizer = adamw(list(model.parameters()), where, lr=0.0, betas=(0.9, 0.95), weight_decay=0.1)
    batches = endless_batches(ids, options.batch)
    plain = loss_function(model, where)
    loss_of = compiled(plain, [(next(batches),)], log)
    optimizer.zero_grad(set_to_none=True)

    left = None if options.seconds is None else max(1.0, options.seconds - log.seconds() - 5)
    progress = Progress(options.steps, left)
    said = log.seconds()
    while (fraction := progress.fraction()) < 1:
        optimizer.param_groups[0]["lr"] = options.rate * schedule(fraction)
        loss = loss_of(next(batches))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        progress.step += 1
        if log.seconds() - said > 30:
            said = log.seconds()
            log(f"step {progress.step}, loss {loss.item():.3f}")

    with evaluating(model):
        losses = [plain(watched[i : i + 50]).item() for i in range(0, len(watched), 50)]
    mean = sum(losses) / len(losses)
    log(f"{progress.step} steps: watched loss {mean:.3f}, perplexity {math.exp(mean):.1f}")
    save_model(model, options.start, options.out)
    figures = {"steps": progress.step, "tokens": progress.step * options.batch * LENGTH, "seed": options.seed}
    figures |= {"seconds": round(log.seconds()), "watched_loss": mean}
    save_json(options.out.parent / "figures" / "causal-lm.json", figures)


if __name__ == "__main__":
    main()
