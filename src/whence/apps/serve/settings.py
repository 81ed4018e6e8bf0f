"""How a server is run: where it listens, who may ask, and how much."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from whence.errors import InputError
from whence.inputs.numbers import whole


@dataclass(frozen=True)
class Settings:
    """Limits hold for every request; what goes over them is answered with 4xx, 429, 503 or 504."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None  # `Authorization: Bearer …`, asked for under /api/
    max_characters: int = 20_000  # of all texts of a request together
    max_body: int = 256 * 1024  # bytes
    max_concurrent: int = 128  # requests under way, over all models
    max_queue: int = 64  # requests that wait for one model
    max_batch: int = 32  # requests that one call of the model answers
    batch_wait: float = 0.002  # seconds that a request waits for others to come with it
    timeout: float = 30.0  # seconds from the request to its answer
    grace: float = 2.5  # seconds that requests under way have left when the server stops
    log_texts: bool = False

    def __post_init__(self) -> None:
        if self.token is not None and (len(self.token) < 8 or not self.token.isascii()):
            raise InputError("a token must have 8 characters or more, all of them ASCII; --token auto makes one.")
        if self.token is None and not self.on_loopback:
            raise InputError(
                f"host {self.host!r} can be reached from other machines: give a --token (or --token auto), or stay on 127.0.0.1."
            )
        for name in ("max_characters", "max_body", "max_concurrent", "max_queue", "max_batch"):
            whole(name, getattr(self, name))
        if not self.timeout > 0:  # so that nan is refused too
            raise InputError(f"timeout={self.timeout:g}: give seconds, more than 0.")

    @property
    def on_loopback(self) -> bool:
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone.

    >>> [is_loopback(h) for h in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
