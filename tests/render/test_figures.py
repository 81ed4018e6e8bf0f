"""Figures: what they show, in which colours, nothing clipped, nothing overlapping, on light and dark paper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

import whence
from tests.render.common import HOSTILE, check_layout, make, sentence, texts_of
from whence.render import canvas
from whence.render.clouds import clouds_figure
from whence.render.curves import curves_figure
from whence.render.heads import mask_figure
from whence.render.highlight import text_figure
from whence.render.matrices import generated_figure
from whence.render.scale import LIGHT, THEMES, css
from whence.render.tables import table_figure
from whence.render.violins import violins_figure

RNG = np.random.default_rng(0)


def layered(words: int, method: str = "attcat") -> whence.Explanation:
    e = sentence(words, method)
    layers = np.abs(RNG.normal(size=(6, words))) if method != "attcat" else RNG.normal(size=(6, words))
    return whence.Explanation.from_dict({**e.to_dict(), "layers": layers.tolist()})


def mixed(words: int) -> whence.Explanation:
    e = sentence(words, "alti")
    rows = RNG.random((3, words, words))
    rows /= rows.sum(-1, keepdims=True)
    return whence.Explanation.from_dict({**e.to_dict(), "matrices": {"C": rows.tolist(), "R": rows.tolist()}})


CURVES: Any = {
    name: {
        "x": range(0, 101, 10),
        "mean": np.linspace(1, i / 9, 11),
        "low": np.linspace(0.9, 0, 11),
        "high": np.ones(11),
    }
    for i, name in enumerate(
        ["attnlrp", "decoded-grad-cam", "alti", "rollout", "gae", "a-method-with-a-long-name", "x", "y", "z"]
    )
}
METRICS = {
    m: {"aopc": 0.1 * i, "comprehensiveness": -0.2 * i, "sufficiency": None if i == 1 else 0.3}
    for i, m in enumerate(CURVES)
}
FIGURES: dict[str, Callable[[str], Any]] = {
    "bars": lambda t: sentence(12).figure("bars", theme=t),
    "bars of weights": lambda t: sentence(90, "alti").figure("bars", theme=t),
    "layers": lambda t: layered(9).figure(rows={"rollout": sentence(9, "rollout")}, theme=t),
    "layers of a long text": lambda t: layered(70, "alti").figure(theme=t, width=3.3),
    "matrix": lambda t: mixed(12).figure("matrix", theme=t),
    "matrices": lambda t: mixed(12).figure("matrices", name="C", theme=t),
    "matrix of a long text": lambda t: mixed(45).figure("matrix", theme=t),
    "text": lambda t: sentence(60).figure("text", theme=t),
    "compare": lambda t: text_figure({"attcat": sentence(30), "alti": sentence(30, "alti")}, delta=True, theme=t),
    "curves": lambda t: curves_figure(
        CURVES, title="A long title that goes on and on until it must be wrapped " * 2, theme=t
    ),
    "table": lambda t: table_figure(METRICS, {"comprehensiveness": False}, "sentiment", theme=t),
    "violins": lambda t: violins_figure({m: RNG.random(30) for m in CURVES}, "Jaccard-25%", "seeds", theme=t),
    "generated": lambda t: generated_figure(RNG.normal(size=(3, 8)), ["a", "b", "c"], list("abcdefgh"), "x", theme=t),
    "heads": lambda t: mask_figure(
        {"syntactic": np.eye(6, 12), "positional": np.eye(6, 12) * 2},
        {"syntactic": {(0, 0): "nsubj advmod"}},
        "x",
        theme=t,
    ),
    "clouds": lambda t: clouds_figure({"World": {"peace": 2.0, "army": 1.0}, "Sports": {"coach": 1.0}}, theme=t),
}


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("theme", THEMES)
def test_nothing_is_clipped_and_no_labels_overlap(name: str, theme: str) -> None:
    figure = FIGURES[name](theme)
    assert to_hex(figure.get_facecolor()) == css(THEMES[theme].paper)
    check_layout(figure)
    for text in texts_of(figure):
        assert "##" not in text
        assert "Ġ" not in text


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_vector_and_pixels(tmp_path: Path, suffix: str) -> None:
    e = make([1.0, -1.0], ["<script>", "$x$"], "<script> $x$")
    for number, figure in enumerate([e.figure("text"), e.figure("bars")]):
        file = tmp_path / f"{number}.{suffix}"
        canvas.write(figure, file)
        data = file.read_bytes()
        assert data.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix])
        if suffix == "svg":
            assert b"<script" not in data
            assert b"&lt;script&gt;" in data
            assert b"$x$" in data, "dollars are text, not a formula"


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    figure = make([1.0], ["a"], "a").figure()
    with pytest.raises(whence.InputError, match=r"\.png, \.svg or \.pdf"):
        canvas.write(figure, tmp_path / "x.bmp")
    with pytest.raises(whence.WhenceError, match="could not be written"):
        canvas.write(figure, tmp_path / "no" / "x.png")


def test_hostile_and_foreign_texts_draw_without_warnings(tmp_path: Path, sentiment: whence.Explainer) -> None:
    """Warnings are errors in this suite: dollars, control characters and scripts without a font must not raise any."""
    for text in (HOSTILE, "فيلم جميل جدا", "映画 はとても 🎬 良い"):
        found = sentiment.explain(text, ["attcat", "alti"], matrices=True)
        for figure in (found["attcat"].figure("text"), found["attcat"].figure("bars"), found["attcat"].figure("layers"),
                       found["alti"].figure("matrix"), text_figure(found, delta=True)):  # fmt: skip
            canvas.write(figure, tmp_path / "x.png", dpi=50)


def test_right_to_left_lines_begin_at_the_right() -> None:
    e = make([1.0, 0.5], ["שלום", "עולם"], "שלום עולם")
    boxes = {t.get_text(): t.get_position()[0] for t in e.figure("text").axes[0].texts}
    assert boxes["שלום"] > boxes["עולם"]


def test_layers_show_words_sum_and_rows(sentiment: whence.Explainer) -> None:
    found = sentiment.explain("a charming, unwatchable journey", ["attcat", "rollout"])
    figure = found["attcat"].figure(rows={"rollout": found["rollout"]})
    words = [w.text for w in found["attcat"].words()]
    assert [t.get_text() for t in figure.axes[2].get_xticklabels()] == words
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == [*"654321"]
    assert {"sum", "rollout"} <= set(texts_of(figure))
    grid = figure.axes[0].images[0].get_array()
    assert grid.shape == (6, len(words))
    assert np.abs(grid).max() == pytest.approx(1)
    with pytest.raises(whence.InputError, match="another input"):
        found["attcat"].figure(rows={"x": sentiment.explain("other", "rollout")})


def test_heat_maps_use_the_shared_scale() -> None:
    e = make([1.0, -1.0], ["a", "b"], "a b", layers=np.array([[1.0, -1.0]]))
    image = e.figure("layers").axes[0].images[0]
    colors = [[round(255 * c) for c in color[:3]] for color in image.cmap(image.norm(np.array([1.0, -1.0, 0.0])))]
    assert colors == [list(LIGHT.speaks_for[1]), list(LIGHT.against[1]), list(LIGHT.paper)]
    assert "−" in texts_of(e.figure("layers")), "what speaks against carries a minus for grey prints"


def test_bars_are_coloured_and_hatched() -> None:
    figure = make([1.0, -1.0], ["yes", "no"], "yes no").figure("bars")
    good, bad = figure.axes[0].patches
    assert good.get_hatch() is None
    assert bad.get_hatch()
    assert good.get_width() == 1.0


def test_long_texts_go_on_below() -> None:
    e = layered(70)
    figure = e.figure(theme="light")
    assert len(figure.axes) > 4
    shown = [t.get_text() for axes in figure.axes for t in axes.get_xticklabels() if t.get_text()]
    assert shown == list(e.tokens)
    wrapped = sentence(60).figure("text")
    assert len({t.get_position()[1] for t in wrapped.axes[0].texts}) > 5


def test_matrices_are_by_word_and_rows_sum_to_one(sentiment: whence.Explainer) -> None:
    from whence.render.matrices import by_unit
    from whence.render.spans import units

    e = sentiment.explain("an unwatchable film", "alti", matrices=True)
    columns = units(e, special=True)
    assert [u.text for u in columns] == ["[CLS]", "an", "unwatchable", "film", "[SEP]"]
    np.testing.assert_allclose(by_unit(e.matrices["R"][-1], columns).sum(1), 1, atol=1e-5)
    figure = e.figure("matrix")
    assert "unwatchable" in texts_of(figure)
    assert "##" in "".join(texts_of(e.figure("matrix", pieces=True)))
    with pytest.raises(whence.InputError, match="matrices=True"):
        sentiment.explain("a film", "alti").figure("matrix")
    with pytest.raises(whence.UnknownName, match="unknown matrix"):
        e.figure("matrix", name="Q")
    with pytest.raises(whence.InputError, match="layers 1 to 6"):
        e.figure("matrix", layer=7)


def test_table_marks_the_best_of_each_column() -> None:
    figure = table_figure({"a": {"up": 1.0, "down": 1.0}, "b": {"up": 2.0, "down": 3.0}}, {"down": False})
    bold = {t.get_text() for t in figure.axes[0].texts if t.get_weight() == "bold"}
    assert [t.get_text() for t in figure.axes[0].get_xticklabels()] == ["up ↑", "down ↓"]
    assert bold == {"2", "1"}
    with pytest.raises(whence.InputError, match="empty table"):
        table_figure({})


def test_curves_have_intervals_and_differ_without_colour() -> None:
    figure = curves_figure(CURVES)
    lines = figure.axes[0].lines
    assert len(figure.axes[0].collections) == len(lines) == len(CURVES)
    looks = {(line.get_linestyle(), str(line._dash_pattern), line.get_marker()) for line in lines}
    assert len(looks) == len(lines)
    with pytest.raises(whence.InputError, match="no curve"):
        curves_figure({})


def test_violins_show_medians() -> None:
    figure = violins_figure({"one": [0.1, 0.2, 0.6], "same": [0.5, 0.5]}, "similarity")
    dots = [line.get_ydata()[0] for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert dots == [0.2, 0.5]
    with pytest.raises(whence.InputError, match="at least one number"):
        violins_figure({"one": []})


def test_generated_rows_are_normalised_each() -> None:
    figure = generated_figure([[1.0, np.nan], [4.0, 2.0]], ["x", "y"], ["p", "x"])
    grid = np.ma.filled(figure.axes[0].images[0].get_array(), np.nan)
    assert grid[1].tolist() == [1.0, 0.5]
    assert np.isnan(grid[0, 1])
    with pytest.raises(whence.InputError, match="do not fit"):
        generated_figure([[1.0]], ["x"], ["p", "q"])


def test_generation_shows_words_and_what_was_written() -> None:
    written = whence.load("causal-lm").generate("Neither the sheriff could", max_new_tokens=3)
    figure = written.figure()
    columns = [t.get_text() for t in figure.axes[0].get_xticklabels()]
    assert columns[:4] == ["Neither", "the", "sheriff", "could"]
    assert len(figure.axes[0].get_yticklabels()) == 3
    grid = np.ma.filled(figure.axes[0].images[0].get_array(), np.nan)
    assert np.isnan(grid[0, 4:]).all(), "what was not yet written has no cell"
    assert not np.isnan(grid[:, :4]).any()
    check_layout(figure)


def test_clouds_need_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "wordcloud", None)
    with pytest.raises(whence.WhenceError, match=r"pip install 'whence\[clouds\]'"):
        clouds_figure({"a": {"word": 1.0}})


def test_figures_need_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(whence.WhenceError, match=r"pip install 'whence\[plots\]'"):
        make([1.0], ["a"], "a").figure()


def test_unknown_kind() -> None:
    with pytest.raises(whence.UnknownName, match="did you mean 'layers'"):
        make([1.0], ["a"], "a").figure("layer")


@pytest.mark.parametrize("kind", ["bars", "layers", "text", "matrix", "matrices"])
def test_options_of_figures_are_checked(kind: str) -> None:
    e = layered(6, "alti")
    with pytest.raises(whence.UnknownName, match=f"unknown option of the figure '{kind}' 'wide'; did you mean 'width'"):
        e.figure(kind, wide=3)
    for width in (0, -1, float("nan"), 1e9, "3", True):
        with pytest.raises(whence.InputError, match="give inches, 1 to 100"):
            e.figure(kind, width=width)


def test_rows_below_the_layers_are_explanations() -> None:
    with pytest.raises(whence.InputError, match="row 'x' is a int"):
        layered(6, "alti").figure("layers", rows={"x": 3})
