"""Padding that comes with a row of ids: which of the tokens that its attention mask hides are padding, and which are text.

What is explained is the model's answer to the row as it was given: its ids, its mask, and the positions that the model makes
of them. Padding takes part in no score: means over tokens leave it out, no perturbation touches it, and its own score is 0. So

* padding behind the text never changes a score, and padding before it changes none where the model's positions are relative
  (LLaMA) or told by ids (RoBERTa's);
* padding before the text of a model with absolute positions (BERT, GPT-2) moves the text to other positions. That is another input
  of the model, with another answer, and its explanation is that answer's;
* a token at which the model reads its answer is no padding, whatever hides it: BERT's classifier reads the first token of a
  row, [CLS] or not;
* a decoder whose configuration names no padding id has no way of its own to tell padding, and is lent an id. Padding behind the
  text is given that id, as the padding of a batch is: so its classifier answers at the last token of the text, not at padding.

Hidden tokens that are no padding (a hidden [SEP], words hidden within a text) are tokens: the text with some of its tokens out of sight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

Marks = tuple[bool, ...]


def padding_of(ids: Sequence[int], mask: Sequence[int] | None, padding_ids: AbstractSet[int]) -> Marks | None:
    """Which tokens are padding: those hidden at either end of the row, up to the first that is no padding token. None if none is.

    Another token is padding if it stands there several times; once, it is of the text or frames it, and hidden on purpose. Where no
    padding token is known, everything hidden at an end is padding.

    >>> padding_of((2, 9, 3, 0, 0), (1, 1, 1, 0, 0), {0})
    (False, False, False, True, True)
    >>> padding_of((2, 9, 3), (0, 1, 0), {0})
    """
    if mask is None or (mask[0] and mask[-1]):
        return None
    marks = [False] * len(ids)
    for positions in (range(len(ids)), range(len(ids) - 1, -1, -1)):
        for i in hidden_run(mask, positions):
            if padding_ids and ids[i] not in padding_ids and not repeated(ids, mask, i):
                break
            marks[i] = True
    return tuple(marks) if any(marks) else None


def hidden_run(mask: Sequence[int], positions: Sequence[int]) -> Iterator[int]:
    """The positions up to the first that is not hidden."""
    for i in positions:
        if mask[i]:
            return
        yield i


def repeated(ids: Sequence[int], mask: Sequence[int], i: int) -> bool:
    """Whether the hidden token beside it is the same."""
    return any(0 <= j < len(ids) and not mask[j] and ids[j] == ids[i] for j in (i - 1, i + 1))
