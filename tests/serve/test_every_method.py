"""Every method on every embedded model through every route answers as Python does."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import whence
from tests.serve.conftest import serving, tiny
from whence.apps.serve.survey import LITTLE
from whence.models import zoo
from whence.registry import all_methods, get_method

TEXTS: dict[str, dict[str, Any]] = {
    "sentiment": {"text": "a good film"},
    "topics": {"text": "the team won"},
    "nli": {"text": "a man eats", "pair": "he eats"},
    "qa": {"question": "who?", "context": "anna ran."},
    "masked-lm": {"text": "a [MASK] film"},
    "causal-lm": {"text": "once upon a"},
}


def as_input(body: dict[str, Any]) -> Any:
    """The same input as Python takes it."""
    if "question" in body:
        return body
    return (body["text"], body["pair"]) if "pair" in body else body["text"]


def little_work(method: str) -> dict[str, Any]:
    return {name: value for name, value in LITTLE.items() if name in get_method(method).defaults}


def answers(client: TestClient, body: dict[str, Any], method: str) -> dict[str, Any]:
    """What each route answers about one method: {route: (status, JSON)}."""
    several = list(dict.fromkeys([method, "gae"]))
    routes: dict[str, dict[str, Any]] = {
        "explain": {"method": method},
        "compare": {"methods": several},
        "evaluate-text": {"method": method},
        "figure": {"methods": [method], "format": "json"},
    }
    replies = {route: client.post(f"/api/{route}", json={**body, **more}) for route, more in routes.items()}
    return {route: (reply.status_code, json.loads(reply.content)) for route, reply in replies.items()}


@pytest.mark.parametrize("model", zoo.names())
def test_every_method_answers_through_every_route(
    client: TestClient, embedded: dict[str, whence.Explainer], model: str
) -> None:
    listed = {m["name"]: m["methods"] for m in client.get("/api/models").json()}[model]
    for method in [m.name for m in all_methods()]:
        options = little_work(method)
        body = {**TEXTS[model], "model": model, "options": options}
        replies = answers(client, body, method)
        if method not in listed:
            with pytest.raises(whence.WhenceError) as error:
                embedded[model].explain(as_input(TEXTS[model]), method, progress=False, **options)
            assert all(status == 422 and reply["error"] == str(error.value) for status, reply in replies.values())
            continue
        e = embedded[model].explain(as_input(TEXTS[model]), method, progress=False, **options)
        assert {reply[0] for reply in replies.values()} == {200}, (method, replies)
        for scores in (
            replies["explain"][1]["scores"],
            replies["compare"][1]["explanations"][method]["scores"],
            replies["figure"][1]["scores"],
        ):
            np.testing.assert_allclose(scores, e.scores, atol=1e-5, err_msg=method)
        of_word = {e.word_ids[word.tokens[0]]: word.score for word in e.words()}
        falling = [of_word[number] for number in replies["evaluate-text"][1]["order"]]
        np.testing.assert_allclose(falling, sorted(falling, reverse=True), atol=1e-5, err_msg=method)
    assert client.post("/api/predict", json={**TEXTS[model], "model": model}).status_code == 200


def test_a_method_that_needs_more_than_its_defaults_is_refused_in_a_sentence() -> None:
    """mask-lrp on a model that comes with no head mask."""
    with serving({"bert": tiny()}) as client:
        assert "mask-lrp" not in client.get("/api/models").json()[0]["methods"]
        for route, more in (("explain", {"method": "mask-lrp"}), ("compare", {"methods": ["mask-lrp", "gae"]})):
            reply = client.post(f"/api/{route}", json={"text": "good film", **more})
            assert (reply.status_code, reply.json()["kind"]) == (422, "input"), reply.text
            assert "this model comes with none" in reply.json()["error"]
