"""Every option of every method, given numbers that it cannot use: 200 or a sentence, in time, and never 500."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from tests.serve.conftest import serving, tiny
from whence.registry import all_methods

# as JSON writes them: a client may send what Python's own floats and ints cannot hold
NASTY = (
    *("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e-308", "5e-324", "1e-400", "1e-162", "1e-100", "1e-20", "-1e-308"),
    *("0", "-0.0", "0.5", "-1", "-1.5", "1.0", "1e99", "1e100", "1e154", "1e300", "1.7976931348623157e308"),
    *("1000000000", "2147483647", "-2147483648", "2147483648", "9223372036854775808", "1" + "0" * 40, "1" + "0" * 400),
    *("true", "null", '"1e-308"', '"nan"', '""'),
)  # fmt: skip
HEADERS = {"content-type": "application/json"}
SECONDS = 10  # that any of these may take


@pytest.fixture(scope="module")
def small() -> Iterator[TestClient]:
    with serving({"bert": tiny(), "gpt2": tiny("gpt2")}, timeout=SECONDS) as client:
        client.get("/api/models")  # the survey is over
        yield client


@pytest.mark.parametrize("model", ["bert", "gpt2"])
@pytest.mark.parametrize("method", [m.name for m in all_methods() if m.defaults])
def test_no_number_is_too_nasty(small: TestClient, model: str, method: str) -> None:
    options = next(m.defaults for m in all_methods() if m.name == method)
    for option in options:
        for number in NASTY:
            body = f'{{"text": "good film", "model": "{model}", "method": "{method}", "options": {{"{option}": {number}}}}}'
            begun = time.monotonic()
            reply = small.post("/api/explain", content=body, headers=HEADERS)
            assert reply.status_code in (200, 400, 404, 422), (option, number, reply.text)
            assert time.monotonic() - begun < SECONDS
            if reply.status_code != 200:
                assert set(reply.json()) == {"error", "kind"}
    assert small.get("/healthz").status_code == 200


@pytest.mark.parametrize("route", ["explain", "evaluate-text"])
@pytest.mark.parametrize("width", ["1e-308", "5e-324", "1e-162", "1e-100"])
def test_a_kernel_that_is_too_narrow(small: TestClient, route: str, width: str) -> None:
    body = f'{{"text": "good film", "method": "lime", "options": {{"kernel_width": {width}}}}}'
    reply = small.post(f"/api/{route}", content=body, headers=HEADERS)
    assert (reply.status_code, reply.json()["kind"]) == (422, "input")
    assert reply.json()["error"].startswith("kernel_width=")
    body = f'{{"text": "good film", "methods": ["lime"], "format": "json", "options": {{"kernel_width": {width}}}}}'
    assert small.post("/api/figure", content=body, headers=HEADERS).status_code == 422
