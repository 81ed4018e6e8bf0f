"""Tuning finds what is planted, recipes are followed, and checks tell sane methods from blind ones."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch

import whence
from tests.evaluate.oracle import explainer, texts
from tests.evaluate.test_report import MODEL
from tests.evaluate.test_report import texts as words
from whence import registry
from whence.errors import InputError, UnknownName
from whence.evaluate import Recipe, check, tune
from whence.evaluate.recipe import read_recipe


def test_tune_finds_the_truth_among_noise(tmp_path: Path) -> None:
    ex, weights = explainer()

    @whence.method("oracle")
    def oracle(trace: whence.Trace, *, noise: float = 2.0) -> torch.Tensor:
        values = torch.from_numpy(weights)[trace.input_ids]
        signs = torch.where(values.sum(-1, keepdim=True) > 0, 1.0, -1.0)
        generator = torch.Generator().manual_seed(0)
        return values * signs + noise * torch.randn(values.shape, generator=generator)

    try:
        candidates = [f"oracle(noise={n})" for n in (3.0, 1.0, 0.5, 0.0, 2.0, 4.0, 5.0, 6.0)]
        tuned = tune(ex, texts(64), candidates, progress=False)
        assert tuned.recipe.title == "oracle(noise=0.0)"
        assert tuned.recipe.tuned == {"oracle": {"noise": 0.0}}
        assert tuned.recipe.sure is not None
        assert tuned.recipe.sure > 0.9
        used = {row["candidate"]: row["texts"] for row in tuned.rows}
        assert used["oracle(noise=0.0)"] == 64
        assert used["oracle(noise=6.0)"] < 64  # stopped early
        assert "oracle(noise=0.0): best of 8 candidates" in tuned.sentence()
        tuned.recipe.save(tmp_path / "recipe.json")
        assert read_recipe(tmp_path / "recipe.json").options == {"noise": 0.0}
    finally:
        del registry.METHODS["oracle"]


def test_default_candidates_cover_layers() -> None:
    tuned = tune(whence.load(MODEL), words(8), progress=False, limit=8)
    tried = {row["candidate"] for row in tuned.rows}
    assert {"grad-cam(layer=1)", "grad-cam(layer=3)", "attcat(variant=paper)", "gae"} <= tried
    assert not {"random", "attention-flow", "shapley"} & tried
    assert tuned.recipe.tuned["grad-cam"]["layer"] in (1, 2, 3)


def test_recipes_are_followed(tmp_path: Path) -> None:
    file = tmp_path / "recipe.json"
    Recipe("cat", {"layer": 2}, "m", tuned={"grad-cam": {"layer": 3}}).save(file)
    ex = whence.load(MODEL, recipe=file)
    text = words(1)[0]["text"]
    assert (ex.explain(text).method, ex.explain(text).options["layer"]) == ("cat", 2)
    assert ex.explain(text, layer=1).options["layer"] == 1
    assert ex.explain(text, "grad-cam").options["layer"] == 3
    assert ex.explain(text, "grad-cam", layer="auto").options["layer"] == 3
    assert ex.explain(text, "grad-cam", layer=0).options["layer"] == 0
    assert whence.load(MODEL).explain(text).method != "cat"


def test_bad_recipes(tmp_path: Path) -> None:
    file = tmp_path / "recipe.json"
    with pytest.raises(InputError, match="cannot be read"):
        whence.load(MODEL, recipe=file)
    for content, error, match in (
        ("oops", InputError, "is not JSON"),
        ("[]", InputError, "must be a JSON object"),
        ("{}", InputError, "names a 'method'"),
        ('{"method": "atcat"}', UnknownName, "did you mean 'attcat'"),
        ('{"method": "cat", "options": {"layr": 1}}', UnknownName, "did you mean 'layer'"),
    ):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(error, match=match):
            whence.load(MODEL, recipe=file)


def test_check_passes_a_sane_method_and_leaves_the_model_alone() -> None:
    ex = whence.load(MODEL)
    before = copy.deepcopy(ex.model.state_dict())
    verdict = check(ex, "alti", [row["text"] for row in words(6)])
    assert len(verdict.findings) == 5
    assert verdict.findings[0].verdict == "passes"
    assert verdict.findings[2].verdict == "passes"  # alti sums to 1
    assert verdict.findings[1].figures["head"] > 0.99  # alti knows nothing of the classifier
    assert list(verdict.findings[1].figures) == ["head", "layers 3–3", "layers 2–3", "layers 1–3", "everything"]
    assert all(torch.equal(before[k], v) for k, v in ex.model.state_dict().items())
    assert "alti on" in str(verdict)
    json.dumps(verdict.to_dict())


def test_check_fails_a_method_that_does_not_look_at_the_model() -> None:
    ex = whence.load(MODEL)
    verdict = check(ex, "random", [row["text"] for row in words(6)])
    assert verdict.findings[1].verdict == "fails"
    assert verdict.findings[1].figures["everything"] == pytest.approx(1.0)
    assert not verdict.passes


def test_check_needs_texts() -> None:
    with pytest.raises(InputError, match="only embedded models come with samples"):
        check(whence.load(MODEL), "alti")
    with pytest.raises(UnknownName):
        check(whence.load(MODEL), "alti", ["w105"], norms=1)


@pytest.mark.parametrize(
    ("model", "texts_of"),
    [
        ("qa", [{"question": "Who wrote it?", "context": "It was written by Anna Smith in Rome."}] * 2),
        ("masked-lm", ["the keys to the cabinet [MASK] on the table .", "the [MASK] was [MASK] ."]),
    ],
)
def test_check_asks_a_destroyed_model_what_the_real_one_was_asked(
    model: str, texts_of: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    ex = whence.load(model)
    asked: list[list[str]] = []
    explain = whence.Explainer.explain

    def noting(self: whence.Explainer, inputs: object, *given: object, **named: object) -> object:
        found = explain(self, inputs, *given, **named)
        asked.append([e.target for e in found])
        return found

    monkeypatch.setattr(whence.Explainer, "explain", noting)
    verdict = check(ex, "gradient", texts_of)
    assert verdict.texts == 2
    told = 1 if model == "masked-lm" else 2  # an Explanation does not say which words stand at several masks
    assert {tuple(targets[:told]) for targets in asked if len(targets) >= told} == {tuple(asked[0][:told])}


@pytest.mark.parametrize("call", ["evaluate", "tune", "check"])
def test_seeds_are_whole_numbers(call: str) -> None:
    calls = {
        "evaluate": lambda: whence.evaluate(whence.load(MODEL), words(2), ["cat"], ["aopc"], seed=-1),
        "tune": lambda: tune(whence.load(MODEL), words(2), ["cat"], seed=-1),
        "check": lambda: check(whence.load(MODEL), "cat", words(2), seed=-1),
    }
    with pytest.raises(InputError, match="seed=-1"):
        calls[call]()
