"""Explainer: encode → trace → attribute → Explanation, for any number of texts and methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whence.errors import InputError, ModelError, NotSupported, UnknownName
from whence.explanation import Explanation
from whence.heads.mask import as_mask
from whence.inputs import Batch, Encoded, Encoder, collate, is_single, pack
from whence.models import max_length, pad_id, special_ids, type_vocab_size, vocab_size
from whence.models.lm_head import LMHead, check_head, head_of_model, head_of_module
from whence.passes import ForwardPass, forward_passes
from whence.progress import track
from whence.registry import Attribution, Method, get_method
from whence.tasks import Task
from whence.trace import Recording, record

BATCH_TOKENS = 8192
ATTENTION_BYTES = 1 << 30  # how much recorded attention, gradients included, one batch may hold

DEFAULT_METHOD = "attnlrp"
FALLBACK_METHOD = "gae"  # runs wherever attention can be seen

Result = TypeVar("Result")


@dataclass(frozen=True)
class Prediction:
    """What the model answers."""

    label: str
    index: int
    probability: float | None  # None for regression
    probabilities: tuple[float, ...]  # in the order of the explainer's labels; the raw value for regression


class Explainer:
    """A model, its tokenizer and its task, ready to explain. Made by `whence.load`.

    The model stays an ordinary Hugging Face model: after every call it is exactly as it was found. Calls from several
    threads are correct and run one at a time.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None,
        task: Task,
        name: str | None = None,
        lm_head: Any = None,
        load_lm: Callable[[str], PreTrainedModel] | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self._task = task
        self.task = task.name
        self.name = name or model.name_or_path or type(model).__name__
        self.labels = task.labels(model.config)
        self._lm_head, self._load_lm = lm_head, load_lm
        self._heads: dict[Any, LMHead] = {}
        self.embedded_heads: Path | None = None  # the head mask that comes with an embedded model
        self._encoder = Encoder(
            tokenizer=tokenizer,
            max_length=max_length(model, tokenizer),
            vocab_size=vocab_size(model),
            special_ids=special_ids(model.config, tokenizer),
            type_vocab_size=type_vocab_size(model.config),
        )

    def __repr__(self) -> str:
        return f"<whence.Explainer {self.name!r}: {self.task}, labels {', '.join(self.labels)}>"

    @property
    def device(self) -> torch.device:
        return self.model.device

    def predict(
        self, inputs: Any, *, batch_tokens: int = BATCH_TOKENS, on_long: str = "truncate"
    ) -> Prediction | list[Prediction]:
        """The model's answer for one input (a Prediction) or a list of them (a list, same order)."""
        rows = self._encoder.encode([inputs] if is_single(inputs) else inputs, on_long)
        answers: list[Prediction | None] = [None] * len(rows)
        for group in pack([len(row) for row in rows], batch_tokens):
            for i, answer in zip(group, self._in_memory(rows, group, self._predict_batch), strict=True):
                answers[i] = answer
        done = [a for a in answers if a is not None]
        return done[0] if is_single(inputs) else done

    def _predict_batch(self, rows: Sequence[Encoded], numbers: Sequence[int]) -> list[Prediction]:
        with record(self.model, self._task, self._collate(rows), frozenset()) as recording:
            values = self._values(recording).cpu().tolist()
            known = recording.log_probabilities is not None
        return [self._prediction(row, known) for row in values]

    def _values(self, recording: Recording) -> Tensor:
        """Probabilities where the model gives them, raw outputs where it does not. (b, targets)"""
        logp = recording.log_probabilities
        return (recording.logits if logp is None else logp.exp()).detach()

    def _prediction(self, values: list[float], known: bool) -> Prediction:
        best = max(range(len(values)), key=values.__getitem__)
        return Prediction(self.labels[best], best, values[best] if known else None, tuple(values))

    def explain(
        self,
        inputs: Any,
        method: str | Sequence[str] | None = None,
        target: Any = None,
        *,
        batch_tokens: int = BATCH_TOKENS,
        on_long: str = "truncate",
        progress: bool | None = None,
        **options: Any,
    ) -> Any:
        """Explain one input or a list of inputs, with one method or several, from one pass over the model.

        inputs: a text; a (text, text) pair; {"input_ids": […]}; or a list of any of these.
        method: a name gives an Explanation (or a list of them); a list of names gives {name: …}. None is `attnlrp`, the most
            faithful of the cheap ones on the embedded models, or `gae` where an architecture has no relevance rules.
        target: None (the predicted label), a label, an index, a list with one per input, or "all" (a list of
            Explanations, one per label, in the place of each).
        batch_tokens: how many tokens, padding included, run at once.
        on_long: "truncate" (with a warning, and marked in the result) or "error".
        options: options of the methods (`whence.methods()` lists them); each goes to the methods that take it.
        """
        if not isinstance(batch_tokens, int) or batch_tokens < 1:
            raise InputError(f"batch_tokens={batch_tokens!r}: give a whole number of tokens, 1 or more.")
        if method is None:
            fixed = {"target": target, "batch_tokens": batch_tokens, "on_long": on_long, "progress": progress}
            try:
                return self.explain(inputs, DEFAULT_METHOD, **fixed, **options)
            except NotSupported:
                return self.explain(inputs, FALLBACK_METHOD, **fixed, **options)
        names = [method] if isinstance(method, str) else list(method) if isinstance(method, Sequence) else [method]
        if not names:
            raise InputError("no method given; whence.methods() lists them.")
        plan = plan_methods(names, options)
        single = is_single(inputs)
        items = [inputs] if single else inputs
        targets = self._targets(target, len(items), single)
        rows = self._encoder.encode(items, on_long)
        for _, chosen in plan.values():
            if "head_mask" in chosen:
                chosen["head_mask"] = as_mask(chosen["head_mask"], self.embedded_heads)
        passes = forward_passes(plan)
        needs = frozenset[str]().union(*(p.needs for p in passes))

        def run(part: Sequence[Encoded], numbers: Sequence[int]) -> list[dict[str, list[Explanation]]]:
            wanted = [targets[i] for i in numbers]
            results: list[dict[str, list[Explanation]]] = [{} for _ in part]
            for one in passes:
                for result, found in zip(results, self._explain_batch(part, wanted, one), strict=True):
                    result |= found
            return results

        found: list[dict[str, list[Explanation]]] = [{} for _ in rows]
        groups = pack([len(row) for row in rows], batch_tokens, self._max_pairs(needs))
        for group in track(groups, len(groups), "explaining", progress):
            for i, result in zip(group, self._in_memory(rows, group, run), strict=True):
                found[i] = result

        def gather(name: str) -> Any:
            per_input = [f[name] if t == "all" else f[name][0] for f, t in zip(found, targets, strict=True)]
            return per_input[0] if single else per_input

        return gather(names[0]) if isinstance(method, str) else {name: gather(name) for name in names}

    def lm_head(self, given: Any = None) -> LMHead:
        """The language-model head that decodes this model's hidden states: `given` (a name, a directory, a live model or a
        module), else the model's own, else the one that `load` was told or knows of."""
        key = str(given) if isinstance(given, Path) else given
        if not (key is None or isinstance(key, (str, nn.Module))):
            raise InputError(
                f"lm_head= takes a name, a directory, a live model or a module, got {type(given).__name__}."
            )
        if key not in self._heads:
            head = self._find_head(key)
            check_head(head, self.model.config.hidden_size, vocab_size(self.model), self.device, self.model.dtype)
            self._heads[key] = head
        return self._heads[key]

    def _find_head(self, given: str | nn.Module | None) -> LMHead:
        source: Any = given
        if source is None:
            own = head_of_model(self.model, self.name)
            if own is not None:
                return own
            source = self._lm_head
        if source is None:
            raise NotSupported(
                f"{self.name} has no language-model head, which decoded methods need: pass lm_head= the checkpoint it was "
                "fine-tuned from (a name, a directory or a live model), or a module from hidden states to logits."
            )
        name = source if isinstance(source, str) else type(source).__name__
        if isinstance(source, (str, Path)):
            if self._load_lm is None:
                raise InputError(
                    f"lm_head={str(source)!r}: this Explainer was not made by whence.load; give a live model."
                )
            name, source = str(source), self._load_lm(str(source))
        if not isinstance(source, PreTrainedModel):
            return head_of_module(source)
        head = head_of_model(source, name)
        if head is None:
            raise NotSupported(f"lm_head={name!r} is a {type(source).__name__}: it has no language-model head.")
        return head

    def _targets(self, target: Any, count: int, single: bool) -> list[int | str | None]:
        """One per input: an index, None (predicted) or "all"."""
        if isinstance(target, (list, tuple)):
            if single:
                raise InputError(
                    "a list of targets goes with a list of inputs; for one input give one target, or 'all'."
                )
            if len(target) != count:
                raise InputError(f"{len(target)} targets for {count} inputs; give one each.")
            return [self._target(t) for t in target]
        return [self._target(target)] * count

    def _target(self, target: Any) -> int | str | None:
        if target is None or (target == "all" and "all" not in self.labels):
            return target if target is None else "all"
        if isinstance(target, str):
            if target in self.labels:
                return self.labels.index(target)
            folded = [label.casefold() for label in self.labels]
            if folded.count(target.casefold()) == 1:
                return folded.index(target.casefold())
            raise UnknownName("label", target, self.labels)
        if isinstance(target, (bool, np.bool_)) or not isinstance(target, (int, np.integer)):
            raise InputError(
                f"target must be a label ({', '.join(self.labels)}), its index, 'all' or None, got {type(target).__name__}."
            )
        if not 0 <= target < len(self.labels):
            raise InputError(f"target {target} is out of range: this model has labels 0 to {len(self.labels) - 1}.")
        return int(target)

    def _max_pairs(self, needs: frozenset[str]) -> int | None:
        """How many (query, key) pairs of a batch fit into the attention budget; None if no attention is recorded."""
        copies = 2 * ("attention" in needs or "blocks" in needs) + 2 * ("attention.grad" in needs)
        copies += 4 * any(".relevance" in need for need in needs)  # written out, and kept in the graph
        if not copies:
            return None
        config = self.model.config
        maps = config.num_hidden_layers * config.num_attention_heads * copies
        return int(ATTENTION_BYTES // (maps * self.model.dtype.itemsize))

    def _in_memory(
        self,
        rows: Sequence[Encoded],
        numbers: Sequence[int],
        run: Callable[[Sequence[Encoded], Sequence[int]], list[Result]],
    ) -> list[Result]:
        """Run rows as one batch; where memory does not suffice, halve it and try again."""
        try:
            return run([rows[i] for i in numbers], numbers)
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
        return self._in_memory(rows, numbers[:half], run) + self._in_memory(rows, numbers[half:], run)

    def _collate(self, rows: Sequence[Encoded]) -> Batch:
        return collate(rows, pad_id(self.model.config), self.device)

    def _explain_batch(
        self,
        rows: Sequence[Encoded],
        targets: Sequence[int | str | None],
        planned: ForwardPass,
    ) -> list[dict[str, list[Explanation]]]:
        """Every method of one pass on one batch: one forward, and one backward per scalar, relevance and target."""
        plan = planned.plan
        results: list[dict[str, list[Explanation]]] = [{name: [] for name in plan} for _ in rows]
        heads = {o.get("lm_head"): self.lm_head(o.get("lm_head")) for m, o in plan.values() if "lm-head" in m.needs(o)}
        dtype = planned.dtype(self.model.dtype)
        batch = self._collate(rows)
        with record(self.model, self._task, batch, planned.needs, planned.rules, dtype, heads) as recording:
            predicted = recording.logits.detach().argmax(-1).tolist()
            rounds = len(self.labels) if "all" in targets else 1
            for turn in range(rounds):
                wanted = [
                    turn if t == "all" else p if t is None else int(t) for t, p in zip(targets, predicted, strict=True)
                ]
                target = torch.tensor(wanted, device=self.device)
                traces = planned.traces(recording, target, last=turn == rounds - 1)
                probability = next(iter(traces.values())).probability
                chances = None if probability is None else probability.tolist()
                for name, (method, options) in plan.items():
                    attribution = method(traces[name], **options)
                    arrays = to_arrays(attribution, name, rows, self.model.dtype)
                    for i, (row, (scores, layers, facts)) in enumerate(zip(rows, arrays, strict=True)):
                        if turn and targets[i] != "all":
                            continue
                        results[i][name].append(
                            Explanation(
                                tokens=row.tokens,
                                input_ids=row.input_ids,
                                scores=scores,
                                special=np.array(row.special),
                                offsets=row.offsets,
                                word_ids=row.word_ids,
                                segments=row.segments,
                                target=self.labels[wanted[i]],
                                target_index=wanted[i],
                                probability=None if chances is None else chances[i],
                                method=name,
                                options={**options, **facts},
                                layers=layers,
                                matrices=cut_matrices(attribution.matrices, i, len(row), scores.dtype),
                                text=row.text,
                                pair=row.pair,
                                truncated=row.truncated,
                                prediction=self.labels[predicted[i]],
                                model=self.name,
                            )
                        )
        return results


def plan_methods(names: Sequence[str], options: Mapping[str, Any]) -> dict[str, tuple[Method, dict[str, Any]]]:
    """Each method with its own options; an option that no method takes is an error."""
    methods = [get_method(name) for name in names]
    known = {option for m in methods for option in m.defaults}
    for option in options:
        if option not in known:
            raise UnknownName(f"option of {', '.join(names)}", option, sorted(known))
    return {m.name: (m, m.check({k: v for k, v in options.items() if k in m.defaults})) for m in methods}


def to_arrays(
    attribution: Attribution, name: str, rows: Sequence[Encoded], dtype: torch.dtype
) -> list[tuple[np.ndarray, np.ndarray | None, dict[str, Any]]]:
    """Scores, layers and facts per row, padding cut off; refuses scores that are not finite."""
    kind = np.float64 if dtype == torch.float64 else np.float32
    scores = attribution.scores.detach().to("cpu", torch.float64).numpy()
    layers = None if attribution.layers is None else attribution.layers.detach().to("cpu", torch.float64).numpy()
    parts = []
    for i, row in enumerate(rows):
        n = len(row)
        if not np.isfinite(scores[i, :n]).all():
            raise ModelError(
                f"{name} gave scores that are not finite numbers for {' '.join(row.tokens[:8])!r}; try dtype='float64'."
            )
        facts = {k: v[i] if isinstance(v, list) else v for k, v in attribution.options.items()}
        parts.append((scores[i, :n].astype(kind), None if layers is None else layers[i, :, :n].astype(kind), facts))
    return parts


def cut_matrices(matrices: Mapping[str, Tensor] | None, row: int, n: int, kind: Any) -> dict[str, np.ndarray] | None:
    """One row's matrices (L, n, n), cut to its real tokens."""
    if matrices is None:
        return None
    return {
        name: m[row, :, :n, :n].detach().to("cpu", torch.float64).numpy().astype(kind) for name, m in matrices.items()
    }


def is_out_of_memory(error: BaseException) -> bool:
    """CUDA says so by type, the CPU allocator only by words."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "not enough memory" in str(error)
