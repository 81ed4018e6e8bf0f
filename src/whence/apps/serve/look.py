"""The page's colours: a style sheet made from the scale that every renderer shares."""

from __future__ import annotations

from whence.render.html import both, scale_rules
from whence.render.scale import DARK, LIGHT, mix

NAMES = ("paper", "ink", "muted", "line")


def scale_css() -> str:
    """Variables of both themes, and the rules of every shade (`f7` speaks for, `a7` against, `w7` is a weight)."""
    colors = {name: (getattr(LIGHT, name), getattr(DARK, name)) for name in NAMES}
    colors["edge"] = (mix(LIGHT.line, LIGHT.ink, 0.45), mix(DARK.line, DARK.ink, 0.35))  # of controls: 3 : 1 on paper
    variables = "".join(f"--{name}:{both(light, dark)};" for name, (light, dark) in colors.items())
    return f":root{{{variables}}}\n{scale_rules()}\n"
