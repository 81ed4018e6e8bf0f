"""A session: a model with its task, lent to one caller at a time, and how many rows of it fit into a batch."""

from __future__ import annotations

import copy
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from transformers import PreTrainedModel

from whence.errors import ModelError, as_error, is_panic
from whence.inputs import Batch, Encoded, collate, pack
from whence.inputs.numbers import whole
from whence.models import (
    Lender,
    ModelChanged,
    Reads,
    lock_of,
    own_precision,
    pad_id,
    reads_of,
    uses_attention_interface,
)
from whence.models.find_head import Heads
from whence.run.progress import track
from whence.tasks import SequenceClassification, Task
from whence.trace import Recording, record
from whence.trace.attention import unseen

if TYPE_CHECKING:
    from whence.run.plan import ForwardPass

Call = TypeVar("Call", bound=Callable[..., Any])
ATTENTION_BYTES = 1 << 30  # how much attention, gradients included, one batch may hold at a time …
ATTENTION_SHARE = 1 / 16  # … or on a GPU this share of the memory that is free, if it is more
MANY_BATCHES = 8  # from so many on a terminal shows a bar


class Session:
    """A model and its task. Every way of running the model goes through here.

    Args:
        model: an unmodified model of transformers.
        task: what is explained of its answers.
        lm_heads: what decodes its hidden states, where methods ask for it.
    """

    def __init__(self, model: PreTrainedModel, task: Task, lm_heads: Heads) -> None:
        self.model, self.lm_heads = model, lm_heads
        if isinstance(task, SequenceClassification) and task.where is None:
            task = copy.copy(task)  # where a classifier answers is a thing of its model, which its task has never seen
            object.__setattr__(task, "where", partial(readout_of, model))
        self.task = task
        self.lender = Lender()

    @property
    def reads(self) -> Reads:
        """What the model reads: tried when it is first asked for, so ask before the model is lent and hooked."""
        return reads_of(self.model)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """The model to oneself: its weights, configuration and hooks are not looked at while another thread has it lent. The caller's
        autocast does not matter inside, and a panic of a Rust library is an error."""
        with lock_of(self.model), own_precision():
            try:
                yield
            except BaseException as error:
                if is_panic(error):
                    raise as_error(error) from error
                raise

    def collate(self, rows: Sequence[Encoded]) -> Batch:
        """The rows as one padded batch on the model's device."""
        return collate(rows, pad_id(self.model.config), self.model.device)

    def record(
        self, batch: Batch, needs: frozenset[str] = frozenset(), **options: Any
    ) -> AbstractContextManager[Recording]:
        """One forward of a batch (`trace.record`), for use within `Batches.fitting`."""
        return record(self.model, self.task, batch, needs, lender=self.lender, **options)

    def batches(
        self,
        rows: Sequence[Sized],
        batch_tokens: int,
        forwards: Sequence[ForwardPass] = (),
        *,
        max_pairs: int | None = None,
        progress: bool | None = False,
    ) -> Batches:
        """The rows in batches of like length.

        Args:
            rows: what has a length.
            batch_tokens: how many tokens, padding included, a batch may hold.
            forwards: what will run on them; of forwards whose methods read attention fewer rows fit.
            max_pairs: how many (query, key) pairs a batch may hold, where that does not follow from the forwards.
            progress: show a bar; None: on a terminal, where there are many.

        Raises:
            ModelError: the attention of the longest row alone takes more memory than there is.
        """
        if type(batch_tokens) is not int or batch_tokens < 1:
            batch_tokens = whole("batch_tokens", batch_tokens, unit=" of tokens")
        lengths = list(map(len, rows))
        pair_bytes = attention_bytes(self.model, forwards) if forwards else 0
        if pair_bytes:
            max_pairs = pairs_that_fit(pair_bytes, max(lengths, default=0), self.model.device)
        groups = pack(lengths, batch_tokens, max_pairs)
        if (
            self.reads.padding
        ):  # rows of a model that reads what they are padded with share no batch with rows of another length
            groups = [list(g) for group in groups for _, g in groupby(group, lambda i: lengths[i])]
        return Batches(deque(groups), lengths, progress)


