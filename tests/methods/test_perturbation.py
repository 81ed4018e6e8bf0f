"""Perturbation methods against literal loops, scikit-learn and exact Shapley values; batches, options, interrupts."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import subprocess
import sys
from functools import cache
from math import factorial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.linear_model import Ridge
from transformers import (
    AutoModelForCausalLM,
    AutoModelForQuestionAnswering,
    BertConfig,
    BertForSequenceClassification,
)

import whence
from tests import architectures
from whence import registry
from whence.methods import perturbation

METHODS = ["occlusion", "lime", "shapley", "kernel-shap"]
SHORT = "a charming , lovely film !"  # 6 units
TWELVE = "the plot is slow , dull and never moving but quite funny"  # 12 units
TEXTS = [SHORT, "dull", "the filmly plot is not bad", TWELVE]
MASK = architectures.VOCABULARY["[MASK]"]


@cache
def bert() -> whence.Explainer:
    """Two random layers, with weights large enough for tokens to work on one another."""
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(architectures.VOCABULARY),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=64,
        num_labels=3,
        initializer_range=0.3,
    )
    return whence.load(BertForSequenceClassification(config).double().eval(), architectures.tokenizer())


def value(e: whence.Explainer, ids: list[int], target: int, **more: list[int]) -> float:
    """The target's logit, asked for the way anybody would."""
    with torch.no_grad():
        rows = {name: torch.tensor([values]) for name, values in {"input_ids": ids, **more}.items()}
        return float(e.model(**rows).logits[0, target])


def game(e: whence.Explainer, text: str, target: int, mask: int = MASK) -> Any:
    """f(S) for a set S of positions in the text, literally, one row at a time (and remembered)."""
    ids = e.tokenizer(text)["input_ids"]
    inside = range(1, len(ids) - 1)

    @cache
    def f(kept: frozenset[int]) -> float:
        return value(e, [i if p not in inside or p in kept else mask for p, i in enumerate(ids)], target)

    return f, list(inside)


def exact(e: whence.Explainer, text: str, target: int) -> np.ndarray:
    """Shapley values by the textbook's formula over all sets."""
    f, inside = game(e, text, target)
    u = len(inside)
    scores = []
    for i in inside:
        others = [j for j in inside if j != i]
        total = 0.0
        for size in range(u):
            weight = factorial(size) * factorial(u - size - 1) / factorial(u)
            total += weight * sum(f(frozenset(s) | {i}) - f(frozenset(s)) for s in itertools.combinations(others, size))
        scores.append(total)
    return np.array(scores)


@pytest.mark.parametrize("window", [1, 3, 99])
def test_occlusion_is_a_loop_over_windows(window: int) -> None:
    e = bert()
    found = e.explain(SHORT, "occlusion", 1, window=window)
    f, inside = game(e, SHORT, 1)
    covering: dict[int, list[float]] = {i: [] for i in inside}
    for start in range(max(len(inside) - window, 0) + 1):
        gone = inside[start : start + window]
        for i in gone:
            covering[i].append(f(frozenset(inside)) - f(frozenset(inside) - set(gone)))
    expected = [0, *(np.mean(covering[i]) for i in inside), 0]
    np.testing.assert_allclose(found.scores, expected, atol=1e-9)
    assert np.abs(found.scores).max() > 1e-2
    assert found.options["replace"] == "mask"


def test_occlusion_and_shapley_on_the_embedded_model(sentiment: whence.Explainer) -> None:
    text = "a charming and affecting journey"
    e = sentiment
    mask = e.tokenizer.mask_token_id
    found = e.explain(text, ["occlusion", "shapley", "kernel-shap"], "positive", permutations="all", samples="all")
    f, inside = game(e, text, found["occlusion"].target_index, mask)
    whole = frozenset(inside)
    drops = [f(whole) - f(whole - {i}) for i in inside]
    np.testing.assert_allclose(found["occlusion"].scores[1:-1], drops, atol=2e-4)
    orders = list(itertools.permutations(inside))
    gains = dict.fromkeys(inside, 0.0)
    for order in orders:
        for k, i in enumerate(order):
            gains[i] += (f(frozenset(order[: k + 1])) - f(frozenset(order[:k]))) / len(orders)
    np.testing.assert_allclose(found["shapley"].scores[1:-1], list(gains.values()), atol=2e-4)
    np.testing.assert_allclose(found["kernel-shap"].scores, found["shapley"].scores, atol=2e-4)
    assert found["shapley"].top(1)[0].text == "charming"


