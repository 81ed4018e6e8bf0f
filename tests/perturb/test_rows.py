"""Changed rows: what is kept, what stands in, where answers are read."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import whence
from tests import architectures
from whence.inputs import Encoded, Encoder
from whence.run.perturb import Rows, delete, hide, replace, units_of


def encoder() -> Encoder:
    return Encoder(architectures.tokenizer(), 64, len(architectures.VOCABULARY), frozenset({0, 2, 3}), 2)


def pair() -> Encoded:
    """[CLS] the mov ##ing plot [SEP] dull [SEP], by position 0 … 6 — with a word of two pieces and a second segment."""
    return encoder().encode([("the filmly plot", "dull")])[0]


def test_the_pair_is_what_the_tests_think() -> None:
    assert pair().tokens == ("[CLS]", "the", "film", "##ly", "plot", "[SEP]", "dull", "[SEP]")


def kept(*positions: int) -> np.ndarray:
    return np.array([[i in positions for i in range(8)]])


def test_replace_hide_and_delete() -> None:
    row = pair()
    keep = kept(0, 1, 4, 5, 6, 7)
    replaced = replace(row, keep, 4)
    assert replaced.ids.tolist() == [row.input_ids[0], row.input_ids[1], 4, 4, *row.input_ids[4:]]
    assert replaced.visible.all()
    hidden = hide(row, keep, 4)
    assert hidden.ids.tolist() == replaced.ids.tolist()
    assert hidden.visible.tolist() == keep[0].tolist()
    shorter = delete(row, keep)
    assert shorter.ids.tolist() == [row.input_ids[i] for i in (0, 1, 4, 5, 6, 7)]
    assert shorter.lengths.tolist() == [6]
    assert shorter.types is not None
    assert shorter.types.tolist() == [0, 0, 0, 0, 1, 1]


def test_deleting_moves_the_places_and_closes_up_the_positions() -> None:
    base = pair()
    row = dataclasses.replace(base, places=(4, 6), position_ids=tuple(range(2, 10)))
    rows = delete(row, np.concatenate([kept(0, 1, 4, 5, 6, 7), kept(0, 5, 6, 7)]))
    assert rows.places.tolist() == [[2, 4], [0, 2]]  # 4 itself is gone in the second
    assert rows.positions is not None
    assert rows.positions.tolist() == [2, 3, 4, 5, 6, 7, 2, 3, 4, 5]
    with pytest.raises(whence.InputError, match="all up to the one it is asked at"):
        delete(row, kept(5, 6, 7))


def test_a_row_cannot_vanish_and_tables_must_fit() -> None:
    with pytest.raises(whence.InputError, match="lose all its tokens"):
        delete(pair(), np.zeros((1, 8), bool))
    with pytest.raises(whence.InputError, match=r"boolean \(rows, 8\) table"):
        replace(pair(), np.ones((1, 7), bool), 4)


def test_join_and_padding() -> None:
    long, short = pair(), encoder().encode(["dull"])[0]
    rows = Rows.join([delete(long, kept(0, 1, 5, 7)), Rows.of([long, short])])
    assert rows.lengths.tolist() == [4, 8, 3]
    padded = rows.padded(np.array([2, 1]), 0)
    assert padded.ids.tolist() == [[*short.input_ids, 0, 0, 0, 0, 0], list(long.input_ids)]
    assert padded.visible.tolist() == [[True] * 3 + [False] * 5, [True] * 8]
    assert len(Rows.of([])) == 0


def test_keys_tell_rows_apart_by_everything_the_model_sees() -> None:
    row = pair()
    mask = dataclasses.replace(row, attention_mask=(1, 1, 0, 1, 1, 1, 1, 1))
    types = dataclasses.replace(row, token_type_ids=(0,) * 8)
    places = dataclasses.replace(row, places=(3,))
    positions = dataclasses.replace(row, position_ids=tuple(range(1, 9)))
    assert len(set(Rows.of([row, mask, types, places, positions, row]).keys())) == 5


def test_units() -> None:
    row = pair()
    assert units_of(row).of_token.tolist() == [-1, 0, 1, 2, 3, -1, 4, -1]
    words = units_of(row, "word")
    assert words.of_token.tolist() == [-1, 0, 1, 1, 2, -1, 3, -1]
    assert units_of(row, "word", 1).of_token.tolist() == [-1, -1, -1, -1, -1, -1, 0, -1]
    assert words.tokens_kept(np.array([[True, False, True, False]])).tolist() == [[1, 1, 0, 0, 1, 1, 0, 1]]
    assert words.to_tokens(np.array([1.0, 2.0, 3.0, 4.0])).tolist() == [0, 1, 1, 1, 3, 0, 4, 0]
    fixed = dataclasses.replace(row, fixed=(1,))
    assert units_of(fixed).of_token.tolist() == [-1, -1, 0, 1, 2, -1, 3, -1]
    with pytest.raises(whence.InputError, match="single text"):
        units_of(encoder().encode(["dull"])[0], segment=1)
    with pytest.raises(whence.UnknownName, match="did you mean 'word'"):
        units_of(row, "words")
    with pytest.raises(whence.InputError, match="segment=2"):
        units_of(row, segment=2)


def test_rows_are_numbered_by_what_the_model_sees_also_where_hashes_fall_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = pair()
    some = [row, dataclasses.replace(row, places=(3,)), row.select([0, 1, 5, 6, 7]), row, row.select([0, 1, 5, 6, 7])]
    rows = Rows.of(some)
    assert rows.numbered().tolist() == [0, 1, 2, 0, 2]
    real = rows.hashes()
    monkeypatch.setattr(Rows, "hashes", lambda self: np.stack([np.zeros_like(real[0]), real[1]]))
    assert rows.numbered().tolist() == [0, 1, 2, 0, 2]


def test_many_rows_are_numbered_as_by_their_bytes() -> None:
    row = pair()
    keep = np.random.default_rng(0).random((2000, len(row))) < 0.5
    for rows in (replace(row, keep, 9), hide(row, keep, 9), delete(row, keep | (np.arange(len(row)) == 0))):
        _, kinds = rows.numbered_by_bytes()
        numbers = rows.numbered()
        assert len(set(zip(numbers.tolist(), kinds.tolist(), strict=True))) == len(set(kinds.tolist()))
        assert np.array_equal(numbers, kinds)  # both count in the order of the first
