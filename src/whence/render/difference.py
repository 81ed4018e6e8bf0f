"""Two methods on one text: where does the one put more weight than the other (Mask-LRP, figure 6)?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from whence.errors import InputError
from whence.render.scale import FULL_SCALE, strengths

if TYPE_CHECKING:
    from whence.explanation import Explanation


def difference(one: Explanation, other: Explanation) -> Explanation:
    """An Explanation whose scores are strength(one) − strength(other): both are first brought to the shared scale, on which
    1 is the strongest token of the text. Positive: `one` weighs the token more; negative: `other` does. Differences are drawn as
    they are, full colour from 1 on: two methods that agree give a pale picture."""
    if one.input_ids != other.input_ids:
        raise InputError("a difference needs two explanations of the same tokens; these are of different inputs.")
    scores = strengths(one.scores, one.special) - strengths(other.scores, other.special)
    return replace(
        one,
        scores=scores.astype(one.scores.dtype),
        method=f"{one.method} − {other.method}",
        options={FULL_SCALE: 1.0},
        meaning=replace(one.meaning, signed=None, sums_to=None),
        layers=None,
        matrices=None,
    )
