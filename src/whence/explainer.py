"""Explainer: encode → trace → attribute → Explanation, for any number of texts and methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whence.attribution import Part
from whence.batches import Outcome, trace_batch
from whence.engine import Engine
from whence.errors import InputError, NotSupported
from whence.explanation import Explanation
from whence.generation import Generation, write_on
from whence.heads.mask import as_mask
from whence.inputs import Encoded, is_single, pack
from whence.limits import BATCH_TOKENS
from whence.models import own_precision
from whence.models.find_head import Heads, Loader
from whence.numbers import whole
from whence.panics import panics_are_errors
from whence.parts import without_future
from whence.passes import Plan, forward_passes, plan_methods, traced
from whence.paths import run_paths
from whence.perturb import run_perturbations
from whence.progress import track
from whence.room import attention_bytes, check_attention_fits, pairs_that_fit
from whence.tasks import Ask, Prediction, Task
from whence.trace.checks import check_material

DEFAULT_METHOD = "attnlrp"
FALLBACK_METHOD = "gae"  # runs wherever attention can be seen

# how methods that need more than one traced pass are run: kind → (engine, rows, targets, plan) → parts per method and row
Runner = Callable[..., dict[str, list[Part]]]
RUNNERS: Mapping[str, Runner] = {"path": run_paths, "perturbation": run_perturbations}


Call = TypeVar("Call", bound=Callable[..., Any])


def one_at_a_time(call: Call) -> Call:
    """A call of an Explainer has its model to itself from beginning to end (`Engine.exclusive`)."""

    @wraps(call)
    def alone(self: Explainer, *given: Any, **named: Any) -> Any:
        with self.engine.exclusive, panics_are_errors():
            return call(self, *given, **named)

    return cast(Call, alone)


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
        load_lm: Loader | None = None,
    ) -> None:
        check_material(model)
        self.model = model
        self.tokenizer = tokenizer
        self.engine = Engine(model, task)
        _ = self.engine.reads  # tried once, before anybody listens to the model
        self.task = task.name
        self.name = name or model.name_or_path or type(model).__name__
        self.labels = task.labels
        self.lm_head = Heads(model, self.name, lm_head, load_lm)
        self.embedded_heads: Path | None = None  # the head mask that comes with an embedded model
        self.preferred: tuple[str, dict[str, Any]] | None = None  # a recipe's method and options
        self.tuned: Mapping[str, Mapping[str, Any]] = {}  # a method's options by a recipe, or what "auto" stands for

    def __repr__(self) -> str:
        labels = f", labels {', '.join(self.labels)}" if self.labels else ""
        return f"<whence.Explainer {self.name!r}: {self.task}{labels}>"

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def _task(self) -> Task:
        return self.engine.task

    @one_at_a_time
    def predict(
        self, inputs: Any, *, batch_tokens: int = BATCH_TOKENS, on_long: str = "truncate"
    ) -> Prediction | list[Prediction]:
        """The model's answer for one input (a Prediction) or a list of them (a list, same order)."""
        batch_tokens = whole("batch_tokens", batch_tokens, unit=" of tokens")
        items = [inputs] if is_single(inputs) else inputs
        rows = self.rows(items, [Ask()] * len(items), on_long, batch_tokens)

        def run(part: Sequence[Encoded], numbers: Sequence[int]) -> list[Prediction]:
            with self.engine.record(self.engine.collate(part)) as recording:
                recording.check()
                return self._task.answers(part, recording.logits, recording.log_probabilities)

        done = self.each(rows, run, batch_tokens)
        return done[0] if is_single(inputs) else done

    @one_at_a_time
    def each(
        self,
        rows: Sequence[Encoded],
        run: Callable[[Sequence[Encoded], Sequence[int]], list[Any]],
        batch_tokens: int,
        max_pairs: int | None = None,
        progress: bool | None = False,
    ) -> list[Any]:
        """`run` on batches of rows of like length, results in the rows' order."""
        found: list[Any] = [None] * len(rows)
        groups = pack([len(row) for row in rows], batch_tokens, max_pairs)
        for group in track(groups, len(groups), "explaining", progress):
            for i, result in zip(group, self.engine.in_memory(rows, group, run), strict=True):
                found[i] = result
        return found

    def rows(self, items: Sequence[Any], asks: Sequence[Ask], on_long: str, batch_tokens: int) -> list[Encoded]:
        """One row per input."""
        return self.choose(self._task.encode(items, asks, on_long), batch_tokens)

    @panics_are_errors()
    def ask(self, target: Any = None, *, contrast: Any = None, continuation: Any = None, place: Any = None) -> Ask:
        """What is to be explained of one input, checked as far as it can be before the model has run."""
        return self._task.ask(target=target, contrast=contrast, continuation=continuation, place=place)

    @panics_are_errors()
    def encode(self, item: Any, ask: Ask, on_long: str = "truncate") -> tuple[Encoded, ...]:
        """One input as rows of the model: one, or several windows of which `choose` takes the best. Runs no model."""
        return self._task.encode([item], [ask], on_long)[0]

    @one_at_a_time
    def choose(self, windows: Sequence[tuple[Encoded, ...]], batch_tokens: int = BATCH_TOKENS) -> list[Encoded]:
        """One row per input: where an input is read in several windows, the one that answers best."""
        several = [i for i, w in enumerate(windows) if len(w) > 1]
        if not several:
            return [w[0] for w in windows]
        flat = [(i, row) for i in several for row in windows[i]]

        def run(part: Sequence[Encoded], numbers: Sequence[int]) -> list[torch.Tensor]:
            with self.engine.record(self.engine.collate(part)) as recording:
                recording.check()
                return list(recording.logits.cpu())

        logits = self.each([row for _, row in flat], run, batch_tokens)
        chosen = dict.fromkeys(range(len(windows)), 0)
        for i in several:
            own = [found for (j, _), found in zip(flat, logits, strict=True) if i == j]
            chosen[i] = self._task.choose(windows[i], own)
        return [w[chosen[i]] for i, w in enumerate(windows)]

    @one_at_a_time
    def explain(
        self,
        inputs: Any,
        method: str | Sequence[str] | None = None,
        target: Any = None,
        *,
        contrast: Any = None,
        continuation: str | tuple[int, ...] | list[str] | None = None,
        place: int | str | list[int | str] | None = None,
        batch_tokens: int = BATCH_TOKENS,
        on_long: str = "truncate",
        progress: bool | None = None,
        **options: Any,
    ) -> Any:
        """Explain one input or a list of inputs, with one method or several, from one pass over the model.

        inputs: a text; a (text, text) pair; {"question": …, "context": …}; {"input_ids": […]}; or a list of any of these.
        method: a name gives an Explanation (or a list of them); a list of names gives {name: …}. None is the recipe's, if the
            model was loaded with one; else `attnlrp`, the most faithful of the cheap ones on the embedded models, or `gae` where an architecture has no relevance rules.
        target: None (what the model predicts), a label or its index, a list with one per input, or "all" (a list of
            Explanations, one per label, in the place of each). Question answering: "span" (start + end), "start", "end",
            "no-answer". Language models: a word of the vocabulary (a tuple has one per [MASK]).
        contrast: explain the target *rather than* this one: the difference of their logits. A pair (this, that) names both;
            a list has one per input.
        continuation: causal language models: explain the log-probability of this text (or tuple of ids) after the prompt.
        place: which [MASK], or which token of the continuation (0 is the first; "all" gives one Explanation for each); in
            token classification which token (its position) or word.
        batch_tokens: how many tokens, padding included, run at once.
        on_long: "truncate" (with a warning, and marked in the result) or "error".
        options: options of the methods (`whence.methods()` lists them); each goes to the methods that take it.
        """
        batch_tokens = whole("batch_tokens", batch_tokens, unit=" of tokens")
        if method is None:
            fixed: dict[str, Any] = {
                "target": target,
                "contrast": contrast,
                "continuation": continuation,
                "place": place,
            }
            fixed |= {"batch_tokens": batch_tokens, "on_long": on_long, "progress": progress}
            if self.preferred is not None:
                return self.explain(inputs, self.preferred[0], **fixed, **{**self.preferred[1], **options})
            try:
                return self.explain(inputs, DEFAULT_METHOD, **fixed, **options)
            except NotSupported as error:
                return self._fall_back(error, inputs, **fixed, **options)
        names = [method] if isinstance(method, str) else list(method) if isinstance(method, Sequence) else [method]
        if not names:
            raise InputError("no method given; whence.methods() lists them.")
        plan = plan_methods(names, options, self.tuned)
        single = is_single(inputs)
        items = [inputs] if single else inputs
        asked = {"target": target, "contrast": contrast, "continuation": continuation, "place": place}
        asks = per_input(self._task.ask, asked, len(items), single)
        rows = self.rows(items, asks, on_long, batch_tokens)
        found = self.attribute(rows, asks, plan, batch_tokens=batch_tokens, progress=progress)

        def gather(name: str) -> Any:
            per_row = [made if ask.many else made[0] for made, ask in zip(found[name], asks, strict=True)]
            return per_row[0] if single else per_row

        return gather(names[0]) if isinstance(method, str) else {name: gather(name) for name in names}

    def _fall_back(self, reason: NotSupported, inputs: Any, **given: Any) -> Any:
        """Where the default method does not run; if nothing does that is as cheap, the error names what still may."""
        try:
            return self.explain(inputs, FALLBACK_METHOD, **given)
        except NotSupported as error:
            why = " ".join(dict.fromkeys((str(reason), str(error))))
            raise NotSupported(
                f"neither {DEFAULT_METHOD} nor {FALLBACK_METHOD} runs on {self.name}, so name a method (perturbations, say: occlusion, "
                f"lime, shapley, kernel-shap): {why}"
            ) from error

    @one_at_a_time
    def generate(
        self,
        prompt: Any,
        method: str | Sequence[str] | None = None,
        *,
        max_new_tokens: int = 20,
        sample: bool = False,
        seed: int = 0,
        **options: Any,
    ) -> Any:
        """Let a causal language model go on from one prompt, and explain every token that it writes.

        sample: draw from the model's probabilities (seeded) rather than always take the likeliest token.
        options: as for `explain`. A name gives a Generation, a list of names gives {name: Generation}.

        >>> import whence
        >>> g = whence.load("causal-lm").generate("He opened the", "attnlrp", max_new_tokens=2)
        >>> g.matrix.shape
        (2, 4)
        """
        if self.task != "causal-lm":
            raise NotSupported(f"{self.name} is a {self.task} model: only causal language models generate.")
        if not is_single(prompt):
            raise InputError("generate() takes one prompt at a time.")
        count = whole("max_new_tokens", max_new_tokens)
        for name in ("continuation", "place"):
            if name in options:
                raise InputError(
                    f"generate() explains every token that the model writes, so it takes no {name}=: explain() does, for a text that you give."
                )
        row = self.rows([prompt], [Ask()], "error", BATCH_TOKENS)[0]
        tokens = write_on(self.engine, row, count, sample, seed)
        found = self.explain(prompt, method, continuation=tokens, place="all", **options)
        if isinstance(found, dict):
            return {name: Generation(tuple(es)) for name, es in found.items()}
        return Generation(tuple(found))

    def resolve(self, plan: Plan) -> Plan:
        """A plan for this model: the head mask of a method is read, or is the model's own. The plan that comes in stays as it is."""
        return {
            name: (m, {**o, "head_mask": as_mask(o["head_mask"], self.embedded_heads)} if "head_mask" in o else o)
            for name, (m, o) in plan.items()
        }

    @one_at_a_time
    def attribute(
        self,
        rows: Sequence[Encoded],
        asks: Sequence[Ask],
        plan: Plan,
        *,
        batch_tokens: int = BATCH_TOKENS,
        progress: bool | None = False,
    ) -> dict[str, list[list[Explanation]]]:
        """Rows that are encoded already, by every method of a plan (`plan_methods`): for each row one Explanation per target."""
        plan = self.resolve(plan)
        found = self._attribute(rows, asks, plan, batch_tokens, progress)
        return {name: self._explanations(rows, found, name, chosen) for name, (_, chosen) in plan.items()}

    @own_precision()
    def _attribute(
        self, rows: Sequence[Encoded], asks: Sequence[Ask], plan: Plan, batch_tokens: int, progress: bool | None
    ) -> list[Outcome]:
        """For every row what the model answered, and each method's parts, one per target."""
        passes = forward_passes(traced(plan), self.model.dtype)
        waiting: list[Callable[[], None]] = []  # the last batch's numbers are read while the next one runs

        def run(part: Sequence[Encoded], numbers: Sequence[int]) -> list[Outcome]:
            read = trace_batch(self.engine, part, [asks[i] for i in numbers], passes, self.lm_head)
            outcomes = [Outcome() for _ in part]
            while waiting:
                waiting.pop()()
            waiting.append(partial(read, outcomes))
            return outcomes

        per_pair = attention_bytes(self.model, passes)
        if per_pair:
            check_attention_fits(per_pair, max(map(len, rows), default=0), self.device)
        found: list[Outcome] = self.each(rows, run, batch_tokens, pairs_that_fit(per_pair, self.device), progress)
        while waiting:
            waiting.pop()()
        for kind, runner in RUNNERS.items():
            share = {name: p for name, p in plan.items() if p[0].kind == kind}
            numbers = [i for i, outcome in enumerate(found) for _ in outcome.answered.targets] if share else []
            if not numbers:
                continue
            targets = [target for outcome in found for target in outcome.answered.targets]
            values = [y for outcome in found for y in outcome.answered.values]
            made = runner(
                self.engine,
                [rows[i] for i in numbers],
                targets,
                share,
                values=values,
                batch_tokens=batch_tokens,
                progress=progress,
            )
            for name, parts in made.items():
                for i, part in zip(numbers, parts, strict=True):
                    found[i].parts.setdefault(name, []).append(part)
        return found

    def _explanations(
        self, rows: Sequence[Encoded], found: Sequence[Outcome], name: str, options: Mapping[str, Any]
    ) -> list[list[Explanation]]:
        """By one method, for each row one per target."""
        same = {"method": name, "model": self.name, "task": self.task}
        explanations: list[list[Explanation]] = []
        forward = self.engine.reads.forward
        for row, outcome in zip(rows, found, strict=True):
            answered, own = outcome.answered, []
            for target, chance, part in zip(answered.targets, answered.probabilities, outcome.parts[name], strict=True):
                seen = without_future(part, target) if forward else part
                own.append(
                    Explanation.of_row(
                        row,
                        same,
                        scores=seen.scores,
                        target=target.label,
                        target_index=target.index,
                        contrast=target.contrast,
                        probability=chance,
                        options={**options, **seen.options},
                        layers=seen.layers,
                        matrices=seen.matrices,
                        prediction=target.prediction or answered.prediction,
                    )
                )
            explanations.append(own)
        return explanations

    @one_at_a_time
    def max_pairs(self, plan: Plan) -> int | None:
        """How many (query, key) pairs of a batch fit into the attention budget; None if nobody looks at attention."""
        passes = forward_passes(traced(self.resolve(plan)), self.model.dtype)
        return pairs_that_fit(attention_bytes(self.model, passes), self.device)


def per_input(ask: Callable[..., Ask], asked: Mapping[str, Any], count: int, single: bool) -> list[Ask]:
    """What is asked of each input: a list holds one for each, anything else goes for all of them."""
    lists = {name: value for name, value in asked.items() if isinstance(value, list)}
    for name, value in lists.items():
        if single:
            raise InputError(
                f"a list of {name}s goes with a list of inputs; for one input give one {name}, or target='all'."
            )
        if len(value) != count:
            raise InputError(f"{len(value)} {name}s for {count} inputs; give one each.")
    if not lists:
        return [ask(**asked)] * count
    return [ask(**{**asked, **{name: value[i] for name, value in lists.items()}}) for i in range(count)]
