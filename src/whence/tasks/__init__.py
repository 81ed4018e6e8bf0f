"""A task says which scalar is explained, where it is read out, and what its targets are called."""

from whence.tasks.base import TASKS, Task, Unexplained, task_of
from whence.tasks.classification import SequenceClassification

__all__ = ["TASKS", "SequenceClassification", "Task", "Unexplained", "task_of"]
