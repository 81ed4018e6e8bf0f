"""What a model reads, found out by trying it once: which tokens see which, where a classifier reads its answer, and whether padding or
the absence of a mask makes a difference.

Nothing is believed that a config, a class name or a flag says. Three forwards of a few short rows tell

* whether a token sees only itself and what stands before it: change the last token, and see whether earlier states move;
* at which tokens a classifier reads its last layer's states: put NaN at one of them, and see whether it reaches the logits;
* whether what pads a row reaches its answer: run it padded, and alone;
* whether a mask that hides nothing makes a difference, where a token of the text has the padding's id.

A model that cannot be tried (it wants more than ids) is taken as its flags and its head's name say.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from whence.models.facts import is_causal, may_cache, pad_id, says_causal, special_ids, vocab_size, with_names
from whence.models.layers import layers_of
from whence.models.lending import HOOKS, forked_random_state, lock_of, untouched
from whence.models.rounding import close, rounding

FIRST, LAST, EVERY, ELSEWHERE = "first", "last", "every", "elsewhere"
LONG, SHORT = 9, 5  # tokens of the rows that are tried
# what a token sees there depends on how many blocks of tokens a batch has, and blocks are longer than the rows that are tried
IN_BLOCKS = ("reformer", "big_bird")
IN_PLACE = "in-place operation"  # in torch's message, where a leaf of the graph would be written to


@dataclass(frozen=True)
class Reads:
    """What a model reads."""

    forward: bool  # a token sees only itself and what stands before it
    at: str | None = None  # where a sequence classifier reads its last layer's states; None: it could not be tried
    by_id: bool = False  # LAST is the rightmost token that has not the padding's id, whatever the mask says
    padding: bool = False  # what pads a row reaches its answer
    mask: bool = False  # it answers differently without a mask that hides nothing
    overwrites: bool = False  # it writes into its word embeddings
    turned: bool = False  # its states are (n, b, d)


_KNOWN: weakref.WeakKeyDictionary[nn.Module, Reads] = weakref.WeakKeyDictionary()


def reads_of(model: PreTrainedModel) -> Reads:
    """What the model reads; tried once per model. Call it before hooks of whence's own are there."""
    found = _KNOWN.get(model)
    if found is not None:
        return found
    with lock_of(model):  # its configuration is another's while it is lent
        found, lasting = tried(model)
        if lasting:
            _KNOWN[model] = found
    return found


def known_reads(model: PreTrainedModel) -> Reads | None:
    """What was found; None where the model has not been tried."""
    return _KNOWN.get(model)


def reads_forward(model: PreTrainedModel) -> bool:
    """Every token sees only itself and what stands before it (GPT-2, LLaMA, …), whatever the head."""
    return reads_of(model).forward


def tried(model: PreTrainedModel) -> tuple[Reads, bool]:
    """What a model reads, and whether that holds for good: weights that are no numbers, and too little memory, say nothing."""
    try:
        with forked_random_state(model, cuda_of(model)), unheard(model):
            found = Try.of(model).reads()
    except (MemoryError, torch.OutOfMemoryError):
        return as_it_says(model), False
    except Exception:  # a model that wants more than ids, or rows of another length
        return as_it_says(model), True
    if found is None:
        return as_it_says(model), all(bool(torch.isfinite(p.detach()).all()) for p in model.parameters())
    return found, True


def as_it_says(model: PreTrainedModel, forward: bool | None = None) -> Reads:
    """What flags and the head's name say. forward: what is known of that."""
    forward = says_causal(model) and not two_part(model) if forward is None else forward
    # a decoder is not believed to read its answer at a token that has seen nothing but itself
    return Reads(forward, ELSEWHERE if forward and not is_causal(model) else None, is_causal(model))


def two_part(model: PreTrainedModel) -> bool:
    """Encoder and decoder: what the decoder's tokens see says nothing of the text's."""
    return bool(getattr(model.config, "is_encoder_decoder", False))


def cuda_of(model: PreTrainedModel) -> list[torch.device]:
    return [model.device] if model.device.type == "cuda" else []


