"""Lend a model to whence and give it back exactly as it was."""

from __future__ import annotations

import operator
import re
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from whence.errors import ModelError, WhenceError
from whence.models.as_written import CHUNKS, COMPILED, Setting, is_compiled, settings_of, without_wrappers
from whence.models.layers import modules_of

_LOCKS: weakref.WeakKeyDictionary[nn.Module, threading.RLock] = weakref.WeakKeyDictionary()
_SHARED_LOCKS: weakref.WeakValueDictionary[int, threading.RLock] = weakref.WeakValueDictionary()  # by id of a config
_GUARD = threading.Lock()
_RANDOM_STATE = threading.RLock()  # torch has one for the whole process

# a module's dicts in which torch keeps hooks; and those that say more of hooks that stand in one of the first two
HOOKS = ("_forward_hooks", "_forward_pre_hooks")
MORE_ON_HOOKS = ("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs")
COLLECTING = (
    "transformers.utils.output_capturing"  # the module that defines transformers' hooks; all others are the owner's
)
HARMLESS = (COLLECTING, "whence.")  # modules whose hooks change nothing
TRAINING = operator.itemgetter("training")
TRAINABLE = operator.attrgetter("requires_grad")
DEVICES = ("cpu", "cuda", "mps", "xpu")  # that have an autocast
DTYPE_CLASH = re.compile(r"type|BFloat16|Half|Float|Double")  # in torch's messages
CAPTURING = "_output_capturing_hooks_installed"  # transformers' mark that it hooked a model to collect outputs


def lock_of(model: nn.Module) -> threading.RLock:
    """One lock per model: explaining from several threads is correct, and runs one call at a time.

    Heads on one body, and models that were made from one config object, share a lock: lending one changes the others too.
    """
    with _GUARD:
        lock = _LOCKS.get(model)
        if lock is None:
            body = getattr(model, "base_model", model)
            lock = _SHARED_LOCKS.setdefault(id(getattr(body, "config", body)), threading.RLock())
            _LOCKS[model] = lock
        return lock


@contextmanager
def forked_random_state(model: nn.Module, devices: Sequence[torch.device] | None = None) -> Iterator[None]:
    """torch may be seeded and numbers drawn inside; afterwards its state is what it was. One thread at a time, and always with
    the model's lock taken first, so that no two threads wait for each other. devices: those forked too; None for all."""
    with lock_of(model), _RANDOM_STATE, torch.random.fork_rng(devices=devices):
        yield