def test_lime_is_a_weighted_ridge_on_the_same_samples() -> None:
    e = bert()
    found = e.explain(SHORT, "lime", 2, samples=60, seed=7)
    f, inside = game(e, SHORT, 2)
    row = e.session.task.encoder.encode([SHORT])[0]
    u = len(inside)
    random = np.random.default_rng([7, *row.input_ids])
    lost = random.integers(1, u + 1, 59)
    keep = np.ones((60, u))
    for i, ranks in enumerate(random.random((59, u)).argsort(1).argsort(1)):
        keep[i + 1] = ranks >= lost[i]
    assert keep[1:].sum(1).tolist() == (u - lost).tolist()
    y = [f(frozenset(p for p, k in zip(inside, kept, strict=True) if k)) for kept in keep]
    norms = np.maximum(np.linalg.norm(keep, axis=1) * np.sqrt(u), 1e-300)
    distance = 100 * (1 - keep.sum(1) / norms)  # as lime: cosine distance to the whole text, in percent
    weights = np.sqrt(np.exp(-(distance**2) / 25**2))
    ridge = Ridge(alpha=1).fit(keep, y, sample_weight=weights)
    np.testing.assert_allclose(found.scores[1:-1], ridge.coef_, atol=1e-9)
    assert found.options["fit"] == pytest.approx(ridge.score(keep, y, weights), abs=1e-9)


def test_shapley_over_all_orders_is_exact() -> None:
    e = bert()
    found = e.explain(SHORT, ["shapley", "kernel-shap"], 0, permutations="all", samples="all")
    expected = exact(e, SHORT, 0)
    np.testing.assert_allclose(found["shapley"].scores[1:-1], expected, atol=1e-9)
    np.testing.assert_allclose(found["kernel-shap"].scores[1:-1], expected, atol=1e-8)
    for one in found.values():
        assert not any(one.options["stderr"])
    f, inside = game(e, SHORT, 0)
    assert found["shapley"].scores.sum() == pytest.approx(f(frozenset(inside)) - f(frozenset()), abs=1e-9)


@pytest.mark.parametrize("antithetic", [True, False])
def test_sampled_shapley_is_efficient_and_knows_its_error(antithetic: bool) -> None:
    e = bert()
    truth = exact(e, SHORT, 0)
    f, inside = game(e, SHORT, 0)
    runs = [e.explain(SHORT, "shapley", 0, permutations=9, antithetic=antithetic, seed=s) for s in range(60)]
    for run in runs[:3]:
        assert run.scores.sum() == pytest.approx(f(frozenset(inside)) - f(frozenset()), abs=1e-9)
    scores = np.array([run.scores[1:-1] for run in runs])
    claimed = np.sqrt(np.mean([np.array(run.options["stderr"][1:-1]) ** 2 for run in runs], axis=0))
    actual = np.sqrt(((scores - truth) ** 2).mean(0))
    assert np.all((actual / claimed > 0.7) & (actual / claimed < 1.4)), actual / claimed
    assert np.abs(scores.mean(0) - truth).max() < 4 * (actual / np.sqrt(len(runs))).max()


def test_reversed_orders_cost_nothing_and_err_less() -> None:
    e = bert()
    truth = exact(e, SHORT, 0)

    def error(antithetic: bool) -> float:
        runs = [e.explain(SHORT, "shapley", 0, permutations=8, antithetic=antithetic, seed=s) for s in range(25)]
        return float(np.mean([(run.scores[1:-1] - truth) ** 2 for run in runs]))

    assert error(True) < 0.8 * error(False)


def test_kernel_shap_with_500_samples_ranks_like_exact_shapley() -> None:
    e = bert()
    for target in range(3):
        truth = e.explain(TWELVE, "shapley", target, permutations="all")
        assert len(truth) == 14
        for seed in range(5):
            found = e.explain(TWELVE, "kernel-shap", target, seed=seed)
            assert spearmanr(found.scores[1:-1], truth.scores[1:-1])[0] >= 0.95
            assert found.scores.sum() == pytest.approx(truth.scores.sum(), abs=1e-9)