@contextmanager
def unheard(model: PreTrainedModel) -> Iterator[None]:
    """The model evaluated as it is lent, while whoever listens to its modules hears nothing."""
    padding = padding_of(model)
    with untouched(model, pad_id=padding) as lent:
        heard = [(module.__dict__, name, module.__dict__[name]) for module in lent.hooked for name in HOOKS]
        try:
            for own, name, _ in heard:
                own[name] = OrderedDict()
            yield
        finally:
            for own, name, hooks in heard:
                own[name] = hooks


def padding_of(model: PreTrainedModel) -> int:
    """The model's own padding id, or one of no token that is tried."""
    own = pad_id(model.config)
    return words_of(model)[0] if own is None else own


def words_of(model: PreTrainedModel) -> list[int]:
    """Ids that frame no text."""
    framing = special_ids(model.config, None) | special_ids(model.config.get_text_config(), None)
    return [i for i in range(vocab_size(model)) if i not in framing][: LONG + SHORT + 2]


@dataclass
class Seen:
    """One forward: what came out of the last layer each time it ran (the last one counts), and the answer."""

    calls: int = 0
    states: Tensor | None = None  # (b, n, d), before anything was put into it
    leaf: Tensor | None = None  # (b, n, d) word embeddings
    leaves: int = 0
    turned: bool = False  # anything of this was (n, b, d)
    answer: Tensor | None = None  # (b, options), or (b, n, options)


