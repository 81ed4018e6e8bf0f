"""Pages that mkdocs.yml does not name are put at the end of their folder's section, under their own title."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SECTIONS = {
    "": "Guides",
    "guides": "Start",
    "methods": "Methods",
    "metrics": "Metrics",
    "results": "Results",
    "extend": "Extending",
    "reference": "Python",
    "decisions": "Behind it",
}


def on_config(config: Any) -> Any:
    """Called by MkDocs once its configuration is read."""
    docs = Path(config["docs_dir"])
    known = set(named(config["nav"]))
    for page in sorted(docs.rglob("*.md")):
        path = page.relative_to(docs).as_posix()
        if path not in known:
            section = SECTIONS[page.parent.relative_to(docs).as_posix().replace(".", "")]
            entries = next(entry[section] for entry in config["nav"] if section in entry)
            entries.append({title(page): path})
    return config


def named(nav: Any) -> list[str]:
    """Every page of a navigation.

    >>> named([{"Start": "start.md"}, {"Methods": ["methods/README.md", {"gae": "methods/gae.md"}]}])
    ['start.md', 'methods/README.md', 'methods/gae.md']
    """
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in named(part)]


def title(page: Path) -> str:
    """A page's first heading, without its marks."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("# ")).removeprefix("# ").replace("`", "")
