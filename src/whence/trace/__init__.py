"""trace: one forward and at most one backward per scalar of the unmodified model, recording only what is needed."""

import whence.fast.imports  # noqa: F401  (first: it imports torch at rest)
from whence.relevance.gates import HeadParts
from whence.relevance.operations import RelevancePass
from whence.relevance.rules import RULE_SETS, rule_set
from whence.trace.blocks import Block, Norm
from whence.trace.needs import LACKING, NEEDS, check_needs
from whence.trace.recorder import record
from whence.trace.recording import Recording
from whence.trace.trace import Trace

__all__ = [
    "LACKING",
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