def test_kernel_shap_knows_its_error() -> None:
    e = bert()
    truth = e.explain(TWELVE, "shapley", 1, permutations="all").scores[1:-1]
    runs = [e.explain(TWELVE, "kernel-shap", 1, samples=120, seed=s) for s in range(30)]
    actual = np.sqrt(np.mean([(run.scores[1:-1] - truth) ** 2 for run in runs]))
    claimed = np.sqrt(np.mean([np.square(run.options["stderr"][1:-1]) for run in runs]))
    assert 0.6 < actual / claimed < 1.6
    assert e.explain(TWELVE, "kernel-shap", samples=4).options.get("stderr") is None  # fewer coalitions than units
    seven = SHORT + " not"
    assert e.explain(seven, "kernel-shap", samples=6).options.get("stderr") is None
    assert np.isfinite(e.explain(seven, "kernel-shap", samples=8).options["stderr"]).all()


def test_kernel_coalitions() -> None:
    for u, samples in ((12, 500), (7, 60), (30, 200), (5, 1000), (2, 2), (1, 2)):
        keep, weights, counts = perturbation.kernel_coalitions(u, samples, np.random.default_rng(0))
        assert len(keep) <= samples
        assert len({row.tobytes() for row in keep}) == len(keep)
        assert not (keep.all(1) | ~keep.any(1)).any()
        assert u == 1 or weights.sum() == pytest.approx(1)
        sampled = keep[counts > 0]
        assert (sampled[::2] ^ sampled[1::2]).all()
    assert len(perturbation.kernel_coalitions(12, 500, np.random.default_rng(0))[0]) == 500
    assert len(perturbation.kernel_coalitions(7, 2**7 - 2, np.random.default_rng(0))[0]) == 2**7 - 2


