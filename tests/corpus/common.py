"""A small checkpoint on disk, texts for it, and what a dataset is compared by."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

import whence
from tests import architectures

METHODS = ("attcat", "gae", "gradient")
WORDS = ("good", "bad", "film", "charming", "dull", "the", "a", "story", "and", "very")


def checkpoint(folder: Path, task: str = "sequence-classification", name: str = "bert") -> Path:
    """A tiny model as a plain Hugging Face directory."""
    architectures.model(name, torch.float32, task).save_pretrained(folder)
    architectures.tokenizer().save_pretrained(folder)
    return folder


def texts(count: int, seed: int = 0, longest: int = 40) -> list[str]:
    """Texts of mixed lengths, mostly short."""
    chance = np.random.default_rng(seed)
    lengths = np.minimum(chance.geometric(0.12, count), longest)
    return [" ".join(chance.choice(WORDS, n)) for n in lengths]


def shards(folder: Path) -> dict[str, str]:
    """File → hash of its bytes."""
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(folder.glob("shard-*.parquet"))}


def made(folder: Path) -> int:
    """How many shards are there."""
    return sum(1 for _ in folder.glob("shard-*.parquet"))


def start(*arguments: object) -> subprocess.Popen[str]:
    """`whence corpus …` in a process of its own."""
    source = str(Path(whence.__file__).parent.parent)
    path = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "whence", "corpus", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
