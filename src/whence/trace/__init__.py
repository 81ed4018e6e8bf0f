"""trace: one forward and at most one backward per scalar of the unmodified model, recording only what is needed."""

import whence.backends  # noqa: F401  (first: it imports torch at rest)
from whence.trace.blocks import Block, Norm
from whence.trace.gates import HeadParts
from whence.trace.needs import NEEDS, check_needs
from whence.trace.operations import RelevancePass
from whence.trace.recorder import record
from whence.trace.recording import Recording
from whence.trace.rules import RULE_SETS, rule_set
from whence.trace.trace import Trace

__all__ = [
    "NEEDS",
    "RULE_SETS",
    "Block",
    "HeadParts",
    "Norm",
    "Recording",
    "RelevancePass",
    "Trace",
    "check_needs",
    "record",
    "rule_set",
]
