"""A task says which scalar is explained, where it is read out, and what its targets are called."""

import whence.backends  # noqa: F401  (first: it imports torch at rest)
from whence.tasks.base import TASKS, Ask, Prediction, Target, Task, Term, task_of
from whence.tasks.causal_lm import CausalLM
from whence.tasks.classification import SequenceClassification
from whence.tasks.masked_lm import MaskedLM
from whence.tasks.named import labels_of
from whence.tasks.question_answering import QuestionAnswering
from whence.tasks.scalar import Scalar
from whence.tasks.token_classification import TokenClassification
from whence.tasks.vocabulary import Vocabulary

__all__ = [
    "TASKS",
    "Ask",
    "CausalLM",
    "MaskedLM",
    "Prediction",
    "QuestionAnswering",
    "Scalar",
    "SequenceClassification",
    "Target",
    "Task",
    "Term",
    "TokenClassification",
    "Vocabulary",
    "labels_of",
    "task_of",
]
