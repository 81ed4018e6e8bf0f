"""Run the application until a signal stops it; requests under way then finish, or are told so, within seconds."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from whence.apps.serve.gate import Gate
from whence.apps.serve.settings import Settings
from whence.apps.serve.worker import THREAD
from whence.errors import WhenceError

FLUSH_SECONDS = 1  # to send the last answers, once the workers have ended


class Listening(uvicorn.Server):
    """uvicorn, but the workers end first (else requests that wait for them would be cut off with a 500), and a server that
    was asked to stop has not failed."""

    def __init__(self, config: uvicorn.Config, gate: Gate) -> None:
        super().__init__(config)
        self.gate = gate

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self.gate.drain()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():  # only the main thread is told of signals
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            self.should_exit = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def server_of(gate: Gate) -> Listening:
    """What answers requests by `gate`; `.run(sockets=[…])` blocks until a signal, or `.should_exit = True`, stops it."""
    config = uvicorn.Config(
        gate,
        log_config=None,
        access_log=False,  # the gate logs, without query strings
        server_header=False,
        ws="none",
        lifespan="on",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=FLUSH_SECONDS,
        h11_max_incomplete_event_size=32 * 1024,
        proxy_headers=False,
    )
    return Listening(config, gate)


def leave() -> None:
    """End the process at once where a model is still in a forward: taken down under a running thread, torch would abort."""
    busy = [thread for thread in threading.enumerate() if thread.daemon and thread.name.startswith(THREAD)]
    if any(thread.is_alive() for thread in busy):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def listen(settings: Settings) -> socket.socket:
    """The socket that the server will answer on; an address that cannot be had is said before any model is loaded."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )[0]
    except OSError as error:
        raise unheard(settings, error) from error
    sock = socket.socket(family, kind, protocol)  # asyncio sends without delay only where the protocol is named
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(256)
    except OSError as error:
        sock.close()
        raise unheard(settings, error) from error
    return sock


def unheard(settings: Settings, error: OSError) -> WhenceError:
    where = f"{settings.host}:{settings.port}"
    return WhenceError(f"{where} cannot be listened on ({error.strerror or error}): choose another --host or --port.")


def url_of(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
