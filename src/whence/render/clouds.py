"""Word clouds: the strongest words of each class, larger for more weight (needs the package `wordcloud`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.errors import InputError, WhenceError
from whence.render.canvas import PAGE, dress, new_figure, titled
from whence.render.characters import visible
from whence.render.scale import Theme, css, shade

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS = 220  # per inch of a cloud


def clouds_figure(
    classes: Mapping[str, Mapping[str, float]], *, width: float = PAGE, theme: str = "light", seed: int = 0
) -> Figure:
    """classes: {class: {word: weight}}; one cloud each. The same seed gives the same picture."""
    shown = {name: {visible(w): v for w, v in words.items() if v > 0} for name, words in classes.items()}
    if not shown or not all(shown.values()):
        raise InputError("a word cloud needs at least one word with a positive weight in every class.")
    across = min(2, len(shown))
    down = math.ceil(len(shown) / across)
    side = width / across
    figure, look = new_figure(width, down * (side * 0.62 + 0.25), theme)
    axes = figure.subplots(down, across, squeeze=False)
    for number, one in enumerate(axes.flat):
        dress(one, look, frame=False)
        one.set_xticks([])
        one.set_yticks([])
        if number >= len(shown):
            one.set_visible(False)
            continue
        name, words = list(shown.items())[number]
        one.imshow(cloud(words, int(side * DOTS), int(side * 0.6 * DOTS), look, seed), interpolation="bilinear")
        titled(one, name, look)
    return figure


def cloud(words: Mapping[str, float], width: int, height: int, theme: Theme, seed: int) -> Any:
    """An array (height, width, 3): words in the shared sequential scale, no paler than what reads on the paper."""
    try:
        from wordcloud import WordCloud
    except ImportError:
        raise WhenceError("word clouds need the package wordcloud: pip install 'whence[clouds]'.") from None
    from matplotlib import font_manager

    most = max(words.values())

    def color(word: str, **_: Any) -> str:
        return css(word_color(words[word] / most, theme))

    drawn = WordCloud(
        width=width,
        height=height,
        background_color=css(theme.paper),
        color_func=color,
        font_path=font_manager.findfont("DejaVu Sans"),
        prefer_horizontal=1.0,
        relative_scaling=0.6,
        min_font_size=14,
        max_words=80,
        margin=6,
        random_state=seed,
    ).generate_from_frequencies(dict(words))
    return np.asarray(drawn.to_array())


def word_color(share: float, theme: Theme) -> tuple[int, int, int]:
    """The colour of a word with this share of the strongest one's weight; always 4.5 : 1 or more on the paper."""
    return shade(0.75 + 0.25 * min(share, 1.0), False, theme)
