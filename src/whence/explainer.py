"""Explainer: encode → record → attribute → Explanation, for any number of inputs and methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whence.errors import InputError, NotSupported, panics_are_errors
from whence.explanation import Explanation
from whence.generation import Generation, write_on
from whence.inputs import Encoded, is_single
from whence.inputs.numbers import whole
from whence.models.find_head import Heads, Loader
from whence.registry import methods_without, some_of
from whence.run.batch import RowResult, attribute
from whence.run.limits import BATCH_TOKENS
from whence.run.meaning import check_same_for_targets, checked_meaning
from whence.run.plan import NO_DEFAULTS, Defaults, MethodCall, Plan
from whence.run.session import Session, attention_bytes, pairs_that_fit
from whence.tasks import Prediction, Question, Task
from whence.trace.checks import check_material

DEFAULT_METHOD = "attnlrp"
FALLBACK_METHOD = "gae"  # runs wherever attention can be seen


class Explainer:
    """A model, its tokenizer and its task, ready to explain. Made by `whence.load`.

    The model stays an ordinary Hugging Face model: after every call it is exactly as it was before. Calls from several
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
        defaults: Defaults = NO_DEFAULTS,
    ) -> None:
        check_material(model)
        self.model, self.tokenizer = model, tokenizer
        self.name = name or model.name_or_path or type(model).__name__
        self.task, self.labels = task.name, task.labels
        self.session = Session(model, task, Heads(model, self.name, lm_head, load_lm))
        self.defaults = defaults
        _ = self.session.reads  # tried once, before anybody listens to the model

    def __repr__(self) -> str:
        labels = f", labels {', '.join(self.labels)}" if self.labels else ""
        return f"<whence.Explainer {self.name!r}: {self.task}{labels}>"

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    def predict(
        self, inputs: Any, *, batch_tokens: int = BATCH_TOKENS, on_long: str = "truncate"
    ) -> Prediction | list[Prediction]:
        """The model's answer for one input (a Prediction) or a list of them (a list, same order)."""
        single = not isinstance(inputs, list)
        items = [inputs] if single else inputs
        with self.session.exclusive():
            rows = self.rows(items, [Question()] * len(items), on_long, batch_tokens)
            predictions: dict[int, Prediction] = {}
            batches = self.session.batches(rows, batch_tokens)
            for numbers in batches:
                with batches.fitting(numbers):
                    part = [rows[i] for i in numbers]
                    with self.session.record(self.session.collate(part)) as recording:
                        recording.check()
                        answers = self.session.task.answers(part, recording.logits, recording.log_probabilities)
                    predictions.update(zip(numbers, answers, strict=True))
        return predictions[0] if single else [predictions[i] for i in range(len(rows))]

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

        Args:
            inputs: a text; a (text, text) pair; {"question": …, "context": …}; {"input_ids": […]}; or a list of any of these.
            method: a name gives an Explanation (or a list of them); a list of names gives {name: …}. None is the recipe's, if the
                model was loaded with one; else `attnlrp`, the most faithful of the cheap ones on the embedded models, or `gae`
                where an architecture has no relevance rules.
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
            progress: show bars; None: on a terminal, for long work.
            options: options of the methods (`whence.methods()` lists them); each goes to the methods that take it.

        Returns:
            An Explanation; a list of them for a list of inputs, in order; {name: either} for a list of methods.
        """
        asked = {"target": target, "contrast": contrast, "continuation": continuation, "place": place}
        if method is None:
            running = {"batch_tokens": batch_tokens, "on_long": on_long, "progress": progress}
            return self._explain_by_default(inputs, {**asked, **running}, options)
        plan = Plan.of([method] if isinstance(method, str) else method_names(method), options, self.defaults)
        single = not isinstance(inputs, list)
        items = [inputs] if single else inputs
        with self.session.exclusive():
            questions = questions_of(self.session.task, asked, len(items), single)
            rows = self.rows(items, questions, on_long, batch_tokens)
            explained = self.attribute(rows, questions, plan, batch_tokens=batch_tokens, progress=progress)
        shaped = {name: shape(per_row, questions, single) for name, per_row in explained.items()}
        return shaped[method] if isinstance(method, str) else shaped

    def _explain_by_default(self, inputs: Any, arguments: dict[str, Any], options: dict[str, Any]) -> Any:
        """By the recipe's method, or the first of the two defaults that runs on this model."""
        if self.defaults.method is not None:
            return self.explain(inputs, self.defaults.method, **arguments, **{**self.defaults.options, **options})
        try:
            return self.explain(inputs, DEFAULT_METHOD, **arguments, **options)
        except NotSupported as error:
            reason = error
        try:
            return self.explain(inputs, FALLBACK_METHOD, **arguments, **options)
        except NotSupported as error:
            why = " ".join(dict.fromkeys((str(reason), str(error))))
            raise NotSupported(
                f"neither {DEFAULT_METHOD} nor {FALLBACK_METHOD} runs on {self.name}, so name a method (perturbations, say: "
                f"{some_of(methods_without('trace'))}): {why}"
            ) from error

    def attribute(
        self,
        rows: Sequence[Encoded],
        questions: Sequence[Question],
        plan: Plan,
        *,
        batch_tokens: int = BATCH_TOKENS,
        progress: bool | None = False,
    ) -> dict[str, list[list[Explanation]]]:
        """Rows that are encoded already, by every method of a plan: {name: for each row one Explanation per target}."""
        with self.session.exclusive():
            results = attribute(self.session, rows, questions, plan, batch_tokens=batch_tokens, progress=progress)
            forward = self.session.reads.forward
            return {
                call.name: [
                    self._explanations(row, result, call, forward) for row, result in zip(rows, results, strict=True)
                ]
                for call in plan.calls
            }

    def _explanations(self, row: Encoded, result: RowResult, call: MethodCall, forward: bool) -> list[Explanation]:
        """One row by one method: an Explanation per target. forward: tokens see only what stands before them."""
        name = call.name
        if call.meaning.knows_target is False and len(result.targets) > 1:
            check_same_for_targets(name, result.targets, result.scores[name])
        return [
            Explanation(
                tokens=row.tokens,
                input_ids=row.input_ids,
                scores=row_scores.scores if seen is None else row_scores.scores * seen,
                special=np.array(row.special),
                offsets=row.offsets,
                word_ids=row.word_ids,
                segments=row.segments,
                target=target.label,
                target_index=target.index,
                probability=probability,
                method=name,
                options={**call.options, **row_scores.facts()},
                layers=row_scores.layers if seen is None or row_scores.layers is None else row_scores.layers * seen,
                matrices=row_scores.matrices,
                meaning=checked_meaning(call.meaning, name, row_scores, self.model),
                text=row.text,
                pair=row.pair,
                truncated=row.truncated,
                prediction=target.prediction or result.prediction,
                model=self.name,
                contrast=target.contrast,
                task=self.task,
            )
            for target, probability, row_scores in zip(
                result.targets, result.probabilities, result.scores[name], strict=True
            )
            for seen in [before(target.last_readout, len(row)) if forward else None]
        ]

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

        Args:
            prompt: one prompt, as `explain` takes it.
            method: a name gives a Generation, a list of names gives {name: Generation}.
            max_new_tokens: how many tokens to write at most.
            sample: draw from the model's probabilities (seeded) rather than always take the likeliest token.
            options: as for `explain`.

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
        with self.session.exclusive():
            row = self.rows([prompt], [Question()], "error", BATCH_TOKENS)[0]
            tokens = write_on(self.session, row, count, sample, seed)
            explained = self.explain(prompt, method, continuation=tokens, place="all", **options)
        if isinstance(explained, dict):
            return {name: Generation(tuple(explanations)) for name, explanations in explained.items()}
        return Generation(tuple(explained))

    @panics_are_errors()
    def ask(self, target: Any = None, *, contrast: Any = None, continuation: Any = None, place: Any = None) -> Question:
        """What is asked of one input, checked as far as it can be before the model has run."""
        return self.session.task.ask(target=target, contrast=contrast, continuation=continuation, place=place)

    def rows(
        self, items: Sequence[Any], questions: Sequence[Question], on_long: str, batch_tokens: int = BATCH_TOKENS
    ) -> list[Encoded]:
        """One row per input; of one that is read in several windows, the window that answers best."""
        with self.session.exclusive():
            windows = self.session.task.encode(items, questions, on_long)
            if max(map(len, windows), default=1) == 1:
                return [alternatives[0] for alternatives in windows]
            return self.choose(windows, batch_tokens)

    @panics_are_errors()
    def encode(self, item: Any, question: Question, on_long: str = "truncate") -> tuple[Encoded, ...]:
        """One input as rows of the model: one, or several windows of which `choose` takes the best. Runs no model."""
        return self.session.task.encode([item], [question], on_long)[0]

    def choose(self, windows: Sequence[tuple[Encoded, ...]], batch_tokens: int = BATCH_TOKENS) -> list[Encoded]:
        """One row per input: where an input is read in several windows, the one that answers best."""
        flat = [(i, row) for i, alternatives in enumerate(windows) if len(alternatives) > 1 for row in alternatives]
        logits: dict[int, torch.Tensor] = {}
        with self.session.exclusive():
            batches = self.session.batches([row for _, row in flat], batch_tokens)
            for numbers in batches:
                with batches.fitting(numbers):
                    batch = self.session.collate([flat[k][1] for k in numbers])
                    with self.session.record(batch) as recording:
                        recording.check()
                        logits.update(zip(numbers, recording.logits.cpu(), strict=True))
        rows = []
        for i, alternatives in enumerate(windows):
            answers = [logits[k] for k, (owner, _) in enumerate(flat) if owner == i]
            rows.append(alternatives[self.session.task.choose(alternatives, answers) if answers else 0])
        return rows

    def max_pairs(self, plan: Plan) -> int | None:
        """How many (query, key) pairs of a batch fit into the attention budget; None if nobody looks at attention."""
        pair_bytes = attention_bytes(self.model, plan.forwards(self.model.dtype))
        return pairs_that_fit(pair_bytes, 0, self.device) if pair_bytes else None

    def with_model(self, model: PreTrainedModel) -> Explainer:
        """The same task, names and defaults over another model of the same architecture."""
        heads = self.session.lm_heads
        other = Explainer(model, self.tokenizer, self.session.task, self.name, heads.told, heads.load, self.defaults)
        other.session.lm_heads.found.update(heads.found)
        return other


