"""What whence knows of architectures: where the layers are, how long a text may be, which ids are special."""

import whence.backends  # noqa: F401  (first: it imports torch at rest)
from whence.models.asked_places import asked_places_only
from whence.models.facts import (
    first_position,
    is_causal,
    max_length,
    pad_id,
    reads_forward,
    special_ids,
    stand_in_ids,
    type_vocab_size,
    vocab_size,
)
from whence.models.first_token import first_token_only, reads_first_token
from whence.models.layers import layers_of, modules_of, uses_attention_interface
from whence.models.specs import SPECS, Spec, add_spec, spec_of
from whence.models.untouched import Lender, Lent, ModelChanged, lock_of, untouched

__all__ = [
    "SPECS",
    "Lender",
    "Lent",
    "ModelChanged",
    "Spec",
    "add_spec",
    "asked_places_only",
    "first_position",
    "first_token_only",
    "is_causal",
    "layers_of",
    "lock_of",
    "max_length",
    "modules_of",
    "pad_id",
    "reads_first_token",
    "reads_forward",
    "spec_of",
    "special_ids",
    "stand_in_ids",
    "type_vocab_size",
    "untouched",
    "uses_attention_interface",
    "vocab_size",
]
