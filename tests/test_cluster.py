"""A connection to Ray: begun on its own thread, waited for, and taken down before that thread ends."""

from __future__ import annotations

import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from whence.corpus import cluster
from whence.corpus.cluster import Connection
from whence.errors import WhenceError


class Node:
    """Stands in for Ray's class of a machine."""

    def __init__(self) -> None:
        self.started = ["raylet"]
        self.start_monitor()
        self.start_api_server(include_dashboard=False)

    def start_monitor(self) -> None:
        self.started.append("monitor")

    def start_api_server(self, *, include_dashboard: bool) -> None:
        self.started.append("api server")


class Ray:
    """Stands in for the package."""

    def __init__(self, error: Exception | None = None, initialized: bool = False) -> None:
        self.error, self.initialized = error, initialized
        self.asked: list[str] = []
        self.started: list[str] = []
        self.wants = "raylet"
        self.started_by: threading.Thread | None = None
        self.down = 0
        self.hired: list[Any] = []

    def is_initialized(self) -> bool:
        return self.initialized

    def init(self, address: str, **options: Any) -> None:
        time.sleep(0.1)
        self.asked.append(address)
        self.started_by = threading.current_thread()
        if self.error is not None:
            raise self.error
        self.started = Node().started
        if self.wants not in self.started:
            raise RuntimeError(f"no {self.wants}")
        self.started_by, self.initialized = threading.current_thread(), True

    def remote(self, kind: type) -> Ray:
        self.hired.append(kind.__name__)
        return self

    def options(self, **resources: Any) -> Any:
        self.hired.append(resources)
        return SimpleNamespace(remote=lambda: "an actor")

    def shutdown(self) -> None:
        assert self.started_by is not None
        assert self.started_by.is_alive()  # Linux would have ended Ray's processes together with it
        self.initialized = False
        self.down += 1


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    made = Ray()
    monkeypatch.setattr(cluster, "import_ray", lambda: made)
    monkeypatch.setitem(sys.modules, "ray._private.node", SimpleNamespace(Node=Node))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return made


def test_a_cluster_of_our_own_has_what_actors_need_and_no_more(ray: Ray) -> None:
    with Connection() as connection:
        connection.begin().result()
    assert ray.started == ["raylet"]
    assert ray.asked == ["local"]  # whatever else stands on this machine
    assert Node().started == ["raylet", "monitor", "api server"]  # for everybody else Ray is as it was


def test_a_version_of_ray_that_wants_its_services_gets_them(ray: Ray) -> None:
    ray.wants = "monitor"
    with Connection() as connection:
        connection.begin().result()
        assert connection.made_here
    assert ray.started == ["raylet", "monitor", "api server"]


def test_one_that_the_environment_names_is_joined(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.2:6379")
    with Connection() as connection:
        connection.begin(hiring=True).result()
        assert not connection.made_here
        assert connection.first is None
    assert ray.asked == ["10.0.0.2:6379"]
    assert "monitor" in ray.started


def test_a_cluster_of_our_own_is_taken_down_once_also_if_nobody_waited_for_it(ray: Ray) -> None:
    with Connection() as connection, connection:  # as the command and the run that it starts do
        connection.begin()
    assert ray.down == 1
    assert ray.started_by is not None
    assert ray.started_by is not threading.main_thread()
    assert not ray.started_by.is_alive()


def test_it_is_begun_once(ray: Ray) -> None:
    with Connection() as connection:
        assert connection.begin() is connection.begin()
        assert connection.begin().result() is ray
        assert connection.made_here
    with Connection("auto") as connection:
        connection.begin().result()
        assert not connection.made_here
    assert ray.down == 2


def test_an_actor_is_hired_at_once_on_a_cluster_of_our_own_alone(ray: Ray) -> None:
    with Connection() as connection:
        connection.begin(hiring=True).result()
        assert connection.first == "an actor"
    assert ray.hired == ["Maker", {"max_concurrency": 2, "num_cpus": 0}]
    for address, hiring in (("auto", True), (None, False)):  # what others have room for is theirs to say
        with Connection(address) as connection:
            connection.begin(hiring=hiring).result()
            assert connection.first is None
    assert len(ray.hired) == 2


def test_one_that_stood_before_is_left_alone(ray: Ray) -> None:
    ray.initialized = True
    with Connection() as connection:
        connection.begin().result()
        assert not connection.made_here
    assert ray.down == 0


def test_nothing_is_started_that_was_not_begun(ray: Ray) -> None:
    with Connection():
        pass
    assert ray.started_by is None


def test_a_cluster_that_does_not_answer_is_told_to_who_asks(ray: Ray) -> None:
    ray.error = ConnectionError("nobody\nthere")
    with Connection("10.0.0.1:6379") as connection, pytest.raises(WhenceError, match=r"10\.0\.0\.1:6379.*: nobody"):
        connection.begin().result()
    assert ray.down == 0
