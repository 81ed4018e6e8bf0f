"""encode: text, pair or ids → `Encoded` rows → padded batches by token budget."""

from whence.inputs.batching import Batch, collate, pack, to_batch, to_device
from whence.inputs.encode import Encoded, Encoder, Input, is_single, where

__all__ = ["Batch", "Encoded", "Encoder", "Input", "collate", "is_single", "pack", "to_batch", "to_device", "where"]
