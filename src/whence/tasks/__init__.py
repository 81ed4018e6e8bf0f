"""A task says which scalar is explained, where it is read out, and what its targets are called."""

import whence.fast.imports  # noqa: F401  (first: it imports torch at rest)
from whence.tasks.base import TASKS, Prediction, Question, Task, task_of
from whence.tasks.causal_lm import CausalLM
from whence.tasks.classification import SequenceClassification
from whence.tasks.masked_lm import MaskedLM
from whence.tasks.named import labels_of
from whence.tasks.question_answering import QuestionAnswering
from whence.tasks.scalar import Scalar, Target, Term
from whence.tasks.token_classification import TokenClassification
from whence.tasks.vocabulary import Vocabulary

__all__ = [
    "TASKS",
    "CausalLM",
    "MaskedLM",
    "Prediction",
    "Question",
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
