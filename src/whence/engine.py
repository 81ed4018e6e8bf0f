"""What every way of running a model shares: the model, its task, padding, and what to do when memory is short."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence, Sized
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial, wraps
from itertools import groupby
from typing import Any, TypeVar, cast

import torch
from transformers import PreTrainedModel

from whence.errors import ModelError
from whence.inputs import Batch, Encoded, collate
from whence.models import Lender, ModelChanged, Reads, lock_of, pad_id, reads_of
from whence.room import is_out_of_memory
from whence.tasks import SequenceClassification, Task
from whence.trace import Recording, record

Result = TypeVar("Result")
Row = TypeVar("Row", bound=Sized)
Call = TypeVar("Call", bound=Callable[..., Any])


@dataclass(frozen=True)
class Engine:
    """A model and its task."""

    model: PreTrainedModel
    task: Task
    lender: Lender = field(default_factory=Lender, compare=False)

    def __post_init__(self) -> None:
        """Where a classifier answers is a thing of its model, which its task has never seen."""
        if isinstance(self.task, SequenceClassification) and self.task.where is None:
            task = copy.copy(self.task)
            object.__setattr__(task, "where", partial(where_answered, self.model))
            object.__setattr__(self, "task", task)

    @property
    def reads(self) -> Reads:
        """What the model reads: tried when it is first asked for, so ask before the model is lent and hooked."""
        return reads_of(self.model)

    @property
    def exclusive(self) -> threading.RLock:
        """The model's lock. Hold it from the first look at the model, its configuration included, to the last: while another
        thread has the model, its padding id, attention and hooks are not its owner's."""
        return lock_of(self.model)

    @property
    def device(self) -> torch.device:
        return self.model.device

    def collate(self, rows: Sequence[Encoded]) -> Batch:
        return collate(rows, pad_id(self.model.config), self.device)

    def record(
        self, batch: Batch, needs: frozenset[str] = frozenset(), **options: Any
    ) -> AbstractContextManager[Recording]:
        """One forward of a batch (`trace.record`), of a model whose parts are remembered. For use in what `in_memory` runs, which runs
        it again if the model had changed."""
        return record(self.model, self.task, batch, needs, lender=self.lender, **options)

    def in_memory(
        self,
        rows: Sequence[Row],
        numbers: Sequence[int],
        run: Callable[[Sequence[Row], Sequence[int]], list[Result]],
    ) -> list[Result]:
        """Run rows as one batch; where memory does not suffice, halve it and try again. Rows of a model that reads what they are padded
        with do not share a batch with rows of another length."""
        if self.reads.padding:
            alike = [list(some) for _, some in groupby(numbers, lambda i: len(rows[i]))]
            if len(alike) > 1:
                return [result for some in alike for result in self.in_memory(rows, some, run)]
        part = [rows[i] for i in numbers]
        try:
            try:
                return run(part, numbers)
            except ModelChanged:  # told once: nothing is believed the second time
                return run(part, numbers)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        if len(numbers) == 1:
            n = len(rows[numbers[0]])
            raise ModelError(
                f"not enough memory for one text of {n} tokens; shorten it, or use a method that records less."
            )
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        half = len(numbers) // 2
        return self.in_memory(rows, numbers[:half], run) + self.in_memory(rows, numbers[half:], run)


def exclusively(call: Call) -> Call:
    """A function of an engine that has its model to itself from beginning to end (`Engine.exclusive`)."""

    @wraps(call)
    def alone(engine: Engine, *args: Any, **options: Any) -> Any:
        with engine.exclusive:
            return call(engine, *args, **options)

    return cast(Call, alone)


def where_answered(model: PreTrainedModel) -> tuple[str | None, bool]:
    """Where a classifier answers, and whether it tells padding by its id alone."""
    reads = reads_of(model)
    return reads.at, reads.by_id
