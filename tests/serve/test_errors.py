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
    ("content", "status"),
    [
        (b"", 422),
        (b"{", 400),
        (b"null", 422),
        (b"[]", 422),
        (b"\xff\xfe", 400),
        (b'{"text": NaN}', 422),
        (b'{"text": "a", "method": "lime", "options": {"alpha": NaN}}', 422),
        (b'{"text": "a", "method": "lime", "options": {"alpha": 1e999}}', 422),
        (b'{"text": "a", "target": ' + b"9" * 5000 + b"}", 400),
        (b"[" * 100_000, 400),
        (b'{"a":' * 20_000, 400),
    ],
)
def test_bodies_that_are_no_request(small: TestClient, content: bytes, status: int) -> None:
    reply = small.post("/api/explain", content=content, headers={"content-type": "application/json"})
    assert reply.status_code == status, reply.text
    assert set(reply.json()) == {"error", "kind"}


def test_only_json_is_read(small: TestClient) -> None:
    body = json.dumps({"text": TEXT}).encode()
    assert small.post("/api/explain", content=body, headers={"content-type": "text/plain"}).status_code == 422


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/api/explain", 405), ("GET", "/no/where", 404)])
def test_wrong_turns(small: TestClient, method: str, path: str, status: int) -> None:
    reply = small.request(method, path)
    assert reply.status_code == status
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
