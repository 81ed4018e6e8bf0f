"""What a release must have, and the version in one place."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import whence

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_is_in_one_place() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/whence/version.py"
    places = [
        f for f in (ROOT / "src").rglob("*.py") if re.search(r"^__version__\s*=", f.read_text(encoding="utf-8"), re.M)
    ]
    assert [f.name for f in places] == ["version.py"]


def test_the_citation_and_the_changelog_name_it() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(rf"^version: {re.escape(whence.__version__)}$", citation, re.M)
    assert re.search(r"^cff-version: 1\.2\.0$", citation, re.M)
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(whence.__version__)}\b", changes, re.M)


def test_what_the_sdist_names_exists() -> None:
    for name in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]:
        assert (ROOT / name).exists(), name


def test_what_is_needed_is_pinned_for_developers() -> None:
    pinned = {
        line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    }
    for requirement in PROJECT["project"]["dependencies"]:
        name = re.match(r"[\w-]+", requirement)
        assert name is not None
        assert name[0].lower() in pinned, requirement
