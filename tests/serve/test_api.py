"""The routes answer what the Python interface answers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import whence
from tests.serve.conftest import TEXT, serving, tiny

pytestmark = pytest.mark.filterwarnings("ignore:.*were longer than")

QA = {"question": "Who wrote the book?", "context": "The book was written by Anna Smith in 1932."}
MASKED = "the keys to the cabinet [MASK] on the table ."


def post(client: TestClient, path: str, **body: Any) -> Any:
    reply = client.post(f"/api/{path}", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("method", ["attnlrp", "gae", "attcat", "occlusion"])
def test_explain_is_to_dict(client: TestClient, embedded: dict[str, whence.Explainer], method: str) -> None:
    found = post(client, "explain", text=TEXT, method=method, target="negative")
    e = whence.Explanation.from_dict(found)
    wanted = embedded["sentiment"].explain(TEXT, method, "negative")
    close(e.scores, wanted.scores)
    assert (e.tokens, e.target, e.method, e.model) == (wanted.tokens, "negative", method, "sentiment")
    assert (e.layers is None) == (wanted.layers is None)
    assert [(w["text"], w["start"], w["end"], w["segment"]) for w in found["words"]] == [
        (w.text, w.start, w.end, w.segment) for w in wanted.words()
    ]
    assert [w["word"] for w in found["words"]] == sorted({w for w in e.word_ids if w is not None})
    close([w["score"] for w in found["words"]], [w.score for w in wanted.words()])


def test_the_default_method_and_model(client: TestClient) -> None:
    found = post(client, "explain", text=TEXT)
    assert (found["method"], found["model"], found["target"]) == ("attnlrp", "sentiment", "positive")


def test_options_targets_and_pairs(client: TestClient, embedded: dict[str, whence.Explainer]) -> None:
    found = post(client, "explain", text=TEXT, method="attcat", options={"variant": "paper"}, target=0)
    assert (found["options"], found["target"]) == ({"variant": "paper"}, "negative")
    pair = post(client, "explain", text="A man sleeps.", pair="Nobody sleeps.", model="nli", contrast="neutral")
    wanted = embedded["nli"].explain(("A man sleeps.", "Nobody sleeps."), contrast="neutral")
    assert (pair["pair"], pair["contrast"], pair["target"]) == ("Nobody sleeps.", "neutral", wanted.target)
    close(pair["scores"], wanted.scores)


def test_other_tasks(client: TestClient) -> None:
    assert post(client, "explain", **QA, model="qa")["target"] == "Anna Smith"
    found = post(client, "explain", text=MASKED, model="masked-lm", contrast=["are", "is"])
    assert (found["target"], found["contrast"]) == ("are", "is")
    found = post(client, "explain", text="Once upon a", continuation=" time", model="causal-lm")
    assert (found["target"], found["pair"]) == (" time", " time")


def test_compare_shares_one_trace(client: TestClient, embedded: dict[str, whence.Explainer]) -> None:
    names = ["gae", "attcat", "rollout", "gradient", "alti", "attnlrp"]
    found = post(client, "compare", text=TEXT, methods=names)["explanations"]
    wanted = embedded["sentiment"].explain(TEXT, names)
    assert list(found) == names
    for name, e in found.items():
        close(e["scores"], wanted[name].scores)


def test_predict(client: TestClient, embedded: dict[str, whence.Explainer]) -> None:
    found, wanted = post(client, "predict", text=TEXT), embedded["sentiment"].predict(TEXT)
    assert (found["label"], found["index"], found["truncated"]) == (wanted.label, wanted.index, False)
    assert [label for label, _ in found["probabilities"]] == ["negative", "positive"]
    close([p for _, p in found["probabilities"]], wanted.probabilities)
    assert [TEXT[w["start"] : w["end"]] for w in found["words"]] == [w["text"] for w in found["words"]]
    assert len(post(client, "predict", text=MASKED, model="masked-lm")["probabilities"]) == 20
    assert post(client, "predict", **QA, model="qa")["label"] == "Anna Smith"
    assert post(client, "predict", text="good " * 1000)["truncated"] is True


def test_hidden_words_are_masks(client: TestClient, embedded: dict[str, whence.Explainer]) -> None:
    words = post(client, "predict", text=TEXT)["words"]
    number = next(w["word"] for w in words if w["text"] == "charming")
    found = post(client, "predict", text=TEXT, hidden=[number])
    assert (found["hidden"], found["hidden_by"], found["words"]) == ([number], "[MASK]", words)
    masked = embedded["sentiment"].predict(TEXT.replace("charming", "[MASK]"))
    close([p for _, p in found["probabilities"]], masked.probabilities)
    assert (found["target"], found["target_probability"]) == ("positive", pytest.approx(masked.probabilities[1]))


def test_the_target_stays_when_hidden_words_change_the_answer(client: TestClient) -> None:
    whole = post(client, "predict", **QA, model="qa")
    numbers = [w["word"] for w in whole["words"] if w["text"] in ("Anna", "Smith")]
    found = post(client, "predict", **QA, model="qa", hidden=numbers)
    assert found["target"] == "Anna Smith"
    assert found["target_probability"] < whole["target_probability"]
    prompt = post(client, "predict", text="Once upon a time there", model="causal-lm")
    found = post(client, "predict", text="Once upon a time there", model="causal-lm", hidden=[0, 1, 2, 3, 4])
    assert found["target"] == prompt["label"]
    assert (found["hidden_by"], len(found["words"])) == ("<|endoftext|>", 5)
    assert found["target_probability"] < prompt["target_probability"]


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_words_are_deleted_where_nothing_can_stand_in(architecture: str) -> None:
    explainer = tiny(architecture)
    assert explainer.tokenizer is not None
    for name in ("mask_token", "unk_token", "pad_token"):
        setattr(explainer.tokenizer, name, None)
    for name in ("pad_token_id", "unk_token_id", "mask_token_id"):
        setattr(explainer.model.config, name, None)
    with serving({"m": explainer}) as client:
        found = post(client, "predict", text="good film fun", hidden=[1])
        assert found["hidden_by"].startswith("nothing")
        close([p for _, p in found["probabilities"]], explainer.predict("good fun").probabilities)


@pytest.mark.parametrize(
    "given",
    [
        {"text": TEXT},
        {**QA, "model": "qa"},
        {"text": MASKED, "model": "masked-lm", "contrast": ["are", "is"]},
        {"text": "Once upon a", "continuation": " time", "model": "causal-lm"},
    ],
)
def test_the_hiding_game_is_what_hiding_does(client: TestClient, given: dict[str, Any]) -> None:
    found = post(client, "evaluate-text", **given, method="attcat")
    e = post(client, "explain", **given, method="attcat")
    scores = {w["word"]: w["score"] for w in e["words"]}
    order = found["order"]
    assert [scores[n] for n in order] == sorted((scores[n] for n in order), reverse=True)
    assert found["fractions"] == [k / 10 for k in range(11)]
    assert found["counts"][0] == 0
    assert found["counts"][-1] == len(order)
    for step in (0, 3, 10):
        gone = order[: found["counts"][step]]
        hidden = post(client, "predict", **given, hidden=gone)
        assert hidden["target_probability"] == pytest.approx(found["method"]["hiding"][step], abs=1e-5)
        shown = post(client, "predict", **given, hidden=[n for n in order if n not in gone])
        assert shown["target_probability"] == pytest.approx(found["method"]["revealing"][step], abs=1e-5)
    random = found["random"]
    for name, low, high in (("hiding", "low", "high"), ("revealing", "revealing_low", "revealing_high")):
        assert all(a <= b + 1e-12 for a, b in zip(random[low], random[high], strict=True))
        curve = found["method"][name]
        area = sum((a + b) / 20 for a, b in zip(curve[1:], curve[:-1], strict=True))
        assert found["method"][f"{name}_auc"] == pytest.approx(area)
    assert random["draws"] == 39
    for game in ("hiding", "revealing"):
        p, verdict = found["method"][f"{game}_p"], found["method"][f"{game}_verdict"]
        assert (p <= 0.05) == (verdict == "better than chance")
        assert p * 40 == pytest.approx(round(p * 40))


def test_a_random_order_is_not_endorsed(client: TestClient) -> None:
    """Half of all random orders are better than the mean of others, and the page used to say so."""
    games = [
        post(client, "evaluate-text", text=TEXT, method="random", options={"seed": seed})["method"] for seed in range(6)
    ]
    verdicts = [answer[f"{game}_verdict"] for answer in games for game in ("hiding", "revealing")]
    assert verdicts.count("better than chance") <= 2
    good = post(client, "evaluate-text", text=TEXT, method="attnlrp")["method"]
    assert good["hiding_verdict"] == "better than chance"


def test_a_regression_has_no_game() -> None:
    explainer = tiny()
    explainer.model.config.problem_type = "regression"
    model = whence.load(explainer.model, explainer.tokenizer)
    with serving({"m": model}) as client:
        assert client.post("/api/evaluate-text", json={"text": "good film"}).json()["kind"] == "not-supported"
        assert post(client, "predict", text="good film")["probability"] is None


@pytest.mark.parametrize(
    ("format", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("html", b"<!doctype html>"), ("json", b"{")]
)
@pytest.mark.parametrize("methods", [["attcat"], ["attcat", "gae"]])
def test_figures(client: TestClient, format: str, begins: bytes, methods: list[str]) -> None:
    reply = client.post("/api/figure", json={"text": TEXT, "methods": methods, "format": format, "theme": "dark"})
    assert reply.status_code == 200
    assert reply.content.startswith(begins)
    name = "-".join(["whence", *methods])
    assert reply.headers["content-disposition"] == f'attachment; filename="{name}.{format}"'
    if format == "json":
        data = json.loads(reply.content)
        assert (set(data) == set(methods)) if len(methods) > 1 else data["method"] == "attcat"


def test_kinds_of_figure(client: TestClient) -> None:
    sizes = {
        kind: len(
            client.post(
                "/api/figure", json={"text": TEXT, "methods": ["attcat"], "format": "svg", "kind": kind}
            ).content
        )
        for kind in ("text", "bars", "layers")
    }
    assert len(set(sizes.values())) == 3
    reply = client.post("/api/figure", json={"text": TEXT, "methods": ["simple"], "format": "svg", "kind": "layers"})
    assert (reply.status_code, "no layers" in reply.json()["error"]) == (422, True)


def test_models_and_methods(client: TestClient, embedded: dict[str, whence.Explainer]) -> None:
    models = client.get("/api/models").json()
    assert [m["name"] for m in models] == list(embedded)
    first = models[0]
    assert (first["labels"], first["default_method"]) == (["negative", "positive"], "attnlrp")
    assert (first["mask_token"], first["max_length"]) == ("[MASK]", 512)
    methods = {m["name"]: m for m in client.get("/api/methods").json()}
    assert list(methods) == [m["name"] for m in whence.methods()]
    assert methods["gae"]["models"] == list(embedded)
    assert methods["attcat"]["signed"]
    assert not methods["rollout"]["signed"]
    assert methods["attcat"]["layers"]
    assert not methods["occlusion"]["layers"]
    assert methods["attcat"]["options"] == {"variant": "released"}
    assert "lm_head" not in methods["decoded-grad-cam"]["options"]
    assert client.get("/healthz").json() == {"status": "ok", "models": list(embedded), "version": whence.__version__}


def test_examples_can_be_asked(client: TestClient) -> None:
    for model in client.get("/api/models").json():
        assert len(model["examples"]) == 6
        assert len({json.dumps(one) for one in model["examples"]}) == 6
        for one in model["examples"][:2]:
            post(client, "explain", **one, model=model["name"], method="gradient-x-input")


def test_methods_that_a_model_cannot_do_are_not_offered() -> None:
    with serving({"m": tiny("mpnet")}) as client:
        (model,) = client.get("/api/models").json()
        assert model["default_method"] == "gae"
        assert "attnlrp" not in model["methods"]
        assert "attcat" in model["methods"]
        reply = client.post("/api/explain", json={"text": "good film", "method": "attnlrp"})
        assert (reply.status_code, reply.json()["kind"]) == (422, "not-supported")
