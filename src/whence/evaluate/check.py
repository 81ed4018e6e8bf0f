"""`whence check`: is a method sane on a model? A one-page verdict.

Five questions: does the same text get the same scores; do the scores change when what the model has learnt is destroyed (cascading
weight randomisation, Adebayo et al. 2018); do they sum to what the method promises; do other methods say alike; do they find words that
matter better than random orders do? The user's model is never touched: randomisation works on a copy.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from whence.corpus.bad_rows import BadRow
from whence.errors import UNEXPLAINED, Incomplete, InputError, NotSupported
from whence.evaluate.candidates import Candidate
from whence.evaluate.data import sample_of
from whence.evaluate.games import (
    BETTER,
    GAMES,
    LEVEL,
    UNSURE,
    WORSE,
    Board,
    Outcome,
    Standing,
    metric_of,
    open_game,
)
from whence.evaluate.metrics.agreement import spearman_correlation
from whence.explainer import Explainer
from whence.explanation import Explanation
from whence.inputs.numbers import seed_of
from whence.models import layers_of, untouched, zoo
from whence.registry import all_methods, get_method
from whence.run.limits import BATCH_TOKENS
from whence.run.perturb import Rows, score_rows
from whence.tasks import Question, Term

SAME = 1e-4  # of the largest score: what float32 may change when rows are batched otherwise
STUCK = 0.7  # mean rank correlation with a model of random weights above which a method does not see the model
TEXTS_AT_ONCE = 16  # whose games are played together: some thousand changed rows
MISSING = 1e-3  # how far a sum may be from what the method promises


@dataclass(frozen=True)
class Finding:
    """The answer to one question."""

    question: str
    verdict: str  # "passes", "fails" or "note"
    figures: dict[str, float]
    sentence: str


@dataclass(frozen=True)
class Verdict:
    """One page on one method and one model."""

    model: str
    method: str
    texts: int
    findings: tuple[Finding, ...]
    errors: tuple[BadRow, ...] = ()  # rows of the data that could not be read

    @property
    def passes(self) -> bool:
        return all(f.verdict != "fails" for f in self.findings)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "passes": self.passes}

    def __str__(self) -> str:
        lines = [f"{self.method} on {self.model}, {self.texts} texts: {'passes' if self.passes else 'FAILS'}", ""]
        for f in self.findings:
            lines.append(f"[{f.verdict}] {f.question}")
            lines.append(f"    {f.sentence}")
            for name, value in f.figures.items():
                lines.append(f"      {name:36s}{value:10.4g}")
        return "\n".join(lines)


def check(
    explainer: Explainer,
    method: str,
    data: Any = None,
    *,
    limit: int = 16,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    strict: bool = False,
    **options: Any,
) -> Verdict:
    """A verdict on `method` (with `options`) for this model, on a few texts; by default an embedded model's own samples.

    strict: stop at the first row that cannot be read; else such rows are left out, counted and named.
    """
    seed_of(seed)
    if data is None:
        if explainer.name not in zoo.names():
            raise InputError("give data= a few texts to check on: only embedded models come with samples.")
        data = zoo.samples(explainer.name)
    sample = sample_of(explainer, data, columns=columns, limit=limit, strict=strict)
    inputs = [e.input for e in sample.examples]
    get_method(method).check(options)
    candidate = Candidate(method, options)
    explanations = explain(explainer, candidate, inputs)
    findings = [
        determinism(explainer, candidate, inputs, explanations),
        randomisation(explainer, candidate, inputs, explanations, seed),
        conservation(candidate, explanations),
        agreement(explainer, candidate, inputs, explanations),
    ]
    if explainer.task == "sequence-classification" and len(explainer.labels) > 1:
        findings.append(faithfulness(explainer, inputs, explanations, seed))
    return Verdict(explainer.name, candidate.title, len(inputs), tuple(findings), sample.bad)


def explain(explainer: Explainer, candidate: Candidate, inputs: list[Any], target: Any = None) -> list[Explanation]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Incomplete)  # `conservation` says it
        explanations: list[Explanation] = explainer.explain(
            inputs, candidate.method, target, progress=False, **candidate.options
        )
    return explanations


def same_questions(
    explainer: Explainer, inputs: list[Any], explanations: Sequence[Explanation]
) -> tuple[list[Any], list[int | None] | None]:
    """Inputs and targets that ask of another model, or by another method, what was explained here.

    What an Explanation does not say is left to whoever is asked: several masks' words, and which word of a text was labelled.
    """
    if explainer.task == "question-answering":
        return [with_answer(item, e.target) for item, e in zip(inputs, explanations, strict=True)], None
    if explainer.task == "masked-lm":
        return inputs, [None if " " in e.target else e.target_index for e in explanations]
    return inputs, [e.target_index for e in explanations]


def with_answer(item: Any, answer: str) -> Any:
    """A question whose answer is given, where it stands in the context as it was read."""
    parts = dict(zip(("question", "context"), item, strict=True)) if isinstance(item, tuple) else item
    completable = isinstance(parts, Mapping) and "answer" not in parts and answer and answer in parts.get("context", "")
    return {**parts, "answer": answer} if completable else item


def free(e: Explanation) -> np.ndarray:
    return np.asarray(e.scores[~np.asarray(e.special)], dtype=np.float64)


def determinism(
    explainer: Explainer, candidate: Candidate, inputs: list[Any], explanations: Sequence[Explanation]
) -> Finding:
    again = explain(explainer, candidate, inputs)
    alone = explain(explainer, candidate, inputs[:1])
    largest = max(float(np.abs(e.scores).max()) for e in explanations) or 1.0
    repeat = max(float(np.abs(a.scores - b.scores).max()) for a, b in zip(explanations, again, strict=True)) / largest
    batch = float(np.abs(alone[0].scores - explanations[0].scores).max()) / largest
    fine = repeat <= SAME and batch <= SAME
    return Finding(
        "Does the same text get the same scores?",
        "passes" if fine else "fails",
        {"repeated": repeat, "alone or in a batch": batch},
        "Scores do not depend on the run or on the batch."
        if fine
        else "Scores change from run to run or with the batch.",
    )


def randomised(model: PreTrainedModel, seed: int) -> Iterator[str]:
    """Destroy a model from the top: its head, then layer after layer, then the embeddings; names what is gone after each step.

    Every tensor keeps its numbers, in random places, so that activations keep their scale.
    """
    generator = torch.Generator().manual_seed(seed)
    layers = layers_of(model)
    inside = {id(p) for layer in layers for p in layer.parameters()}
    table: Any = model.get_input_embeddings()
    embeddings = {id(p) for p in table.parameters()}
    for name, module in model.named_modules():
        if "embeddings" in name.rsplit(".", 1)[-1]:
            embeddings |= {id(p) for p in module.parameters()}

    def shuffle(parameters: Sequence[nn.Parameter]) -> None:
        with torch.no_grad():
            for p in parameters:
                order = torch.randperm(p.numel(), generator=generator)
                p.copy_(p.detach().cpu().reshape(-1)[order].reshape(p.shape))

    shuffle([p for p in model.parameters() if id(p) not in inside and id(p) not in embeddings])
    yield "head"
    for number in range(len(layers), 0, -1):
        shuffle(list(layers[number - 1].parameters()))
        yield f"layers {number}–{len(layers)}"
    shuffle([p for p in model.parameters() if id(p) in embeddings])
    yield "everything"


def copy_of(explainer: Explainer) -> Explainer:
    """An explainer with a model of its own."""
    with untouched(explainer.model):  # a compiled function would run the first model's weights
        model = copy.deepcopy(explainer.model)
    return explainer.with_model(model)


def randomisation(
    explainer: Explainer, candidate: Candidate, inputs: list[Any], explanations: Sequence[Explanation], seed: int
) -> Finding:
    """Rank correlation with the explanations of the destroyed model, for the classes that the real one predicted."""
    stranger = copy_of(explainer)
    figures = {}
    for gone in randomised(stranger.model, seed):
        destroyed = explain(stranger, candidate, *same_questions(explainer, inputs, explanations))
        figures[gone] = float(
            np.mean([spearman_correlation(free(a), free(b)) for a, b in zip(explanations, destroyed, strict=True)])
        )
    last = figures["everything"]
    if abs(last) > STUCK:
        sentence = "The scores hardly change when all weights are random: they tell of the text, not of the model."
    elif figures["head"] > 0.99:
        sentence = (
            "The scores change with the model's layers, but not with its classifier: they know nothing of classes."
        )
    else:
        sentence = "The scores change when layers are randomised, as they must."
    return Finding(
        "Do the scores change when weights are randomised, top layers first? (rank correlation with the real ones)",
        "fails" if abs(last) > STUCK else "note" if figures["head"] > 0.99 else "passes",
        figures,
        sentence,
    )


def conservation(candidate: Candidate, explanations: Sequence[Explanation]) -> Finding:
    question = "Do the scores sum to what the method promises?"
    totals = np.array([float(np.asarray(e.scores, dtype=np.float64).sum()) for e in explanations])
    shares = [float(e.options["unexplained"]) for e in explanations if "unexplained" in e.options]
    if shares:
        fine = max(shares) <= UNEXPLAINED
        sentence = (
            "They sum to the change of the output."
            if fine
            else f"Up to {max(shares):.1%} of the change of the output is missing: use more steps, or another baseline."
        )
        figures = {
            "largest share missing": max(shares),
            "largest gap": max(abs(float(e.options["delta"])) for e in explanations),
        }
        return Finding(question, "passes" if fine else "fails", figures, sentence)
    promise = get_method(candidate.method).meaning(candidate.options).sums_to
    due = {"1": 1.0, "probability": np.array([e.probability for e in explanations], dtype=np.float64)}
    if promise in due:
        worst = float(np.abs(totals - due[promise]).max())
        verdict = "passes" if worst <= MISSING else "fails"
        return Finding(question, verdict, {f"largest |Σ − {promise}|": worst}, f"They must sum to {promise}.")
    if promise is None:
        sentence = "This method makes no such promise; the sums are for information."
    else:
        sentence = (
            f"They should sum to the {promise}, which the explanations do not tell; the sums are for information."
        )
    return Finding(question, "note", {"mean Σ": float(totals.mean()), "spread of Σ": float(totals.std())}, sentence)


def agreement(
    explainer: Explainer, candidate: Candidate, inputs: list[Any], explanations: Sequence[Explanation]
) -> Finding:
    figures = {}
    for name in panel():
        if name == candidate.method:
            continue
        try:
            compared = explain(explainer, Candidate(name), *same_questions(explainer, inputs, explanations))
        except NotSupported:
            continue
        figures[name] = float(
            np.mean([spearman_correlation(free(a), free(b)) for a, b in zip(explanations, compared, strict=True)])
        )
    best = max(figures.values(), default=0.0)
    sentence = (
        "No other method ranks tokens like this one: be careful."
        if best < 0.2
        else "Some other methods rank tokens alike; agreement alone proves nothing."
    )
    return Finding("Do other methods say alike? (mean rank correlation)", "note", figures, sentence)


def panel() -> list[str]:
    """The methods that others are held against: the first choice of every family that one pass serves."""
    return [m.name for m in all_methods() if m.first_choice and m.kind == "trace"]


def faithfulness(explainer: Explainer, inputs: list[Any], explanations: Sequence[Explanation], seed: int) -> Finding:
    """The hiding and the revealing game on every text, against random orders of its words (`games`), text by text and all together."""
    outcomes: list[Outcome] = []
    for start in range(0, len(inputs), TEXTS_AT_ONCE):
        part = slice(start, start + TEXTS_AT_ONCE)
        outcomes += play(explainer, inputs[part], explanations[part], seed)
    standings = {game: together(outcomes, game) for game in GAMES}
    figures: dict[str, float] = {}
    for game in GAMES:
        verdicts = [outcome.standing(game).verdict for outcome in outcomes]
        figures |= {
            f"{game}: area": float(np.mean([outcome.method[game].value for outcome in outcomes])),
            f"{game}: of random orders": float(np.mean([m.value for o in outcomes for m in o.random[game]])),
            f"{game}: one-sided p": standings[game].p,
            f"{game}: texts {BETTER}": float(verdicts.count(BETTER)),
            f"{game}: texts {WORSE}": float(verdicts.count(WORSE)),
        }
    result, sentence = SENTENCES[whole(list(standings.values()))]
    return Finding("Does it find words that matter to the model?", result, figures, sentence)


def play(explainer: Explainer, inputs: list[Any], explanations: Sequence[Explanation], seed: int) -> list[Outcome]:
    """Both games on some texts; all their changed rows run together."""
    rows = explainer.rows(inputs, [Question()] * len(inputs), "truncate", BATCH_TOKENS)
    boards = [Board(open_game(explainer, row), e, seed) for row, e in zip(rows, explanations, strict=True)]
    changed = [board.game.rows(board.keep) for board in boards]
    values = score_rows(
        explainer.session,
        Rows.join(changed),
        [Term((0,), (e.target_index,), (0,)) for e in explanations],
        repeats=[len(part) for part in changed],
        batch_tokens=BATCH_TOKENS,
        progress=False,
    )
    if values.log_probability is None:
        raise NotSupported("this model answers with a number, not with probabilities: there is nothing to lose.")
    parts = np.split(values.log_probability, np.cumsum([len(part) for part in changed])[:-1])
    triples = zip(boards, explanations, parts, strict=True)
    return [board.outcome(e.probability or 0.0, part) for board, e, part in triples]


SENTENCES = {
    BETTER: ("passes", "Better than chance: its order plays the games better than 95% of random orders do."),
    UNSURE: ("note", "Cannot tell: on these texts random orders of the words do as well as its own."),
    WORSE: ("fails", "Worse than chance: random orders find what matters to the model sooner."),
}


def together(outcomes: Sequence[Outcome], game: str) -> Standing:
    """Of the mean over texts, among the means of the first random order of each text, of the second, …."""
    random = np.mean([[measured.value for measured in outcome.random[game]] for outcome in outcomes], axis=0)
    mean = float(np.mean([outcome.method[game].value for outcome in outcomes]))
    return Standing.among(mean, random, metric_of(game).better)


def whole(standings: Sequence[Standing]) -> str:
    """Of both games at once: the test's level is shared between them (Bonferroni). Better in one and worse in the other is neither."""
    level = LEVEL / len(standings)
    better, worse = any(s.p <= level for s in standings), any(s.p_worse <= level for s in standings)
    return UNSURE if better == worse else BETTER if better else WORSE
