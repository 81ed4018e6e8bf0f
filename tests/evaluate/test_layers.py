"""`layer="auto"` of decoded saliency is the layer that plays the revealing and the hiding game best on a sample."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import whence
from tests.evaluate.test_report import MODEL, texts
from whence.apps.cli import app
from whence.errors import InputError, NotSupported
from whence.evaluate import Recipe
from whence.evaluate.layers import HIDING, REVEALING, choose_layers, layer_scores, methods_with_auto_layer
from whence.models import zoo

HEAD = nn.Linear(48, 120)  # from the tiny model's features to its vocabulary
TEXT = texts(1)[0]["text"]


def test_the_sample_decides() -> None:
    nn.init.normal_(HEAD.weight, generator=torch.Generator().manual_seed(0))
    sample = [row["text"] for row in texts(20)]
    ex = whence.load(MODEL, lm_head=HEAD, sample=sample)
    candidates = [f"{name}(layer={layer})" for name in methods_with_auto_layer() for layer in (1, 2, 3)]
    report = whence.evaluate(ex, sample, candidates, [REVEALING, HIDING], progress=False)
    scores = {c: report.figures[REVEALING][c].mean - report.figures[HIDING][c].mean for c in candidates}
    found = layer_scores(ex, sample, progress=False)
    for name in methods_with_auto_layer():
        assert found[name] == {layer: pytest.approx(scores[f"{name}(layer={layer})"], abs=1e-6) for layer in (1, 2, 3)}
        best = max((1, 2, 3), key=lambda layer: scores[f"{name}(layer={layer})"])
        assert ex.explain(TEXT, name).options["layer"] == best
        assert ex.explain(TEXT, name, layer="auto").options["layer"] == best
        assert ex.explain(TEXT, name, layer="all").options["scores_of_layer"] == best
        assert ex.explain(TEXT, name, layer=1).options["layer"] == 1
    assert choose_layers(ex, sample, limit=20, progress=False) == {
        n: o["auto_layer"] for n, o in ex.defaults.tuned.items()
    }


def test_without_a_sample_the_papers_depth_and_with_a_recipe_the_recipes_layer() -> None:
    assert whence.load(MODEL, lm_head=HEAD).explain(TEXT, "decoded-grad-cam").options["layer"] == 2  # round(0.55 · 3)
    recipe = Recipe("gae", {}, "m", tuned={"decoded-grad-cam": {"layer": 3}})
    ex = whence.load(MODEL, lm_head=HEAD, sample=[TEXT], recipe=recipe)
    assert ex.explain(TEXT, "decoded-grad-cam").options["layer"] == 3
    assert "auto_layer" in ex.defaults.tuned["decoded-simple"]


@pytest.mark.parametrize("name", ["sentiment", "topics", "nli"])
def test_embedded_classifiers_know_their_layers(name: str) -> None:
    ex, layers = whence.load(name), zoo.layers(name)
    assert set(layers) == set(methods_with_auto_layer()) == {"decoded-grad-cam", "decoded-simple"}
    text = ("A man sleeps.", "He rests.") if name == "nli" else "a charming film"
    found = ex.explain(text, methods_with_auto_layer())
    assert {method: e.options["layer"] for method, e in found.items()} == layers


def test_only_classifiers_play_games() -> None:
    with pytest.raises(NotSupported, match="games that classifiers play; causal-lm is a causal-lm model"):
        whence.load("causal-lm", sample=["a text"])
    with pytest.raises(NotSupported, match="no language-model head"):
        whence.load(MODEL, sample=[TEXT])
    with pytest.raises(InputError, match="give 1 to 3"):
        whence.load(MODEL, lm_head=HEAD).explain(TEXT, "decoded-grad-cam", auto_layer=9)


def test_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "sample.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in zoo.samples("topics")[:2]), encoding="utf-8")
    words = ["explain", "markets fell", "--model", "topics", "--method", "decoded-grad-cam", "--layer-texts", str(file)]
    result = CliRunner().invoke(app, [*words, "--format", "json"])
    chosen = choose_layers(whence.load("topics"), file, ["decoded-grad-cam"], progress=False)
    assert json.loads(result.stdout)["options"]["layer"] == chosen["decoded-grad-cam"]
