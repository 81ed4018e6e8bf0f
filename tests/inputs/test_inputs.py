"""Packing and words, whatever the lengths."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.inputs.batching import pack, unused_id
from whence.inputs.encode import Encoded, Encoder, words_from_pieces


@given(st.lists(st.integers(1, 60), max_size=60), st.integers(1, 200), st.one_of(st.none(), st.integers(1, 4000)))
def test_every_row_is_packed_once_within_the_budget(lengths: list[int], budget: int, pairs: int | None) -> None:
    groups = pack(lengths, budget, pairs)
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    for group in groups:
        longest = max(lengths[i] for i in group)
        assert len(group) == 1 or len(group) * longest <= budget
        assert len(group) == 1 or pairs is None or len(group) * longest**2 <= pairs


def test_rows_of_like_length_go_together() -> None:
    assert pack([1, 50, 2, 49], 100) == [[1, 3], [2, 0]]


def test_words_from_pieces() -> None:
    assert words_from_pieces(["[CLS]", "un", "##do", "it"], (True, False, False, False)) == (None, 0, 0, 1)
    assert words_from_pieces(["Ġun", "do", "Ġit"], (False,) * 3) == (0, 0, 1)
    assert words_from_pieces(["▁un", "do"], (False,) * 2) == (0, 0)
    assert words_from_pieces(["##x"], (False,)) == (0,)


def test_unused_id() -> None:
    class Row:
        input_ids = (0, 1, 3)

    assert unused_id([Row()]) == 2  # type: ignore[list-item]


@given(
    st.lists(st.integers(1, 60), max_size=40), st.integers(1, 200), st.none() | st.integers(1, 5000), st.integers(1, 9)
)
def test_packing_is_what_taking_one_row_after_the_other_gives(
    lengths: list[int], budget: int, max_pairs: int | None, max_rows: int
) -> None:
    expected: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        rows, longest = (len(expected[-1]) + 1, lengths[expected[-1][0]]) if expected else (0, 0)
        room = rows and rows <= max_rows and rows * longest <= budget
        if room and (max_pairs is None or rows * longest**2 <= max_pairs):
            expected[-1].append(i)
        else:
            expected.append([i])
    assert pack(lengths, budget, max_pairs, max_rows) == expected


def test_a_row_of_ids_is_described_when_asked_and_is_an_ordinary_row() -> None:
    encoder = Encoder(None, max_length=8, vocab_size=10, special_ids=frozenset({2, 3}))
    tokens, special = ("2", "7", "9", "3"), (True, False, False, True)
    whole = Encoded((2, 7, 9, 3), tokens, special, ((0, 0),) * 4, (None, 0, 1, None), (None, 0, 0, None))

    def row() -> Encoded:
        return encoder.encode_one({"input_ids": [2, 7, 9, 3]})

    assert "tokens" not in vars(row())
    assert len(row()) == 4
    assert row().word_ids == (None, 0, 1, None)
    assert row() == whole
    assert hash(row()) == hash(whole)
    assert pickle.loads(pickle.dumps(row())) == whole
    assert copy.copy(row()) == whole
    assert repr(row()) == repr(whole)
    assert replace(row(), fixed=(1,)) == replace(whole, fixed=(1,))
    assert row().select([0, 2, 3]) == whole.select([0, 2, 3])
    assert row().free == (1, 2)
    with pytest.raises(AttributeError, match="colour"):
        row().colour  # noqa: B018
