"""`whence doctor`: what to paste into a bug report."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from whence.apps.cli.main import FORMATS, app
from whence.apps.cli.pictures import check_format
from whence.apps.cli.streams import json_line


@app.command("doctor")
def doctor(
    format: Annotated[str, typer.Option(help="'text' or 'json'.")] = "text",
    paths: Annotated[bool, typer.Option("--paths", help="Also say where things are installed, and the host.")] = False,
) -> None:
    """Describe this machine for a bug report and try whence on it; exit status 1 if something is wrong."""
    from whence.apps.doctor import as_text, healthy, report

    check_format(format, FORMATS)
    found = report(paths=paths)
    well = healthy(found)
    if format == "json":
        print(json_line({"healthy": well, **found}))
    else:
        print(as_text(found))
        print("all well" if well else "something is wrong: see above")
    if not well:
        sys.exit(1)
