"""Which heads of a model are syntactic or positional, and the masks made of them (Mask-LRP §4.1–4.2).

>>> from whence.evaluate import heads
>>> mask = heads.as_mask([[0, 1], [1, 1]])
>>> heads.random_mask(mask).count
3
"""

import whence.fast.imports  # noqa: F401  (first: it imports torch at rest)
from whence.evaluate.heads.conllu import Sentence, Word, parse_texts, read_conllu
from whence.evaluate.heads.statistics import HeadStatistics, head_statistics
from whence.relevance.head_mask import HeadMask, as_mask, corrupted_mask, load_mask, ones_mask, random_mask

__all__ = [
    "HeadMask",
    "HeadStatistics",
    "Sentence",
    "Word",
    "as_mask",
    "corrupted_mask",
    "head_statistics",
    "load_mask",
    "ones_mask",
    "parse_texts",
    "random_mask",
    "read_conllu",
]
