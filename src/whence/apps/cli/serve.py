"""`whence serve`: the page and its JSON interface."""

from __future__ import annotations

import logging
import secrets
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer

import whence
from whence.apps.cli.main import app
from whence.errors import InputError, WhenceError


@app.command("serve")
def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A model that may be asked: an embedded one's name, a directory or a hub id, or NAME=one of these; repeatable; "
            "default: every embedded model."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; others than loopback need a --token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes any that is free.")
    ] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="WHENCE_TOKEN", help="Ask for this bearer token under /api/; 'auto' makes one and prints it."
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, float64, bfloat16 or float16.")] = None,
    max_characters: Annotated[int, typer.Option(min=1, help="Characters of a request's texts, at most.")] = 20_000,
    max_concurrent: Annotated[int, typer.Option(min=1, help="Requests under way, at most.")] = 128,
    max_queue: Annotated[int, typer.Option(min=1, help="Requests that wait for one model, at most.")] = 64,
    max_batch: Annotated[int, typer.Option(min=1, help="Requests that one call of a model answers, at most.")] = 32,
    timeout: Annotated[float, typer.Option(help="Seconds that a request may take.")] = 30.0,
    log_texts: Annotated[
        bool, typer.Option("--log-texts", help="Log what requests hold; otherwise never logged.")
    ] = False,
) -> None:
    """Serve a page, and a JSON interface, that explains what the models say. Ctrl-C ends it."""
    from whence.models import zoo

    try:
        from whence.apps.serve import Settings, create_app
        from whence.apps.serve.run import leave, listen, server_of, url_of
    except ImportError as error:
        raise WhenceError(f"serving needs {error.name}: pip install 'whence[web]'.") from None
    settings = Settings(
        host=host,
        port=port,
        token=secrets.token_urlsafe(24) if token == "auto" else token,
        max_characters=max_characters,
        max_concurrent=max_concurrent,
        max_queue=max_queue,
        max_batch=max_batch,
        timeout=timeout,
        log_texts=log_texts,
    )
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    sources = named(model or zoo.names())
    with listen(settings) as sock:
        # on a thread that ends: one that has computed and lives keeps helpers of its own, and with more of these than cores
        # torch's threads sleep between two operations instead of waiting awake
        with ThreadPoolExecutor(1) as loading:
            models: dict[str, whence.Explainer] = loading.submit(loaded, sources, device, dtype).result()
        server = server_of(create_app(models, settings, sources))  # what it refuses is said before anybody is invited
        secret = f"#token={settings.token}" if token == "auto" else ""
        print(
            f"whence: serving {', '.join(models)} at {url_of(sock)}/{secret} (Ctrl-C ends it)",
            file=sys.stderr,
            flush=True,
        )
        server.run(sockets=[sock])
    leave()


def loaded(sources: Mapping[str, str], device: str | None, dtype: str | None) -> dict[str, whence.Explainer]:
    return {name: whence.load(source, device=device, dtype=dtype) for name, source in sources.items()}


def named(given: list[str]) -> dict[str, str]:
    """NAME=SOURCE, or a source that is called by its last part: names never tell a path.

    >>> named(["sentiment", "mine=./models/a", "./models/b"])
    {'sentiment': 'sentiment', 'mine': './models/a', 'b': './models/b'}
    """
    from whence.models import zoo

    found: dict[str, str] = {}
    for one in given:
        name, equals, source = one.partition("=")
        if not equals:
            name, source = (one if one in zoo.names() else Path(one).resolve().name or one), one
        if not name or not source:
            raise InputError(f"--model {one!r} must read NAME=SOURCE, or be a source alone.")
        if name in found:
            raise InputError(
                f"two models are called {name!r}: give one of them another name, as --model NAME={source}."
            )
        found[name] = source
    return found