@dataclass(frozen=True)
class Try:
    """The rows that a model is tried on."""

    model: PreTrainedModel
    layer: nn.Module | None  # the last one, or the model without its head
    long: list[int]
    short: list[int]
    other: int  # an id that is in neither
    padding: int
    two_part: bool
    calls: list[int] = field(default_factory=list)  # how often the last layer runs in one forward of a classifier

    @classmethod
    def of(cls, model: PreTrainedModel) -> Try:
        _, other, *words = words_of(model)
        whole, parts = words[:LONG], two_part(model)
        rest = words[LONG:][:SHORT]
        if parts:  # their classifiers read at </s>
            end: Any = getattr(model.config, "eos_token_id", None)
            whole[-1] = rest[-1] = int(end[0] if isinstance(end, list) else end)
        if len(whole) < LONG or len(rest) < SHORT:
            raise ValueError("too few words to try")
        layers = layers_of(model)
        body: Any = model.base_model  # where layers cannot be told
        return cls(
            model,
            layers[-1] if layers else None if body is model else body,
            whole,
            rest,
            other,
            padding_of(model),
            parts,
        )

    @property
    def in_blocks(self) -> bool:
        return str(self.model.config.model_type) in IN_BLOCKS

    def reads(self) -> Reads | None:
        """All that is asked of the model; None if it answers with what is no number."""
        within = [*self.long[:2], self.padding, *self.long[3:]]
        changed = self.long if self.two_part else [*self.long[:-1], self.other]
        rows = [self.long, changed, within]
        plain, overwrites = self.plain(rows)
        if plain.answer is None or not bool(torch.isfinite(plain.answer).all()):
            return None
        if plain.answer.dim() == 2:  # of others nobody asks where the answer is read
            self.calls.append(plain.calls)
        forward = self.forward(plain)
        known = replace(as_it_says(self.model, forward), overwrites=overwrites, turned=plain.turned)
        try:
            alone, at_short = self.poisoned(self.short)
        except Exception:  # rows of this length do not run: nothing is known of padding, or of where it reads
            return replace(known, padding=self.in_blocks)
        try:
            return self.with_company(known, plain, alone, at_short)
        except Exception:  # padded rows do not run
            return replace(known, padding=True)

    def with_company(self, told: Reads, plain: Seen, alone: Seen, at_short: set[int] | None) -> Reads:
        """With what a batch tells, beside rows that ran `plain`, without a mask, and `alone`."""
        within = [*self.long[:2], self.padding, *self.long[3:]]
        ending = self.long if self.two_part else [*self.long[:-1], self.padding]
        padded = [*self.short, *[self.padding] * (LONG - SHORT)]
        known = [
            self.long,
            within,
            padded,
            ending,
            self.long,
        ]  # `ending` gets NaN before its end; the last is moved round
        rows, at = known, {}
        if self.calls:
            rows = known + [self.long] * LONG + [padded] * SHORT
            at = {3: LONG - 2} | {len(known) + i: i for i in range(LONG)}
            at |= {len(known) + LONG + i: i for i in range(SHORT)}
        mask = [[int(row is not padded or i < SHORT) for i in range(LONG)] for row in rows]
        seen = self.run(rows, mask, poison=at, moved=4)
        assert seen.answer is not None
        assert plain.answer is not None
        assert alone.answer is not None
        hurt = self.hurt(seen, at)
        at_long = None if hurt is None else {row - len(known) for row in hurt if len(known) <= row < len(known) + LONG}
        at_padded = None if hurt is None else {row - len(known) - LONG for row in hurt if row >= len(known) + LONG}
        same = [self.same(plain, i, seen, j) for i, j in ((0, 0), (2, 1))]
        where = self.where(seen, at_long, at_short)
        return replace(
            told,
            at=where,
            by_id=told.by_id if hurt is None else where == LAST and 3 in hurt,
            padding=self.in_blocks or not self.same(alone, 0, seen, 2, SHORT) or at_padded != at_short,
            mask=not all(same) or self.asks_what_is_not_there(),
        )

    def asks_what_is_not_there(self) -> bool:
        """Where a row without a mask ends with padding, transformers warns, and asks the config for an id that some do not have."""
        if hasattr(self.model.config, "bos_token_id"):
            return False
        try:
            self.run([[*self.long[:-1], self.padding]])
        except AttributeError:
            return True
        return False

    def where(self, seen: Seen, at_long: set[int] | None, at_short: set[int] | None) -> str | None:
        """Where a classifier reads, of two rows."""
        if seen.answer is None or seen.answer.dim() != 2:
            return None
        if self.two_part:
            return ELSEWHERE
        if at_long is None or at_short is None:
            return as_it_says(self.model).at
        if at_long == at_short == {0}:
            return FIRST
        if not at_long and isinstance(self.layer, PreTrainedModel):
            return as_it_says(self.model).at  # what its body makes of the states is no longer seen by the token
        if (at_long, at_short) == ({LONG - 1}, {SHORT - 1}):
            return LAST
        if (len(at_long), len(at_short)) == (LONG, SHORT) and close(seen.answer[4], seen.answer[0]):
            return EVERY  # and whichever stands where
        return ELSEWHERE

    def plain(self, rows: Sequence[Sequence[int]]) -> tuple[Seen, bool]:
        """A forward without a mask, its word embeddings a leaf of the graph if it can be, and whether it writes into them."""
        for copied in (False, True):
            try:
                return self.run(rows, leaf=True, copied=copied), copied
            except RuntimeError as error:
                if IN_PLACE not in str(error):
                    break
        return self.run(rows), False

    def poisoned(self, row: Sequence[int]) -> tuple[Seen, set[int] | None]:
        """A row by itself, and where NaN in its states reaches the answer."""
        at = {1 + i: i for i in range(len(row) if self.calls else 0)}
        seen = self.run([row] * (1 + len(at)), poison=at)
        hurt = self.hurt(seen, at)
        return seen, None if hurt is None else {at[i] for i in hurt}

    def forward(self, seen: Seen) -> bool:
        """Whether the last token leaves earlier ones as they are, when it changes and by the gradient."""
        if self.two_part:
            return False
        states = seen.states if seen.states is not None else seen.answer
        assert states is not None
        if states.dim() != 3 or states.shape[0] != 3 or states.shape[1] < LONG:
            return says_causal(self.model)
        earlier = states[:2, : LONG - 1].detach()
        noise = 4 * rounding(states.dtype, states.device) * float(earlier.abs().max())
        if float((earlier[0] - earlier[1]).abs().max()) > noise:
            return False
        if seen.leaf is None or seen.leaves != 1 or not states.requires_grad:
            return True
        # a norm's output has the same sum whatever it reads, so features are weighed
        weights = torch.arange(1, states.shape[-1] + 1, device=states.device).cos()
        sums = (states[0, : LONG - 1].float() * weights).sum()
        (gradient,) = torch.autograd.grad(sums, seen.leaf, allow_unused=True)
        if gradient is None or gradient.shape[:2] != states.shape[:2]:
            return True
        sizes = gradient[0].abs().amax(-1)
        return bool(sizes[LONG - 1] <= 1e-6 * sizes.max())

    def same(self, one: Seen, i: int, other: Seen, j: int, tokens: int = LONG) -> bool:
        """Whether a row came out the same twice."""
        pairs = [(one.answer, other.answer), (one.states, other.states)]
        return all(close(cut(b[j], tokens), cut(a[i], tokens)) for a, b in pairs if a is not None and b is not None)

    def hurt(self, seen: Seen, at: dict[int, int]) -> set[int] | None:
        """The rows in which NaN reached the answer of a classifier; None where it could not be put anywhere."""
        if seen.states is None or seen.answer is None or seen.answer.dim() != 2:
            return None
        lost = seen.answer.isnan().any(-1).tolist()
        return {row for row in at if lost[row]}

    def run(
        self,
        rows: Sequence[Sequence[int]],
        mask: Sequence[Sequence[int]] | None = None,
        *,
        poison: dict[int, int] | None = None,
        moved: int | None = None,
        leaf: bool = False,
        copied: bool = False,
    ) -> Seen:
        """One forward. poison: which row's states get NaN at which token; moved: a row whose states go round by one."""
        seen, model = Seen(), self.model
        ids = torch.tensor(rows, device=model.device)
        inputs: dict[str, Any] = {"input_ids": ids, **with_names(model)}
        if mask is not None:
            inputs["attention_mask"] = torch.tensor(mask, device=model.device)
        if may_cache(type(model).forward):
            inputs["use_cache"] = False

        def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
            states = output if isinstance(output, Tensor) else output[0]
            seen.calls += 1
            if not isinstance(states, Tensor) or states.dim() != 3:
                return None
            turned = states.shape[1] == len(rows) != states.shape[0]  # (n, b, d)
            seen.turned |= turned
            found = states.transpose(0, 1) if turned else states
            if found.shape[0] != len(rows) or found.shape[1] < ids.shape[1]:
                return None
            seen.states = found
            if self.calls and seen.calls == self.calls[0] and (poison or moved is not None):
                found = found.clone()
                if moved is not None:
                    found[moved, : ids.shape[1]] = found[moved, : ids.shape[1]].roll(1, 0)
                for row, token in (poison or {}).items():
                    found[row, token] = torch.nan
                return with_states(output, found.transpose(0, 1) if turned else found)
            return None

        def before(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
            seen.leaves += 1
            seen.turned |= isinstance(output, Tensor) and output.shape[1::-1] == ids.shape != output.shape[:2]
            if not isinstance(output, Tensor) or output.shape[:2] != ids.shape:
                return None
            seen.leaf = output.detach().requires_grad_(True)
            return seen.leaf.clone() if copied else seen.leaf

        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(leaf))
            if leaf:
                table: Any = model.get_input_embeddings()
                stack.callback(table.register_forward_hook(before).remove)
            if self.layer is not None:
                stack.callback(self.layer.register_forward_hook(after).remove)
            seen.answer = answer_of(model(**inputs))
        return seen


def with_states(output: Any, states: Tensor) -> Any:
    """A module's output with other states."""
    if isinstance(output, ModelOutput):
        name = next(iter(output))
        return type(output)(**{**output, name: states})
    if hasattr(output, "_replace"):  # a named tuple
        return output._replace(**{output._fields[0]: states})
    return type(output)((states, *output[1:])) if isinstance(output, (tuple, list)) else states


def cut(values: Tensor, tokens: int) -> Tensor:
    """A row's own tokens, of what has tokens: (n, …); the options of a classifier are one vector."""
    return values.detach()[:tokens] if values.dim() > 1 else values.detach()


def answer_of(output: Any) -> Tensor | None:
    """(b, options) of a classifier, (b, n, options) of what answers at every token."""
    found = getattr(output, "logits", None)
    if found is None and getattr(output, "start_logits", None) is not None:
        found = torch.stack([output.start_logits, output.end_logits], -1)
    return found.detach() if isinstance(found, Tensor) else None