def test_sampled_coalitions_have_the_kernels_sizes() -> None:
    """Of the sizes s that are not enumerated, each is drawn in proportion to 1 / (s (u − s)), a size with its complement's."""
    u, samples = 30, 4000
    keep, _, counts = perturbation.kernel_coalitions(u, samples, np.random.default_rng(0))
    smaller = np.minimum(keep.sum(1), u - keep.sum(1))
    drawn = np.bincount(smaller, counts / 2, minlength=u // 2 + 1)  # both of a pair carry its count
    left = [s for s in range(1, u // 2 + 1) if drawn[s]]
    assert left == list(range(left[0], u // 2 + 1))
    kernel = np.array([(1 if 2 * s == u else 2) / (s * (u - s)) for s in left])
    expected = drawn.sum() * kernel / kernel.sum()
    assert np.all(np.abs(drawn[left] - expected) < 4 * np.sqrt(expected))


def test_the_error_of_an_odd_number_of_orders() -> None:
    """Two pairs and a single order: 1/25 of (2² times the variance of a pair's mean, twice, and that of one order), per unit."""
    gains = np.array([[0.0, 1.0], [2.0, 5.0], [3.0, 1.0], [5.0, 9.0], [10.0, 100.0]])
    pairs = np.array([[1.0, 3.0], [4.0, 5.0]])
    variance = (2 * 2**2 * pairs.var(0, ddof=1) + gains.var(0, ddof=1)) / 25
    np.testing.assert_allclose(perturbation.spread_of_mean(gains, True), np.sqrt(variance), rtol=1e-12)


@pytest.mark.parametrize(
    ("method", "defaults"),
    [
        ("occlusion", {"window": 1}),
        ("lime", {"samples": 100, "kernel_width": 25.0, "alpha": 1.0, "seed": 0}),
        ("shapley", {"permutations": 25, "antithetic": True, "seed": 0}),
        ("kernel-shap", {"samples": 500, "seed": 0}),
    ],
)
def test_defaults_are_those_of_the_documentation(method: str, defaults: dict[str, Any]) -> None:
    e = bert()
    given = {"unit": "token", "replace": "mask", "segment": None, "of": "logit", **defaults}
    text = TWELVE.replace("dull", "filmly")  # a word of two tokens
    np.testing.assert_array_equal(e.explain(text, method).scores, e.explain(text, method, **given).scores)


@pytest.mark.parametrize("options", [{}, {"replace": "delete", "unit": "word"}])
def test_batches_do_not_matter(options: dict[str, Any]) -> None:
    e = bert()
    together = e.explain(TEXTS, METHODS, **options)
    for name in METHODS:
        tight = e.explain(TEXTS[::-1], name, batch_tokens=20, **options)[::-1]
        for text, a, b in zip(TEXTS, together[name], tight, strict=True):
            alone = e.explain(text, name, **options)
            np.testing.assert_allclose(a.scores, alone.scores, atol=1e-9)
            np.testing.assert_allclose(a.scores, b.scores, atol=1e-9)
            np.testing.assert_allclose(a.options.get("stderr") or 0, alone.options.get("stderr") or 0, atol=1e-9)


def rows_run(e: whence.Explainer, *args: Any, **options: Any) -> int:
    """How many rows the model runs for a call."""
    seen: list[int] = []
    hook = e.model.register_forward_pre_hook(lambda m, a, k: seen.append(len(k["input_ids"])), with_kwargs=True)
    e.explain(*args, **options)
    hook.remove()
    return sum(seen)


def test_rows_are_shared_between_methods_texts_and_targets() -> None:
    e = bert()
    asked = 1  # the prediction, whose value the methods take for the text as it is
    occlusion = rows_run(e, SHORT, "occlusion")
    assert occlusion == asked + 6
    both = rows_run(e, SHORT, ["occlusion", "shapley"], permutations="all")
    assert both == asked + 2**6 - 1  # all that occlusion asks for is among the 64 coalitions
    assert rows_run(e, [SHORT] * 3, "occlusion") == 3 * asked + 6
    assert rows_run(e, SHORT, "occlusion", target="all") == occlusion


def test_samples_depend_on_the_seed() -> None:
    e = bert()
    for name in ("lime", "shapley", "kernel-shap"):
        options = {"samples": 40} if name == "kernel-shap" else {}
        first, again, other = (e.explain(TWELVE, name, seed=s, **options).scores for s in (0, 0, 1))
        np.testing.assert_array_equal(first, again)
        assert np.abs(first - other).max() > 1e-6


def test_words_are_units() -> None:
    e = bert()
    text = "the filmly plot"  # film ##ly is one word
    found = e.explain(text, "occlusion", 0, unit="word")
    ids = e.tokenizer(text)["input_ids"]
    without = [MASK if i in (2, 3) else token for i, token in enumerate(ids)]
    drop = value(e, ids, 0) - value(e, without, 0)
    assert found.words()[1].text == "filmly"
    assert found.words()[1].score == pytest.approx(drop, abs=1e-9)
    assert found.scores[2] == found.scores[3] == pytest.approx(drop / 2, abs=1e-9)
    spread = e.explain(text, "shapley", unit="word").options["stderr"]
    assert spread[2] == spread[3]


@pytest.mark.parametrize("method", ["occlusion", "lime", "shapley", "kernel-shap"])
def test_every_method_takes_words_as_units(method: str) -> None:
    e = bert()
    by_word = e.explain("the filmly plot", method, unit="word")
    by_token = e.explain("the filmly plot", method)
    assert by_word.scores[2] == by_word.scores[3]  # film ##ly
    assert by_token.scores[2] != by_token.scores[3]


def test_kernel_shap_of_two_units_is_exact() -> None:
    e = bert()
    text = "lovely film"
    ids = e.tokenizer(text)["input_ids"]
    f = {
        kept: value(e, [i if k in (0, 3) or k in kept else MASK for k, i in enumerate(ids)], 0)
        for kept in ((), (1,), (2,), (1, 2))
    }
    first = ((f[1,] - f[()]) + (f[1, 2] - f[2,])) / 2
    found = e.explain(text, "kernel-shap", 0)
    assert found.scores[1] == pytest.approx(first, abs=1e-6)
    assert found.scores[1] + found.scores[2] == pytest.approx(f[1, 2] - f[()], abs=1e-6)
    assert found.options["stderr"][1:3] == pytest.approx([0, 0], abs=1e-9)


@pytest.mark.parametrize("replace", ["mask", "unk", "pad", "delete"])
def test_what_stands_in(replace: str) -> None:
    e = bert()
    found = e.explain(SHORT, "occlusion", 0, replace=replace)
    ids = e.tokenizer(SHORT)["input_ids"]
    changed = list(ids)
    if replace == "delete":
        del changed[2]
    else:
        changed[2] = architectures.VOCABULARY[f"[{replace.upper()}]"]
    assert found.scores[2] == pytest.approx(value(e, ids, 0) - value(e, changed, 0), abs=1e-9)
    assert found.options["replace"] == replace


def test_one_segment_is_held_fixed() -> None:
    e = bert()
    pair = ("a dull film", "not bad")
    both, text, second = (e.explain(pair, "occlusion", 0, segment=s) for s in (None, 0, 1))
    segments = np.array([-1 if s is None else s for s in both.segments])
    for one, segment in ((text, 0), (second, 1)):
        np.testing.assert_allclose(one.scores, np.where(segments == segment, both.scores, 0), atol=1e-9)
        assert np.abs(one.scores).max() > 0
    shapley = e.explain(pair, "shapley", 0, segment=1, permutations="all")
    encoded = e.tokenizer(*pair)
    ids, types = encoded["input_ids"], encoded["token_type_ids"]
    empty = [MASK if s == 1 else i for i, s in zip(ids, segments, strict=True)]
    whole, none = (value(e, i, 0, token_type_ids=types) for i in (ids, empty))
    assert shapley.scores.sum() == pytest.approx(whole - none, abs=1e-9)


def test_probabilities_instead_of_logits() -> None:
    e = bert()
    found = e.explain(SHORT, "shapley", 0, of="probability", permutations="all")
    whole = e.predict(SHORT).probabilities[0]
    empty = [2, *[MASK] * 6, 3]
    assert found.scores.sum() == pytest.approx(whole - e.predict({"input_ids": empty}).probabilities[0], abs=1e-9)


def test_contrasts_are_explained_as_differences() -> None:
    e = bert()
    for name in METHODS:
        this, that, rather = (e.explain(SHORT, name, t, contrast=c) for t, c in ((0, None), (1, None), (0, 1)))
        np.testing.assert_allclose(rather.scores, this.scores - that.scores, atol=1e-8)


def test_decoders_without_a_mask_token() -> None:
    tokenizer = architectures.tokenizer()
    e = whence.load(architectures.build("gpt2"))  # no tokenizer: the config knows of padding only
    row = {"input_ids": tokenizer(SHORT, add_special_tokens=False)["input_ids"]}
    found = e.explain(row, METHODS)
    assert all(one.options["replace"] == "pad" for one in found.values())
    with pytest.raises(whence.InputError, match="has no mask token; it can use pad, delete"):
        e.explain(row, "occlusion", replace="mask")
    deleted = e.explain(
        row, "shapley", 0, replace="delete", permutations="all"
    )  # nothing is left of an empty coalition
    ids = row["input_ids"]
    expected = value(e, ids, 0) - value(e, [e.model.config.bos_token_id], 0)
    assert deleted.scores.sum() == pytest.approx(expected, abs=1e-9)
    bare = whence.load(architectures.build("gpt2", pad_token_id=None, bos_token_id=None, eos_token_id=None))
    assert bare.explain(row, "occlusion").options["replace"] == "delete"
    with pytest.raises(whence.NotSupported, match="no token for an empty one"):
        bare.explain(row, "shapley")


@pytest.mark.parametrize("replace", ["unk", "delete"])
def test_a_continuation_after_less_and_less_of_its_prompt(replace: str) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(architectures.config("gpt2")).double().eval()
    e = whence.load(model, architectures.tokenizer())
    ids, after = ([architectures.VOCABULARY[w] for w in text.split()] for text in ("the film was a", "dull plot"))
    found = e.explain({"input_ids": ids}, "shapley", continuation="dull plot", replace=replace, permutations="all")

    def log_p(before: list[int]) -> float:
        with torch.no_grad():
            log_probabilities = model(torch.tensor([[*before, *after]])).logits[0].log_softmax(-1)
        return float(sum(log_probabilities[len(before) - 1 + k, token] for k, token in enumerate(after)))

    empty = [1] * len(ids) if replace == "unk" else [e.model.config.bos_token_id]
    assert found.scores.sum() == pytest.approx(log_p(ids) - log_p(empty), abs=1e-9)
    assert not found.scores[len(ids) :].any()


def test_questions_cannot_lose_tokens() -> None:
    torch.manual_seed(0)
    model = AutoModelForQuestionAnswering.from_config(architectures.config("bert", num_labels=2)).double().eval()
    e = whence.load(model, architectures.tokenizer())
    question = {"question": "is it good ?", "context": "the film was a charming journey"}
    found = e.explain(question, "shapley", "start", unit="word", permutations=4)
    ids = list(found.input_ids)
    masked = [token if special else MASK for token, special in zip(ids, found.special, strict=True)]
    types = list(e.tokenizer(question["question"], question["context"])["token_type_ids"])

    def f(row: list[int]) -> float:
        with torch.no_grad():
            output = model(torch.tensor([row]), token_type_ids=torch.tensor([types]))
        return float(output.start_logits[0, found.target_index])

    assert found.scores.sum() == pytest.approx(f(ids) - f(masked), abs=1e-9)
    ends = e.explain(question, "shapley", "end", unit="word", permutations=4)
    both = e.explain(question, "shapley", "span", unit="word", permutations=4)
    np.testing.assert_allclose(both.scores, found.scores + ends.scores, atol=1e-9)
    with pytest.raises(whence.InputError, match="answers with positions"):
        e.explain(question, "occlusion", replace="delete")


@pytest.mark.parametrize(
    ("method", "options", "says"),
    [
        ("occlusion", {"window": 0}, "window=0: give a whole number, 1 or more"),
        ("occlusion", {"unit": "sentence"}, "unknown unit"),
        ("occlusion", {"replace": "masks"}, "did you mean 'mask'"),
        ("occlusion", {"segment": 1}, "single text"),
        ("occlusion", {"of": "loss"}, "unknown value of="),
        ("lime", {"samples": 1}, "samples=1"),
        ("lime", {"kernel_width": 0}, "width must be above 0"),
        ("lime", {"seed": -1}, "seed=-1"),
        ("shapley", {"permutations": "some"}, "1 or more or 'all'"),
        ("shapley", {"permutations": True}, "permutations=True"),
        ("kernel-shap", {"samples": 0.5}, "samples=0.5"),
        ("kernel-shap", {"samples": 1}, "samples=1: give a whole number, 2 or more"),
    ],
)
def test_bad_options_say_what_to_do(method: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(whence.WhenceError, match=says):
        bert().explain(SHORT, method, **options)


def test_exactness_has_a_limit() -> None:
    for name, option in (("shapley", "permutations"), ("kernel-shap", "samples")):
        with pytest.raises(whence.InputError, match=rf"{option}='all' needs 2\^13 rows.*up to 12"):
            bert().explain(TWELVE + " !", name, **{option: "all"})


def test_regression_has_logits_only() -> None:
    e = whence.load(architectures.build("bert", num_labels=1), architectures.tokenizer())
    assert np.abs(e.explain(SHORT, "occlusion").scores).max() > 0
    with pytest.raises(whence.NotSupported, match="of='logit'"):
        e.explain(SHORT, "occlusion", of="probability")


def test_a_text_of_one_unit() -> None:
    e = bert()
    found = e.explain("dull", METHODS, 0)
    drop = value(e, [2, architectures.VOCABULARY["dull"], 3], 0) - value(e, [2, MASK, 3], 0)
    for name in ("occlusion", "shapley", "kernel-shap"):
        assert found[name].scores[1] == pytest.approx(drop, abs=1e-9)


def test_a_method_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "METHODS", dict(registry.METHODS))

    @whence.method("leave-one-in", kind="perturbation", family="mine")
    def leave_one_in(text: Any, *, unit: str = "word") -> Any:
        """What a word says alone."""
        opened = text.game(unit=unit)
        alone = np.eye(opened.units, dtype=bool)
        first = yield opened.ask(np.zeros((1, opened.units), bool), later=len(alone))
        y = yield opened.ask(alone)
        return opened.part(y - first[0])

    e = bert()
    f, inside = game(e, SHORT, 0)
    expected = [f(frozenset({i})) - f(frozenset()) for i in inside]
    np.testing.assert_allclose(e.explain(SHORT, "leave-one-in", 0).scores[1:-1], expected, atol=1e-9)
    row = next(r for r in whence.methods() if r["name"] == "leave-one-in")
    assert (row["cost"], row["options"]) == ("many forwards", "unit='word'")


def cpu_seconds(pid: int) -> float:
    """What a running process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_seconds_of_children() -> float:
    """What all processes that this one started, and that have ended, used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ctrl_c_ends_a_long_run_within_two_seconds() -> None:
    """Two seconds of the process's own time: on one free core that is time on the clock, and on a busy machine the test holds."""
    program = "from whence import cli, progress; progress.LOG_SECONDS = 0.2; cli.main()"
    command = [sys.executable, "-c", program, "explain", "it 's a charming and often affecting journey ."]
    command += ["--method", "shapley", "--option", "permutations=1000000"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = cpu_seconds_of_children()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    try:
        seen = process.stderr.readline()  # a log line: rows are running
        before = cpu_seconds(process.pid)
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=60)
    finally:
        process.kill()
    assert "rows/s" in seen
    assert cpu_seconds_of_children() - ended - before < 2
    assert process.returncode == 130
    assert rest.strip().splitlines()[-1] == "whence: interrupted"
    assert "Traceback" not in rest
    assert out == ""