def exclusively(call: Call) -> Call:
    """A function of a session that has the model to itself from beginning to end (`Session.exclusive`)."""

    @wraps(call)
    def alone(session: Session, *args: Any, **options: Any) -> Any:
        with session.exclusive():
            return call(session, *args, **options)

    return cast(Call, alone)


def readout_of(model: PreTrainedModel) -> tuple[str | None, bool]:
    """Where a classifier answers, and whether it tells padding by its id alone."""
    reads = reads_of(model)
    return reads.at, reads.by_id


@dataclass(frozen=True)
class Batches:
    """Row numbers, batch by batch. A batch that does not fit into memory comes again in halves:

    for numbers in session.batches(rows, 8192):
        with batches.fitting(numbers):
            ... run the rows of these numbers
    """

    waiting: deque[list[int]]
    lengths: Sequence[int]  # of all rows
    progress: bool | None = False

    def __iter__(self) -> Iterator[list[int]]:
        if self.progress or (self.progress is None and len(self.waiting) >= MANY_BATCHES):
            yield from track(self._in_turn(), len(self.waiting), "explaining", self.progress)
            return
        while self.waiting:
            yield self.waiting.popleft()

    def _in_turn(self) -> Iterator[list[int]]:
        while self.waiting:
            yield self.waiting.popleft()

    @contextmanager
    def fitting(self, numbers: list[int]) -> Iterator[None]:
        """Within the block the batch runs. Where memory does not suffice its halves come next, and what the block was doing is left.

        Raises:
            ModelError: one row alone does not fit.
        """
        try:
            yield
        except ModelChanged:  # the model is walked anew
            self.waiting.appendleft(numbers)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            if len(numbers) == 1:
                raise ModelError(
                    f"not enough memory for one text of {self.lengths[numbers[0]]} tokens; shorten it, or use a method that records less."
                ) from None
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            half = len(numbers) // 2
            self.waiting.extendleft([numbers[half:], numbers[:half]])


def is_out_of_memory(error: BaseException) -> bool:
    """CUDA says so by type, the CPU allocator only by words."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "not enough memory" in str(error)


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be had on a device; None where nobody says."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        line = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"))
    except OSError:
        return None
    return int(line[1]) * 1024 if line and device.type == "cpu" else None


def attention_bytes(model: PreTrainedModel, forwards: Sequence[ForwardPass]) -> int:
    """What every (query, key) pair of a batch takes: 0 if nobody looks at attention. One layer's maps with their gradient
    or relevance, their product and its parts; and a matrix per layer that the heads are averaged into. Models that hand
    out their maps themselves hold those of all layers."""
    attention_needs = {
        need for forward in forwards for need in forward.needs if need.startswith(("attention", "blocks"))
    }
    if not attention_needs:
        return 0
    config, text_config = model.config, model.config.get_text_config()
    layers, heads = (
        getattr(config, name, getattr(text_config, name, None)) for name in ("num_hidden_layers", "num_attention_heads")
    )
    if not isinstance(layers, int) or not isinstance(heads, int):
        raise unseen(model)
    maps = 2
    maps += 2 * any(".grad" in need for need in attention_needs)
    maps += 2 * any(".relevance" in need for need in attention_needs)
    if not uses_attention_interface(model):
        maps *= layers
    return (maps * heads + 2 * layers) * max(4, model.dtype.itemsize)


def pairs_that_fit(pair_bytes: int, longest: int, device: torch.device) -> int:
    """How many (query, key) pairs of a batch fit into the attention budget.

    Args:
        pair_bytes: what every pair takes.
        longest: tokens of the longest text.

    Raises:
        ModelError: the attention of the longest text alone is more than there is room for: better now than when the machine is full.
    """
    needed, free = pair_bytes * longest**2, free_memory(device)
    if free is not None and needed > free:
        raise ModelError(
            f"the attention of a text of {longest} tokens takes about {needed / 1e9:.0f} GB, and {free / 1e9:.0f} GB are free: "
            "shorten it, or use methods that keep none",
            lacks=("attention",),
        )
    return max(ATTENTION_BYTES, int(ATTENTION_SHARE * (free or 0)) if device.type == "cuda" else 0) // pair_bytes
