"""encode: text, pair or ids → `Encoded` rows → padded batches by token budget."""

import whence.fast.imports  # noqa: F401  (first: it imports torch at rest)
from whence.inputs.encode import Encoder, Input, check_unicode, is_single, where
from whence.inputs.rows import Batch, Encoded, Fetched, behind, collate, pack, to_batch, to_device
from whence.inputs.tokenizing import tokenize

__all__ = [
    "Batch",
    "Encoded",
    "Encoder",
    "Fetched",
    "Input",
    "behind",
    "check_unicode",
    "collate",
    "is_single",
    "pack",
    "to_batch",
    "to_device",
    "tokenize",
    "where",
]
