"""Packing and words, whatever the lengths."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizer

import whence
from tests import architectures
from whence.errors import InputError
from whence.inputs.encode import Encoder
from whence.inputs.rows import Encoded, pack, unused_id
from whence.inputs.words import words_from_pieces


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


def encoder(**given: int) -> Encoder:
    tokenizer = architectures.tokenizer()
    known = {"max_length": 12, "vocab_size": len(tokenizer), "type_vocab_size": 2} | given
    return Encoder(tokenizer=tokenizer, special_ids=frozenset({0, 2, 3}), **known)


MIXED = [
    "a charming film",
    ("the film", "a story !"),
    {"input_ids": [2, 5, 6, 3]},
    {"input_ids": [2, 7, 3], "token_type_ids": [0, 0, 0]},
    {"input_ids": np.array([2, 5, 1, 3])},
    "the music is lovely and the story is slow and very long and good and funny !",  # more than 12 tokens: it is cut
    {"input_ids": [2, 1, 3]},
    {"input_ids": [np.int64(2), np.int64(9), 3]},
    "good",
]


@pytest.mark.filterwarnings("ignore::whence.errors.Truncated")
def test_inputs_read_together_are_those_read_one_by_one() -> None:
    own = encoder()
    together, alone = own.encode(MIXED), [own.encode([item])[0] for item in MIXED]
    assert together == alone
    assert [row.truncated for row in together] == [i == 5 for i in range(len(MIXED))]
    assert all(type(i) is int for row in together for i in row.input_ids)
    for row in together:
        assert row.id_array.tolist() == list(row.input_ids)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "half \ud800",
        ("a film", 3),
        {"input_ids": []},
        {"input_ids": [2, True, 3]},
        {"input_ids": [2, 5.0, 3]},
        {"input_ids": [2, "5", 3]},
        {"input_ids": [[2, 5, 3], [2, 3]]},
        {"input_ids": [2, [5], 3]},
        {"input_ids": [2, -1, 3]},
        {"input_ids": [2, 10**6, 3]},
        {"input_ids": [2, 10**30, 3]},
        {"input_ids": [2, 3, 0]},
        {"input_ids": [2] + [5] * 20 + [3]},
        {"input_ids": [2, 5, 3], "labels": [1]},
    ],
)
def test_among_good_inputs_a_bad_one_is_named_as_by_itself(bad: object) -> None:
    own = encoder()
    with pytest.raises(InputError) as alone:
        own.encode([bad])
    with pytest.raises(InputError) as among:
        own.encode(["good", {"input_ids": [2, 5, 6, 3]}, bad, ("a", "film")])
    assert str(among.value) == f"input 2: {alone.value}"


def test_a_text_is_described_when_asked_and_lets_go_of_what_the_tokenizer_made() -> None:
    row = encoder().encode(["a charming film", "good"])[0]
    assert "tokens" not in row.__dict__
    assert (row.tokens[0], row.offsets[1], row.word_ids[1], row.segments[0]) == ("[CLS]", (0, 1), 0, None)
    assert row.__dict__["_describe"] is None
    with pytest.raises(AttributeError):
        row.nothing  # noqa: B018


def test_a_slow_tokenizer_tells_both_texts_of_a_pair_apart() -> None:
    """Python tokenizers know neither characters nor sequences."""

    class Slow(PreTrainedTokenizer):
        model_input_names: ClassVar[list[str]] = ["input_ids", "attention_mask"]

        def __init__(self, **options: Any) -> None:
            self._words = architectures.VOCABULARY
            super().__init__(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", **options)

        @property
        def vocab_size(self) -> int:
            return len(self._words)

        def get_vocab(self) -> dict[str, int]:
            return dict(self._words)

        def _tokenize(self, text: str, **_: Any) -> list[str]:
            return text.split()

        def _convert_token_to_id(self, token: str) -> int:
            return self._words.get(token, self._words["[UNK]"])

        def _convert_id_to_token(self, index: int) -> str:
            return list(self._words)[index]

        def build_inputs_with_special_tokens(self, first: list[int], second: list[int] | None = None) -> list[int]:
            return [2, *first, 3] if second is None else [2, *first, 3, *second, 3]

    pair = ("a good film", "dull plot")
    for name in ("bert", "roberta"):
        ex = whence.load(architectures.model(name), Slow())
        e = ex.explain(pair, "occlusion", target=1, segment=1)
        assert e.segments == (None, 0, 0, 0, None, 1, 1, None)
        assert not e.scores[:5].any()
        fast = whence.load(architectures.model(name), architectures.tokenizer()).explain(pair, "grads", target=1)
        assert e.segments == fast.segments
