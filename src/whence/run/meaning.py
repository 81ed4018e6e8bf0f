"""What a method declares of its scores, held against what it gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from whence.errors import InputError
from whence.models.layers import layers_of, stated_depth
from whence.render.meaning import Meaning
from whence.tasks import Target
from whence.trace.attribution import RowScores

ROUNDING = 1e-5  # of the largest score: so far below 0 a score that cannot be negative may come


def checked_meaning(meaning: Meaning, name: str, row_scores: RowScores, model: PreTrainedModel) -> Meaning:
    """What a method declares of its scores, held against what it gave for one row; where its layers start is worked out if it
    does not say.

    Raises:
        InputError: the scores are not what the method declares.
    """
    if meaning.signed is False:
        for values in (row_scores.scores, row_scores.layers):
            if values is not None and (lowest := values.min(initial=0.0)) < -ROUNDING * np.abs(values).max():
                raise InputError(
                    f"the method {name!r} declares signed=False and gave a score of {lowest:.3g}: declare signed=True, or leave it out."
                )
    if row_scores.layers is None:
        return meaning
    rows, depth = len(row_scores.layers), stated_depth(model)
    if meaning.layers_start is None:
        start = None if depth is None else {depth + 1: 0, depth: 1}.get(rows)
        return replace(meaning, layers_start=start)
    if depth is not None and meaning.layers_start + rows - 1 > depth:
        depth = len(layers_of(model)) or depth  # what a config states need not be what runs, but it is read at once
        if meaning.layers_start + rows - 1 > depth:
            raise InputError(
                f"the method {name!r} declares layers_start={meaning.layers_start} and gave {rows} layers for a model of {depth}; "
                "layers_start=0 says that the first of them is the embeddings."
            )
    return meaning


def check_same_for_targets(name: str, targets: Sequence[Target], scores: Sequence[RowScores]) -> None:
    """Refuse different scores for targets that are read at the same positions, by a method that declares knows_target=False."""
    first: dict[Any, Any] = {}
    for target, row_scores in zip(targets, scores, strict=True):
        places = tuple((term.places, term.readouts) for term in target.terms)
        expected = first.setdefault(places, row_scores.scores)
        tolerance = 1e-6 + 1e-3 * float(np.abs(expected).max(initial=0.0))
        if not np.allclose(expected, row_scores.scores, rtol=1e-3, atol=tolerance):
            raise InputError(
                f"the method {name!r} declares knows_target=False, and its scores for {target.label!r} are others than for "
                f"{targets[0].label!r}: leave it out."
            )
