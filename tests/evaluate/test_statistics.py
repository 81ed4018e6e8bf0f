"""Intervals that cover, tests that are calibrated, corrections that correct."""

from __future__ import annotations

import numpy as np
import pytest

from whence.evaluate import statistics
from whence.evaluate.tune import probability_best, rounds


def test_interval_covers_the_mean_about_95_times_in_100() -> None:
    generator = np.random.default_rng(0)
    inside = 0
    for k in range(200):
        values = generator.normal(0.3, 1.0, 60)
        figure = statistics.compare({"a": values}, np.ones(60), "higher", k)["a"]
        inside += figure.low <= 0.3 <= figure.high
    assert 180 <= inside <= 198


def test_permutation_p_is_uniform_under_the_null_and_small_otherwise() -> None:
    generator = np.random.default_rng(1)
    null = [statistics.permutation_p(generator.normal(0, 1, (40, 200)), seed, count=1000) for seed in range(10)]
    assert 0.04 <= (np.concatenate(null) < 0.05).mean() <= 0.06
    assert (statistics.permutation_p(generator.normal(1, 1, (40, 20)), 0) < 0.01).all()


def test_equal_methods_tie_with_the_best_and_different_ones_do_not() -> None:
    generator = np.random.default_rng(2)
    base = generator.normal(0, 1, 100)
    values = {"best": base + 1, "same": base + 1, "close": base + 0.99 + generator.normal(0, 1, 100), "worse": base}
    figures = statistics.compare(values, np.ones(100), "higher", 0)
    assert figures["best"].best
    assert figures["same"].tied
    assert figures["same"].p == 1.0
    assert not figures["worse"].tied
    lower = statistics.compare(values, np.ones(100), "lower", 0)
    assert lower["worse"].best


def test_the_same_seed_gives_the_same_figures() -> None:
    values = {"a": np.arange(30.0), "b": np.arange(30.0)[::-1] ** 1.1}
    one, two, other = (statistics.compare(values, np.ones(30), "higher", seed) for seed in (0, 0, 1))
    assert one == two
    assert one != other


def test_weights_make_a_ratio_of_sums() -> None:
    hits, lengths = np.array([1.0, 0.0, 3.0]), np.array([2.0, 4.0, 3.0])
    figure = statistics.compare({"a": hits / lengths}, lengths, "higher", 0)["a"]
    assert figure.mean == pytest.approx(hits.sum() / lengths.sum())


def test_texts_that_were_not_measured_do_not_count() -> None:
    values = {"a": np.array([1.0, np.nan, 3.0]), "b": np.array([0.0, np.nan, 0.0])}
    assert statistics.compare(values, np.ones(3), "higher", 0)["a"].n == 2
    nothing = statistics.compare({"a": np.full(3, np.nan)}, np.ones(3), "higher", 0)["a"]
    assert nothing.n == 0
    assert np.isnan(nothing.mean)


def test_probability_of_being_best() -> None:
    generator = np.random.default_rng(3)
    values = generator.normal(0, 0.1, (3, 2, 50))
    values[1] += 1.0
    assert probability_best(values, ["higher", "higher"], 0).tolist() == [0.0, 1.0, 0.0]
    equal = probability_best(generator.normal(0, 1, (2, 1, 400)) * 1e-3, ["higher"], 0)
    assert equal.sum() == pytest.approx(1.0)


def test_rounds_double_and_end_with_every_text() -> None:
    assert rounds(200, 40) == [12, 25, 50, 100, 200]
    assert rounds(10, 40)[-1] == 10


def test_a_number_of_the_whole_corpus() -> None:
    """Samples that are all shifted, as overlaps of resampled texts are; more methods than 1 / α samples could tell apart."""
    generator = np.random.default_rng(0)
    values = {f"m{i}": 0.3 + 0.02 * (i > 1) for i in range(20)} | {"m0": 0.1, "m1": 0.105}
    samples = {name: value - 0.08 + generator.normal(0, 0.01, 200) for name, value in values.items()}
    figures = statistics.compare_samples(values, samples, 500, "lower")
    assert all(f.low < f.mean < f.high for f in figures.values())
    assert figures["m0"].best
    assert [name for name, f in figures.items() if f.tied] == ["m1"]
    share = statistics.compare_samples(
        {"a": 0.01, "b": 0.5}, {"a": np.linspace(0, 0.2, 9), "b": np.full(9, 0.4)}, 3, "lower"
    )
    assert share["a"].low == 0.0
    alone = statistics.compare_samples({"a": 0.1, "b": 0.5}, {"a": np.full(9, 0.1), "b": np.full(9, 0.5)}, 1, "lower")
    assert alone["b"].tied, "one text says nothing about others"
