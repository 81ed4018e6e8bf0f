"""Whatever is asked, the answer is right or a sentence: never a 500."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from starlette.testclient import TestClient

from tests.serve.conftest import TEXT, listening, serving, tiny
from tests.test_bad_input import BAD_TEXTS, ODD_TEXTS
from whence.apps.serve import Settings
from whence.errors import InputError

# the suite asks the same requests every time; WHENCE_SCHEMATHESIS=N makes up N new ones for every operation
EXAMPLES = int(os.environ.get("WHENCE_SCHEMATHESIS", "10"))
DERANDOMIZE = "WHENCE_SCHEMATHESIS" not in os.environ
pytestmark = pytest.mark.filterwarnings("ignore:.*were longer than")


@pytest.fixture(scope="module")
def small() -> Iterator[TestClient]:
    with serving({"bert": tiny(), "gpt2": tiny("gpt2")}) as found:
        yield found


@pytest.mark.parametrize(
    ("body", "status", "kind", "says"),
    [
        ({}, 422, "invalid", "give"),
        ({"text": "a", "question": "b"}, 422, "invalid", "give"),
        ({"pair": "a"}, 422, "invalid", "give"),
        ({"text": TEXT, "extra": 1}, 422, "invalid", "unknown field 'extra'"),
        ({"text": 5}, 422, "invalid", "text: input should be a valid string"),
        ({"text": TEXT, "target": True}, 422, "invalid", "target"),
        ({"text": TEXT, "target": 1.0}, 422, "invalid", "target"),
        ({"text": TEXT, "target": "all"}, 422, "invalid", "one by one"),
        ({"text": TEXT, "target": "happy"}, 422, "unknown-name", "LABEL_0"),
        ({"text": TEXT, "target": 99}, 422, "input", "out of range"),
        ({"text": TEXT, "method": "atcat"}, 404, "unknown-name", "did you mean 'attcat'"),
        ({"text": TEXT, "model": "/etc/passwd"}, 404, "unknown-name", "Known: bert, gpt2"),
        ({"text": TEXT, "model": "bert-base-uncased"}, 404, "unknown-name", "Known: bert, gpt2"),
        ({"text": TEXT, "options": {"nothing": 1}}, 422, "unknown-name", "nothing"),
        ({"text": TEXT, "options": {"lm_head": "/etc/passwd"}}, 422, "input", "not taken from requests"),
        ({"text": TEXT, "options": {"head_mask": "x.json"}}, 422, "input", "not taken from requests"),
        ({"text": TEXT, "method": "alti", "options": {"matrices": True}}, 422, "input", "too large"),
        ({"text": TEXT, "method": "shapley", "options": {"permutations": 10**6}}, 422, "input", "200 at most"),
        ({"text": TEXT, "method": "shapley", "options": {"permutations": [1]}}, 422, "invalid", "options"),
        ({"text": TEXT, "method": "random", "options": {"seed": -1}}, 422, "input", "0 or more"),
        ({"text": TEXT, "continuation": "x"}, 422, "input", "causal"),
        ({"text": "x" * 20_001}, 413, "too-large", "20,000 at most"),
        ({"question": "a", "context": "b"}, 422, "input", "question"),
    ],
)
def test_mistakes_are_sentences(small: TestClient, body: Any, status: int, kind: str, says: str) -> None:
    reply = small.post("/api/explain", json=body)
    assert (reply.status_code, reply.json()["kind"]) == (status, kind), reply.text
    assert says in reply.json()["error"]
    assert reply.json()["error"].endswith((".", "?"))
    assert set(reply.json()) == {"error", "kind"}


@pytest.mark.parametrize(
    ("content", "status", "kind", "says"),
    [
        (b"", 422, "invalid", "the request is empty: send a JSON object"),
        (b"null", 422, "invalid", "the request must be a JSON object"),
        (b"[]", 422, "invalid", "the request must be a JSON object"),
        (b"{", 400, "json", "the request is not JSON that can be read"),
        (b"\xff\xfe", 400, "json", "it must be UTF-8"),
        (b'{"text": NaN}', 422, "invalid", "text: input should be a valid string"),
        (b'{"text": "a", "method": "lime", "options": {"alpha": NaN}}', 422, "invalid", "alpha"),
        (b'{"text": "a", "method": "lime", "options": {"alpha": 1e999}}', 422, "invalid", "alpha"),
        (b'{"text": "a", "target": ' + b"9" * 5000 + b"}", 400, "json", "numbers of a few digits"),
        (b"[" * 100_000, 400, "json", "nested a little"),
        (b'{"a":' * 20_000, 400, "json", "nested a little"),
    ],
)
def test_bodies_that_are_no_request(small: TestClient, content: bytes, status: int, kind: str, says: str) -> None:
    reply = small.post("/api/explain", content=content, headers={"content-type": "application/json"})
    assert (reply.status_code, reply.json()["kind"]) == (status, kind), reply.text
    assert says in reply.json()["error"]
    assert set(reply.json()) == {"error", "kind"}


@pytest.mark.parametrize(
    "headers", [{"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"}, {}]
)
def test_only_json_is_read(small: TestClient, headers: dict[str, str]) -> None:
    """curl -d says that it sends a form, other clients say nothing."""
    reply = small.post("/api/explain", content=json.dumps({"text": TEXT}).encode(), headers=headers)
    if headers or reply.status_code != 200:  # frameworks of before 2026 read what says nothing of itself as JSON
        said = "the request does not say that it is JSON: send the header content-type: application/json."
        assert (reply.status_code, reply.json()) == (422, {"error": said, "kind": "invalid"})


def test_a_question_for_a_model_that_answers_none(small: TestClient) -> None:
    reply = small.post("/api/predict", json={"question": "Who?", "context": "Bob."})
    said = 'bert is a sequence-classification model and answers no question: give "text", or "text" with "pair".'
    assert (reply.status_code, reply.json()) == (422, {"error": said, "kind": "input"})


def test_words_that_cannot_be_hidden(client: TestClient) -> None:
    reply = client.post("/api/predict", json={"text": "the [MASK] sat", "model": "masked-lm", "hidden": [0, 1, 2]})
    said = "there is no word 1 that could be hidden; this text's own words are 0, 2."
    assert (reply.status_code, reply.json()) == (422, {"error": said, "kind": "input"})
    reply = client.post("/api/predict", json={"text": "[MASK]", "model": "masked-lm", "hidden": [0]})
    assert reply.status_code == 422


@pytest.mark.parametrize("seconds", [float("nan"), 0, -1])
def test_a_time_that_is_none(seconds: float) -> None:
    with pytest.raises(InputError, match="give seconds, more than 0"):
        Settings(timeout=seconds)


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/api/explain", 405), ("GET", "/no/where", 404)])
def test_wrong_turns(small: TestClient, method: str, path: str, status: int) -> None:
    reply = small.request(method, path)
    assert reply.status_code == status
    said = "GET is not answered at this address: use POST." if status == 405 else "there is nothing at this address: "
    assert reply.json()["error"].startswith(said)
    assert set(reply.json()) == {"error", "kind"}


@pytest.mark.parametrize("path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/static/x%00"])
def test_files_outside_the_page_are_not_served(small: TestClient, path: str) -> None:
    assert small.get(path).status_code == 404


# the engine's bad and odd inputs (tests/test_bad_input.py), as far as JSON can say them
ODD = [
    *(text for text, _ in BAD_TEXTS),
    *ODD_TEXTS,
    "\u202eright to left\u202c",
    "<script>alert(1)</script> & \"quotes\" 'and' <b>tags</b>",
    "\ufeff\u200b\u2028\u2029",
    "İstanbul ŉ ǰ ΐ",
    "-" * 3000,
]


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize("model", ["bert", "gpt2"])
def test_odd_texts(small: TestClient, text: str, model: str) -> None:
    for path, more in (
        ("predict", {}),
        ("explain", {"method": "attcat"}),
        ("compare", {"methods": ["gae", "gradient"]}),
        ("evaluate-text", {"method": "gradient"}),
        ("figure", {"methods": ["attcat"], "format": "html"}),
    ):
        for texts in ({"text": text}, {"text": text, "pair": text}):
            body = json.dumps({**texts, **more, "model": model})
            reply = small.post(f"/api/{path}", content=body, headers={"content-type": "application/json"})
            assert reply.status_code in (200, 422), (path, reply.text)
            if reply.status_code == 422:
                assert set(reply.json()) == {"error", "kind"}


@pytest.mark.parametrize("text", ODD[4:])
@pytest.mark.filterwarnings("ignore:.*[Gg]lyph")
def test_odd_texts_are_drawn(small: TestClient, text: str) -> None:
    for format in ("svg", "png"):
        body = {"text": text[:200], "methods": ["attcat"], "format": format, "kind": "text"}
        assert small.post("/api/figure", json=body).status_code in (200, 422)


CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")


def test_the_schema_keeps_its_word() -> None:
    """Requests made up from the OpenAPI schema, right ones and wrong ones; `bench/serve.py` says how 2,000 are run."""
    schemathesis.checks.load_all_checks()
    checks = [schemathesis.checks.CHECKS.get_one(name) for name in CHECKS]
    asked = 0
    with listening({"bert": tiny()}, max_characters=2000) as url:
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
        for found in schema.get_all_operations():
            operation = found.ok()
            modes = list(schemathesis.GenerationMode) if operation.body else [schemathesis.GenerationMode.POSITIVE]
            for mode in modes:

                @settings(
                    max_examples=EXAMPLES,
                    deadline=None,
                    database=None,
                    derandomize=DERANDOMIZE,
                    suppress_health_check=list(HealthCheck),
                )
                @given(case=operation.as_strategy(generation_mode=mode))
                def ask(case: schemathesis.Case) -> None:
                    nonlocal asked
                    asked += 1
                    case.call_and_validate(checks=checks)

                ask()
    assert asked >= EXAMPLES
    print(f"{asked} requests")
