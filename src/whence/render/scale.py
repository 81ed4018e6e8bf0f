"""The visual language that every renderer shares: one normalisation rule, two colour scales, light and dark.

* Strength is a score divided by the largest magnitude among the text's own tokens: 1 is the strongest token, 0 is nothing.
* Methods that give signed scores are drawn on a diverging scale: blue speaks for the target, red against it, and what
  speaks against is underlined (a minus in heat maps), so that a grey print and a colour-blind eye can tell them apart.
* Methods that give weights (never negative) are drawn on a sequential purple scale: more is darker on light paper, brighter
  on dark paper.
* Ink on a colour is black or white, whichever reads better; that is always at least 4.5 : 1 (WCAG AA).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whence.errors import UnknownName

if TYPE_CHECKING:
    from whence.explanation import Explanation

RGB = tuple[int, int, int]
Ramp = tuple[RGB, RGB]  # from strength 0 to strength 1


@dataclass(frozen=True)
class Theme:
    """Colours of one background."""

    name: str
    paper: RGB
    ink: RGB
    muted: RGB  # notes, special tokens: still 4.5 : 1 on paper
    line: RGB  # rules and frames
    speaks_for: Ramp
    against: Ramp
    weight: Ramp


_WHITE: RGB = (255, 255, 255)
_NIGHT: RGB = (22, 24, 29)

LIGHT = Theme(
    "light",
    paper=_WHITE,
    ink=(17, 17, 17),
    muted=(90, 94, 102),
    line=(208, 211, 216),
    speaks_for=(_WHITE, (33, 102, 172)),
    against=(_WHITE, (178, 24, 43)),
    weight=(_WHITE, (94, 46, 146)),
)
DARK = Theme(
    "dark",
    paper=_NIGHT,
    ink=(236, 237, 239),
    muted=(164, 169, 178),
    line=(66, 70, 79),
    speaks_for=(_NIGHT, (104, 174, 255)),
    against=(_NIGHT, (255, 116, 116)),
    weight=(_NIGHT, (196, 150, 255)),
)
# a terminal's own background is unknown: shades that carry white ink on any of them
TERMINAL = Theme(
    "terminal",
    paper=(0, 0, 0),
    ink=_WHITE,
    muted=(164, 169, 178),
    line=(66, 70, 79),
    speaks_for=((16, 28, 56), (38, 110, 220)),
    against=((56, 16, 20), (205, 45, 45)),
    weight=((36, 18, 56), (140, 70, 215)),
)
THEMES = {"light": LIGHT, "dark": DARK}

FULL_SCALE = "full_scale"  # option of an explanation whose scores have a scale of their own: strength 1 is this score
UNDERLINED = 0.1  # what speaks against with at least this strength is underlined


def theme_named(name: str) -> Theme:
    if name not in THEMES:
        raise UnknownName("theme", name, list(THEMES))
    return THEMES[name]


def is_signed(e: Explanation) -> bool:
    """Whether the scores say for and against (diverging scale) or only how much (sequential scale): as the method declares, or
    as a score below 0 proves."""
    of_text = ~np.asarray(e.special, dtype=bool)
    if (np.asarray(e.scores)[of_text] < 0).any() or (e.layers is not None and (e.layers[:, of_text] < 0).any()):
        return True
    return e.meaning.signed is True


def strengths(
    scores: Sequence[float] | NDArray[np.floating[Any]], special: Sequence[bool] | NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Scores divided by the largest magnitude among the text's own tokens; special tokens are 0.

    >>> strengths([9.0, 1.0, -2.0], [True, False, False]).tolist()
    [0.0, 0.5, -1.0]
    """
    return normalised(np.where(np.asarray(special, dtype=bool), 0.0, np.asarray(scores, dtype=np.float64)))


def normalised(values: ArrayLike) -> NDArray[np.float64]:
    """Values divided by their largest magnitude; all zeros stay zeros."""
    array = np.asarray(values, dtype=np.float64)
    largest = np.abs(array).max(initial=0.0)
    return array / largest if largest > 0 else array


def shade(strength: float, signed: bool, theme: Theme = LIGHT) -> RGB:
    """The background of a strength from −1 to 1.

    >>> shade(1.0, True), shade(-1.0, True), shade(0.0, False)
    ((33, 102, 172), (178, 24, 43), (255, 255, 255))
    """
    ramp = theme.weight if not signed else theme.speaks_for if strength >= 0 else theme.against
    return mix(*ramp, min(abs(strength), 1.0))


def mix(start: RGB, end: RGB, share: float) -> RGB:
    r, g, b = (round(x + (y - x) * share) for x, y in zip(start, end, strict=True))
    return r, g, b


def luminance(color: RGB) -> float:
    """Relative luminance of WCAG 2."""
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (x / 255 for x in color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: RGB, second: RGB) -> float:
    """WCAG contrast ratio, 1 to 21."""
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def ink_on(color: RGB) -> RGB:
    """Black or white, whichever reads better."""
    return max(((0, 0, 0), (255, 255, 255)), key=lambda ink: contrast(ink, color))


def css(color: RGB) -> str:
    """#rrggbb."""
    return "#{:02x}{:02x}{:02x}".format(*color)