@dataclass(frozen=True)
class Lent:
    """A model's parts, found by one walk: there are thousands, every call looks at them, and a GPU waits meanwhile."""

    modules: Sequence[nn.Module]  # as `modules_of`
    parameters: Sequence[nn.Parameter]  # module by module: tied ones as often as they are held
    training: Sequence[nn.Module]  # those in training mode
    configs: Sequence[Any]  # every distinct config that a module looks at
    hooked: Sequence[nn.Module]  # those that carry hooks
    models: Sequence[PreTrainedModel]  # the model, and models in it
    hooks_made: int  # how many hooks torch had ever made, on whatever module, before the walk
    kinds: frozenset[type[nn.Module]] = frozenset()  # the modules' classes
    forwards: Sequence[Any] = ()  # that modules have of their own, beside their class's
    settings: Sequence[Setting] = ()  # what is put aside (`as_written`)
    parts: object = field(
        default_factory=object
    )  # the same object where a later walk has found the same parts and hooks

    @classmethod
    def of(cls, model: nn.Module) -> Lent:
        hooks_made, modules = RemovableHandle.next_id, modules_of(model)
        try:
            return cls.of_modules(modules, hooks_made)
        except KeyError:  # modules that torch.compile has put around others have next to no attributes
            modules, settings = without_wrappers(modules)
            lent = cls.of_modules(modules, hooks_made)
            return replace(lent, settings=[*settings, *lent.settings])

    @classmethod
    def of_modules(cls, modules: Sequence[nn.Module], hooks_made: int) -> Lent:
        """What the modules of one model are made of."""
        parameters: list[nn.Parameter | None] = []
        training, configs, hooked, models = [], {}, [], []
        forwards, settings = list[Any](), list[Setting]()
        kinds = frozenset(map(type, modules))
        compiled = any(is_compiled(getattr(kind, "forward", None)) for kind in kinds)
        for module in modules:
            own = module.__dict__  # nn.Module's own look-up is slow where an attribute is absent
            if own["_parameters"]:
                parameters += own["_parameters"].values()
            if own["training"]:
                training.append(module)
            if "config" in own:
                configs[id(own["config"])] = own["config"]
                if isinstance(module, PreTrainedModel):
                    models.append(module)
            if own["_forward_hooks"] or own["_forward_pre_hooks"]:
                hooked.append(module)
            if "forward" in own:
                forwards.append(own["forward"])
            unusual = CHUNKS in own or COMPILED in own or "forward" in own
            if compiled or unusual or own["_backward_hooks"] or own["_backward_pre_hooks"]:
                settings += settings_of(module)
        there = [p for p in parameters if p is not None]
        known = [c for c in configs.values() if c is not None]
        return cls(modules, there, training, known, hooked, models, hooks_made, kinds, forwards, settings)

    @cached_property
    def own(self) -> Sequence[dict[str, Any]]:
        """Every module's own attributes."""
        return [module.__dict__ for module in self.modules]

    @property
    def quiet(self) -> bool:
        """No module trains, none has been given a hook since the walk, and what is put aside is what it was."""
        unmade = self.hooks_made == RemovableHandle.next_id and not any(map(TRAINING, self.own))
        return unmade and all(setting.unchanged for setting in self.settings)

    def same(self, other: Lent) -> bool:
        """Whether both found the same parts. Hooks may come and go while a model runs (transformers' do)."""
        parts = ("modules", "parameters", "training", "configs", "models", "forwards")
        pairs = [(getattr(self, name), getattr(other, name)) for name in parts]
        return all(len(a) == len(b) and all(map(operator.is_, a, b)) for a, b in pairs)

    @cached_property
    def listened_to(self) -> bool:
        """Whether anybody listens to a module. transformers' own hooks, which stay on a model that was once asked for its states,
        hand what they see to the caller of that forward, and here that is whence."""
        found = (hook for module in self.hooked for name in HOOKS for hook in module.__dict__[name].values())
        return any(getattr(hook, "__module__", None) != COLLECTING for hook in found)

    @property
    def hooks_of_owner(self) -> frozenset[int]:
        """The numbers of the hooks that may change what the model answers: neither transformers' nor whence's."""
        found = (item for module in self.hooked for name in HOOKS for item in module.__dict__[name].items())
        return frozenset(key for key, hook in found if not str(getattr(hook, "__module__", "")).startswith(HARMLESS))

    def hooks(self) -> dict[nn.Module, set[int]]:
        """The numbers of the hooks that modules carry, as they were found."""
        return {module: {key for name in HOOKS for key in module.__dict__[name]} for module in self.hooked}


@contextmanager
def own_precision() -> Iterator[None]:
    """As if the caller used no autocast, which would round products to half precision: of the model, and of what follows from it."""
    with ExitStack() as stack:
        for kind in DEVICES:
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def refuse_mixed(model: nn.Module, error: RuntimeError) -> None:
    """Say what is wrong where torch does not multiply weights of one dtype with states of another."""
    dtypes = {p.dtype: name for name, p in model.named_parameters() if p.is_floating_point()}
    if len(dtypes) > 1 and not isinstance(error, WhenceError) and DTYPE_CLASH.search(str(error)):
        named = ", ".join(f"{str(dtype).removeprefix('torch.')} ({name})" for dtype, name in dtypes.items())
        reason = str(error).strip().split("\n")[0]
        raise ModelError(
            f"the model has weights of several dtypes, {named}, and does not run: {reason}. Convert it to one, with "
            "model.to(torch.float32), say."
        ) from error


class ModelChanged(Exception):
    """The model is made of other parts than was believed when it was run: what came of it is not used, and it is run again."""


