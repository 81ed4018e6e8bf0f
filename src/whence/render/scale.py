"""The colour scale every renderer shares: strength −1 … 1, blue speaks for the target, red against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

RGB = tuple[int, int, int]
FOR: RGB = (33, 102, 172)
AGAINST: RGB = (178, 24, 43)


def strengths(
    scores: Sequence[float] | NDArray[np.floating[Any]], special: Sequence[bool] | NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Scores divided by the largest magnitude among the text's own tokens; special tokens are 0.

    >>> strengths([9.0, 1.0, -2.0], [True, False, False]).tolist()
    [0.0, 0.5, -1.0]
    """
    values = np.where(np.asarray(special, dtype=bool), 0.0, np.asarray(scores, dtype=np.float64))
    largest = np.abs(values).max(initial=0.0)
    return values / largest if largest > 0 else values


def mix(start: RGB, end: RGB, share: float) -> RGB:
    r, g, b = (round(x + (y - x) * share) for x, y in zip(start, end, strict=True))
    return r, g, b


def luminance(color: RGB) -> float:
    """Relative luminance of WCAG 2."""
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (x / 255 for x in color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: RGB, other: RGB) -> float:
    """WCAG contrast ratio, 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def ink_on(color: RGB) -> RGB:
    """Black or white, whichever reads better."""
    return max(((0, 0, 0), (255, 255, 255)), key=lambda ink: contrast(ink, color))


def css(color: RGB) -> str:
    """#rrggbb."""
    return "#{:02x}{:02x}{:02x}".format(*color)
