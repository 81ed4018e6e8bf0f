"""Known vulnerabilities of the development set: `python -m bench.audit` (`make audit`).

pip-audit asks the advisory database about every package of constraints.txt. It calls what it got no answer about "skipped", and ends
well even if that is all of them; here a package without an answer has not been audited, and the audit has failed.
Exit status: 0 if every package was audited and none is known to be vulnerable, else 1.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
LISTED = 10  # packages that a sentence names


def ask(constraints: Path) -> tuple[list[dict[str, Any]], str]:
    """What pip-audit found out about each package; nothing and its own last words if it failed before."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(constraints), "--no-deps", "--disable-pip"]
    done = subprocess.run(
        [*command, "--format", "json", "--progress-spinner", "off"], capture_output=True, text=True, check=False
    )
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return [], (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return packages, ""


def verdict(packages: Sequence[Mapping[str, Any]], failure: str = "") -> tuple[int, list[str]]:
    """The exit status, and a sentence for everything that is wrong or was not audited.

    >>> verdict([{"name": "a", "version": "1", "vulns": []}])
    (0, ['1 package audited, no known vulnerabilities.'])
    """
    skipped = [package["name"] for package in packages if "vulns" not in package]
    audited = [package for package in packages if "vulns" in package]
    sentences = []
    for package in audited:
        for one in package["vulns"]:
            fixed = ", ".join(one.get("fix_versions") or ()) or "no version yet"
            sentences.append(f"{package['name']} {package['version']} has {one['id']}, which is mended in {fixed}.")
    if not audited:
        why = failure or f"it knows none of the {len(packages)} packages"
        sentences.append(
            f"nothing was audited: the advisory database could not be reached, or did not answer ({why}). Run this where there is a network."
        )
    elif skipped:
        names = ", ".join(skipped[:LISTED]) + (f" and {len(skipped) - LISTED} more" if len(skipped) > LISTED else "")
        sentences.append(
            f"{len(skipped)} of {len(packages)} packages were not audited: the advisory database did not answer about {names}."
        )
    if sentences:
        return 1, sentences
    return 0, [f"{len(audited)} package{'s' * (len(audited) > 1)} audited, no known vulnerabilities."]


def main() -> None:
    status, sentences = verdict(*ask(CONSTRAINTS))
    print("\n".join(sentences), file=sys.stderr if status else sys.stdout)
    sys.exit(status)


if __name__ == "__main__":
    main()
