"""What whence knows of architectures: where the layers are, how long a text may be, which ids are special."""

import whence.fast.imports  # noqa: F401  (first: it imports torch at rest)
from whence.models.as_written import uncompiled
from whence.models.decoders import check_causal
from whence.models.facts import (
    first_position,
    is_causal,
    max_length,
    may_cache,
    pad_id,
    padding_ids,
    says_causal,
    special_ids,
    stand_in_ids,
    type_vocab_size,
    vocab_size,
    with_names,
)
from whence.models.layers import layers_of, modules_of, uses_attention_interface
from whence.models.lending import Lender, Lent, ModelChanged, forked_random_state, lock_of, own_precision, untouched
from whence.models.reads import ELSEWHERE, EVERY, FIRST, LAST, Reads, known_reads, reads_forward, reads_of, two_part
from whence.models.specs import SPECS, Spec, add_spec, spec_of

__all__ = [
    "ELSEWHERE",
    "EVERY",
    "FIRST",
    "LAST",
    "SPECS",
    "Lender",
    "Lent",
    "ModelChanged",
    "Reads",
    "Spec",
    "add_spec",
    "check_causal",
    "first_position",
    "forked_random_state",
    "is_causal",
    "known_reads",
    "layers_of",
    "lock_of",
    "max_length",
    "may_cache",
    "modules_of",
    "own_precision",
    "pad_id",
    "padding_ids",
    "reads_forward",
    "reads_of",
    "says_causal",
    "spec_of",
    "special_ids",
    "stand_in_ids",
    "two_part",
    "type_vocab_size",
    "uncompiled",
    "untouched",
    "uses_attention_interface",
    "vocab_size",
    "with_names",
]