def method_names(methods: Any) -> list[Any]:
    """The names in a list of methods; something else than a list is taken for a name, and refused as such."""
    return list(methods) if isinstance(methods, Sequence) else [methods]


def questions_of(task: Task, asked: Mapping[str, Any], count: int, single: bool) -> list[Question]:
    """What is asked of each of `count` inputs.

    Args:
        asked: target, contrast, continuation and place: a list holds one for each input, anything else goes for all of them.
        single: there is one input, not a list of them, so a list is a mistake.
    """
    lists = {name: value for name, value in asked.items() if isinstance(value, list)}
    for name, value in lists.items():
        if single:
            raise InputError(
                f"a list of {name}s goes with a list of inputs; for one input give one {name}, or target='all'."
            )
        if len(value) != count:
            raise InputError(f"{len(value)} {name}s for {count} inputs; give one each.")
    if not lists:
        return [task.ask(**asked)] * count
    return [task.ask(**{**asked, **{name: value[i] for name, value in lists.items()}}) for i in range(count)]


def shape(explanations: Sequence[list[Explanation]], questions: Sequence[Question], single: bool) -> Any:
    """Explanations as the caller asked: a list of targets where there are many, a list of inputs unless there is a single one."""
    per_row: list[Any] = [
        targets if question.many else targets[0] for targets, question in zip(explanations, questions, strict=True)
    ]
    return per_row[0] if single else per_row


def before(last: int, length: int) -> np.ndarray | None:
    """Which tokens an answer read at token `last` can rest on, where tokens see only what stands before them: (length,), or None for
    all of them. (Methods that ignore positions, or give every occurrence of a token the same score, do not know.) An answer that is
    read at no token (−1) may have been read at all of them."""
    return np.arange(length) <= last if 0 <= last < length - 1 else None
