"""The core of the suite with other versions of transformers (and torch): `python -m bench.matrix [--transformers 5.0.0 …]`.

Each version goes into a folder of its own in front of the environment (`pip install --target`), so that no second copy of torch is
needed. Other versions of torch are tried with `--torch`, where a CPU wheel of theirs can be had: the index's own are CUDA builds of
gigabytes. Exit status 1 if a version fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "matrix"
OLDEST = {
    "transformers": "5.0.0"
}  # what pyproject.toml promises; a middle one besides; the newest is what is installed
MIDDLE = "5.10.4"
# numbers nobody here made, formulas, every architecture's seams, loading and giving back
CORE = (
    "tests/methods/test_golden.py",
    "tests/methods/test_formulas.py",
    "tests/methods/test_relevance.py",
    "tests/methods/test_mixing.py",
    "tests/methods/test_properties.py",
    "tests/models",
    "tests/trace",
    "tests/test_explainer.py",
    "tests/test_load.py",
    "tests/zoo/test_zoo.py",
)


def installed(package: str, version: str) -> Path | None:
    """A folder with that version, and what it asks for where the environment has another; None if it cannot be had."""
    folder = FOLDER / f"{package}-{version}"
    if not (folder / package).exists() and not pip(folder, f"{package}=={version}"):
        return None
    (own,) = metadata.distributions(name=package, path=[str(folder)])
    for need in map(Requirement, own.requires or []):
        if need.marker is not None and not need.marker.evaluate({"extra": ""}):
            continue
        there = next(iter(metadata.distributions(name=need.name, path=[str(folder), *sys.path])), None)
        if (there is None or not need.specifier.contains(there.version, prereleases=True)) and not pip(
            folder, str(need)
        ):
            return None
    return folder


def pip(folder: Path, requirement: str) -> bool:
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--target",
    ]
    return subprocess.run([*command, str(folder), requirement], check=False).returncode == 0


def tested(folders: list[Path], tests: list[str]) -> tuple[bool, str]:
    """Whether the core passes with `folders` in front, and pytest's last line."""
    path = os.pathsep.join([*map(str, folders), str(ROOT / "src"), str(ROOT)])
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib", "--tb=short", "-W", "default"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, cwd=ROOT, capture_output=True, text=True, check=False
    )
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return done.returncode == 0, "\n".join([*failed[:40], lines[-1] if lines else ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transformers", nargs="*", default=[OLDEST["transformers"], MIDDLE])
    parser.add_argument("--torch", nargs="*", default=[])
    parser.add_argument("tests", nargs="*", default=list(CORE))
    arguments = parser.parse_args()
    now = {name: metadata.version(name) for name in ("torch", "transformers", "tokenizers")}
    print("installed:", ", ".join(f"{name} {version}" for name, version in now.items()), flush=True)
    rows = [("transformers", version) for version in arguments.transformers]
    rows += [("torch", version) for version in arguments.torch]
    bad = 0
    for package, version in [("installed", ""), *rows]:
        folder = None if package == "installed" else installed(package, version)
        if package != "installed" and folder is None:
            print(f"{package} {version}: does not install here", flush=True)
            continue
        well, said = tested([folder] if folder else [], arguments.tests)
        bad += not well
        print(f"{package} {version}: {'passes' if well else 'FAILS'}\n{said}", flush=True)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