class Lender:
    """Remembers what a model was made of, for as long as somebody explains it.

    To walk a model takes as long as a tenth of all that Python does on a small batch, and a GPU waits for it. So a call may believe
    the last walk, give the GPU its work, and walk meanwhile. What a walk that comes late could not make good, because the model's
    owner would notice that it ran (hooks, and random numbers that a module in training draws), is looked at before: `Lent.quiet`.
    """

    def __init__(self) -> None:
        self._found: Lent | None = None

    def __reduce__(self) -> tuple[type[Lender], tuple[()]]:
        """Copies and pickles remember nothing."""
        return Lender, ()

    def believed(self, model: nn.Module) -> Lent | None:
        """The model's parts as they were found last; None where they have to be found first."""
        found = self._found
        return found if found is not None and found.modules[0] is model and found.quiet else None

    def confirm(self, lent: Lent, found: Lent) -> None:
        """Take what a later walk has found; `ModelChanged` if the model was lent by what is remembered, and that is not so."""
        if lent is self._found and (found.settings or not lent.same(found)):  # what was put aside is no longer found
            self._found = None
            raise ModelChanged
        parts = lent.parts if lent is self._found else found.parts
        self._found = replace(found, settings=lent.settings, parts=parts)


@contextmanager
def untouched(
    model: PreTrainedModel, *, attention: str | None = None, pad_id: int | None = None, lender: Lender | None = None
) -> Iterator[Lent]:
    """The model in evaluation mode with frozen parameters, and on request another attention function or padding id.

    On leaving, also by an exception, training flags, requires_grad, the attention implementation, the config's padding
    id, all hooks and what was put aside (`as_written`: compiled code, say) are what they were. Parameters' `.grad` are never written (gradients are asked for by
    `torch.autograd.grad`), and the caller's grad mode, inference mode or autocast does not matter. Gives the model's parts, which a
    lender may remember: whoever gives one walks again before it uses what came of them (`Lender.confirm`).
    """
    with lock_of(model):
        lent = (lender.believed(model) if lender else None) or Lent.of(model)
        text_config = model.config.get_text_config()
        trainable = list(filter(TRAINABLE, lent.parameters))
        put_back = remember(lent, text_config, trainable)
        whole = False
        try:
            for module in lent.training:
                module.training = False
            for parameter in trainable:
                parameter.requires_grad_(False)
            if attention is not None:
                for config in lent.configs:
                    config._attn_implementation_internal = attention
            if pad_id is not None and text_config.pad_token_id != pad_id:
                text_config.pad_token_id = pad_id
            for setting in lent.settings:
                setting.apply()
            with torch.inference_mode(False), torch.enable_grad(), own_precision():
                yield lent
            whole = True
        except RuntimeError as error:
            refuse_mixed(model, error)
            raise
        finally:
            to_the_end(partial(put_back, whole))


def remember(lent: Lent, text_config: Any, trainable: Sequence[nn.Parameter]) -> Callable[[bool], None]:
    """What puts everything back that whence may change of a model; told whether its block ran to the end."""
    hooks = lent.hooks()
    uncollected = [model.__dict__ for model in lent.models if CAPTURING not in model.__dict__]
    implementations = [(c, c._attn_implementation_internal) for c in lent.configs]
    padding = text_config.pad_token_id

    def put_back(whole: bool) -> None:
        if text_config.pad_token_id != padding:
            text_config.pad_token_id = padding
        for config, implementation in implementations:
            if config._attn_implementation_internal != implementation:
                config._attn_implementation_internal = implementation
        for parameter in trainable:
            parameter.requires_grad_(True)
        for module in lent.training:
            module.training = True
        for setting in reversed(lent.settings):
            setting.put_back()
        # hooks of whence's own go with the blocks that put them there, if nothing breaks in between; transformers' stay
        if not whole or any(CAPTURING in own for own in uncollected):
            for module in lent.modules:
                leave_hooks(module, hooks.get(module, set()))
            for own in uncollected:
                own.pop(CAPTURING, None)

    return put_back


def leave_hooks(module: nn.Module, kept: set[int]) -> None:
    """Take all other hooks off a module."""
    for name in (*HOOKS, *MORE_ON_HOOKS):
        table = module.__dict__[name]
        for key in set(table) - kept:
            table.pop(key, None)


def to_the_end(step: Callable[[], None]) -> None:
    """Run a step that may be run twice; if it is interrupted (Ctrl-C), it is run again before the interrupt goes on."""
    try:
        step()
    except BaseException:
        step()
        raise
