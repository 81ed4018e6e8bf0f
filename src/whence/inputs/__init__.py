"""encode: text, pair or ids → `Encoded` rows → padded batches by token budget."""

from whence.inputs.batching import Batch, collate, pack
from whence.inputs.encode import Encoded, Encoder, Input, is_single, where

__all__ = ["Batch", "Encoded", "Encoder", "Input", "collate", "is_single", "pack", "where"]
