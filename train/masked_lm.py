"""Train the base: the cut MiniLM with a language-model head, on masked text.

    python -m train.masked_lm --data DATA --start START --out OUT/base --seconds 520
    python -m train.masked_lm --data DATA --start START --out OUT/base --steps 8000

The texts are one long stream, cut afresh each epoch at a random offset into rows of 128 tokens and, every fourth
step, of 512, so that late positions keep their meaning. Of each row 20% of the tokens are picked: 80% of these become
[MASK], 10% a random token, 10% stay. The new head learns first, while the body moves slowly. About nine minutes on
one H200.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BertForMaskedLM

from train.common import (
    CLS,
    MASK,
    SEP,
    VOCABULARY,
    Log,
    Progress,
    adamw,
    arguments,
    autocast,
    bert_config,
    compiled,
    device,
    evaluating,
    load_into,
    load_weights,
    save_json,
    save_weights,
    schedule,
    seed_everything,
    stream,
    training_documents,
    word_tokenizer,
)

SHORT, LONG, LONG_EVERY = 128, 512, 4
PICKED = 0.2
HEAD_FIRST = 0.04  # the part of the run in which the body learns at a tenth of its rate
TIED = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")


def cut_rows(ids: Tensor, segments: Tensor, length: int, offset: int = 0) -> tuple[Tensor, Tensor]:
    """The stream as rows [CLS] … [SEP] of ``length``: ids and segments, each (row, length)."""
    inner = length - 2
    count = (len(ids) - offset) // inner
    body = ids[offset : offset + count * inner].view(count, inner)
    part = segments[offset : offset + count * inner].view(count, inner)
    edge = torch.full_like(body[:, :1], CLS), torch.full_like(body[:, :1], SEP)
    return torch.cat([edge[0], body, edge[1]], 1), torch.cat([part[:, :1], part, part[:, -1:]], 1)


def endless_batches(ids: Tensor, segments: Tensor, length: int, tokens: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of about ``tokens`` tokens, epoch after epoch, all of the same shape."""
    size = max(1, tokens // length)
    while True:
        rows, parts = cut_rows(ids, segments, length, random.randrange(length))
        order = torch.randperm(len(rows), device=rows.device)
        for i in range(0, max(1, len(rows) - size + 1), size):
            pick = order[i : i + size]
            yield rows[pick], parts[pick]


def corrupt(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The rows with picked tokens hidden, and the picked positions (row, k); k is fixed, so shapes never change."""
    chance = torch.rand(rows.shape, device=rows.device).masked_fill(rows <= MASK, -1)
    picked = chance.topk(round(PICKED * rows.shape[1]), dim=1).indices
    kept = rows.gather(1, picked)
    fate = torch.rand(picked.shape, device=rows.device)
    noise = torch.randint(MASK + 1, VOCABULARY, picked.shape, device=rows.device)
    shown = torch.where(fate < 0.8, MASK, torch.where(fate < 0.9, noise, kept))
    return rows.scatter(1, picked, shown), picked


def loss_function(model: BertForMaskedLM, where: torch.device) -> Callable[..., Tensor]:
    """The loss at the picked positions of a batch; the head runs at these alone."""

    def loss(shown: Tensor, parts: Tensor, picked: Tensor, rows: Tensor) -> Tensor:
        with autocast(where):
            hidden = model.bert(shown, token_type_ids=parts).last_hidden_state  # (row, position, hidden)
            at = hidden.gather(1, picked[:, :, None].expand(-1, -1, hidden.shape[-1]))
            logits = model.cls(at)  # (row, k, vocabulary)
        return F.cross_entropy(logits.float().flatten(0, 1), rows.gather(1, picked).flatten())

    return loss


def hidden_accuracy(model: BertForMaskedLM, rows: Tensor, parts: Tensor, where: torch.device) -> tuple[float, float]:
    """Loss and accuracy with 15% of the tokens masked, the same ones at each call."""
    generator = torch.Generator().manual_seed(1)
    hide = ((torch.rand(rows.shape, generator=generator) < 0.15).to(where)) & (rows > MASK)
    loss = right = 0.0
    with evaluating(model), autocast(where):
        for i in range(0, len(rows), 256):
            at = hide[i : i + 256]
            shown = rows[i : i + 256].masked_fill(at, MASK)
            logits = model.cls(model.bert(shown, token_type_ids=parts[i : i + 256]).last_hidden_state[at]).float()
            truth = rows[i : i + 256][at]
            loss += F.cross_entropy(logits, truth, reduction="sum").item()
            right += (logits.argmax(-1) == truth).sum().item()
    return loss / int(hide.sum()), right / int(hide.sum())


def start(folder: Path, where: torch.device) -> BertForMaskedLM:
    """The cut MiniLM with a head that at first only passes the hidden state on to the tied decoder."""
    model = BertForMaskedLM(bert_config(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    first = {k: v for k, v in load_weights(folder / "init.safetensors").items() if "pooler" not in k}
    load_into(model, first, new=["cls."])
    with torch.no_grad():
        model.cls.predictions.transform.dense.weight.copy_(torch.eye(model.config.hidden_size))
        model.cls.predictions.bias.zero_()
    return model.to(where).train()


def save_base(model: BertForMaskedLM, start_folder: Path, out: Path) -> None:
    """A plain Hugging Face directory; the tied decoder is left out of the file."""
    save_weights(out / "model.safetensors", {k: v for k, v in model.state_dict().items() if k not in TIED})
    bert_config(architectures=["BertForMaskedLM"], dtype="float16").save_pretrained(out)
    word_tokenizer(start_folder).save_pretrained(out)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--steps", type=int, help="length of the run; with --seconds, whichever ends first")
    parser.add_argument("--tokens", type=int, help="tokens a step; 65,536 on a GPU, few on a CPU")
    parser.add_argument("--body-rate", type=float, default=6e-4)
    parser.add_argument("--head-rate", type=float, default=2e-3)
    options = parser.parse_args()
    options.start = options.start or options.data
    log = Log("masked-lm")
    seed_everything(options.seed)
    where = device()
    options.tokens = options.tokens or (65536 if where.type == "cuda" else 2048)

    documents = training_documents(options.data, options.limit)
    random.shuffle(documents)
    ids, parts = (t.to(where) for t in stream(word_tokenizer(options.start), documents, SEP))
    # the last part of the stream is for watching the run, not for training
    watched = min(2000 * SHORT, len(ids) // 10)
    rows_watched, parts_watched = cut_rows(ids[-watched:], parts[-watched:], SHORT)
    ids, parts = ids[:-watched], parts[:-watched]
    log(f"{len(documents)} documents, {len(ids) / 1e6:.1f}M tokens")

    model = start(options.start, where)
    head: list[nn.Parameter] = [p for n, p in model.named_parameters() if n.startswith("cls.")]
    body = [p for n, p in model.named_parameters() if not n.startswith("cls.")]
    optimizer = adamw([{"params": head}, {"params": body}], where, lr=0.0, betas=(0.9, 0.98), weight_decay=0.01)
    batches = {length: endless_batches(ids, parts, length, options.tokens) for length in (SHORT, LONG)}

    def batch(length: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        rows, segments = next(batches[length])
        shown, picked = corrupt(rows)
        return shown, segments, picked, rows

    loss_of = compiled(loss_function(model, where), [batch(SHORT), batch(LONG)], log)
    optimizer.zero_grad(set_to_none=True)
    at_start = hidden_accuracy(model, rows_watched, parts_watched, where)
    log(f"at the start: loss {at_start[0]:.3f}, accuracy {at_start[1]:.3f}")

    left = None if options.seconds is None else max(1.0, options.seconds - log.seconds() - 10)
    progress = Progress(options.steps, left)
    saved = said = log.seconds()
    while (fraction := progress.fraction()) < 1:
        rate = schedule(fraction)
        optimizer.param_groups[0]["lr"] = options.head_rate * rate
        optimizer.param_groups[1]["lr"] = options.body_rate * rate * (0.1 if fraction < HEAD_FIRST else 1)
        loss = loss_of(*batch(LONG if progress.step % LONG_EVERY == LONG_EVERY - 1 else SHORT))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        progress.step += 1
        if log.seconds() - said > 30:
            said = log.seconds()
            log(f"step {progress.step}, loss {loss.item():.3f}, {progress.step * options.tokens / 1e6:.0f}M tokens")
        if log.seconds() - saved > 120:
            saved = log.seconds()
            save_base(model, options.start, options.out)

    loss_end, accuracy = hidden_accuracy(model, rows_watched, parts_watched, where)
    log(f"{progress.step} steps: watched loss {loss_end:.3f}, accuracy {accuracy:.4f}")
    save_base(model, options.start, options.out)
    figures = {
        "steps": progress.step,
        "tokens": progress.step * options.tokens,
        "seconds": round(log.seconds()),
    }
    figures |= {"seed": options.seed, "watched_loss": loss_end, "watched_accuracy": accuracy}
    save_json(options.out.parent / "figures" / "base.json", figures)


if __name__ == "__main__":
    main()
