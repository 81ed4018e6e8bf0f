"""The shared scale: ink that reads, greys that keep the order, one normalisation."""

from __future__ import annotations

import numpy as np
import pytest

from tests.render.common import make
from whence.errors import UnknownName
from whence.render import scale
from whence.render.clouds import word_color

ALL = [scale.LIGHT, scale.DARK, scale.TERMINAL]
VALUES = np.linspace(-1, 1, 201)


@pytest.mark.parametrize("theme", ALL, ids=lambda t: t.name)
@pytest.mark.parametrize("signed", [True, False])
def test_ink_reads_on_every_value(theme: scale.Theme, signed: bool) -> None:
    for s in VALUES if signed else VALUES[100:]:
        ground = scale.shade(float(s), signed, theme)
        ink = (255, 255, 255) if theme is scale.TERMINAL else scale.ink_on(ground)
        assert scale.contrast(ink, ground) >= 4.5


@pytest.mark.parametrize("theme", [scale.LIGHT, scale.DARK], ids=lambda t: t.name)
def test_notes_and_words_read_on_paper(theme: scale.Theme) -> None:
    assert scale.contrast(theme.ink, theme.paper) >= 7
    assert scale.contrast(theme.muted, theme.paper) >= 4.5
    assert scale.contrast(theme.against[1], theme.paper) >= 4.5  # "✗ labelled …" of the report
    for share in (0.0, 0.5, 1.0):
        assert scale.contrast(word_color(share, theme), theme.paper) >= 4.5


@pytest.mark.parametrize("theme", ALL, ids=lambda t: t.name)
def test_grey_print_keeps_the_order(theme: scale.Theme) -> None:
    """Stronger is always further from the paper, also without hue; signs are told apart by the underline."""
    for ramp in (VALUES[100:], -VALUES[100:]):
        for signed in (True, False):
            light = [scale.luminance(scale.shade(float(s), signed, theme)) for s in ramp]
            steps = np.diff(light)
            assert (steps <= 1e-9).all() or (steps >= -1e-9).all()
            assert abs(light[-1] - light[0]) > 0.04


def test_colour_blind_eyes_tell_for_from_against() -> None:
    """Deuteranopia (Viénot 1999): the ends of the diverging scale stay far apart."""
    matrix = np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]])
    for theme in (scale.LIGHT, scale.DARK):
        blue, red = (matrix @ (np.array(c) / 255) ** 2.2 for c in (theme.speaks_for[1], theme.against[1]))
        assert np.abs(blue - red).max() > 0.3


def test_strength_is_the_share_of_the_strongest_own_token() -> None:
    assert scale.strengths([100.0, 1.0, -4.0], [True, False, False]).tolist() == [0, 0.25, -1]
    assert scale.strengths([0.0, 0.0], [False, False]).tolist() == [0, 0]


def test_which_methods_have_signs() -> None:
    assert scale.is_signed(make([1.0, 2.0], ["a", "b"], method="attcat"))
    assert scale.is_signed(make([1.0, -2.0], ["a", "b"], method="a-plug-in"))
    assert not scale.is_signed(make([1.0, 2.0], ["a", "b"], method="alti"))
    assert not scale.is_signed(make([1.0, 2.0], ["a", "b"], method="gradient-x-input", options={"aggregate": "l2"}))
    special = np.array([True, False])
    assert not scale.is_signed(make([-1.0, 2.0], ["[CLS]", "b"], method="alti", special=special))


def test_unknown_theme() -> None:
    with pytest.raises(UnknownName, match="did you mean 'dark'"):
        scale.theme_named("drak")
