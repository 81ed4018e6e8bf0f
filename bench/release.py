"""Build a release and try it as a stranger would: `python -m bench.release` (`make release`).

sdist and wheel → `twine check` → each installed, without an index, into an empty environment and used from an empty folder → a
CycloneDX bill of materials beside them. torch and the other dependencies are lent to the empty environments by a path file: they are
gigabytes, and what is tried is the package. Nothing is uploaded.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
BILL_TOOL = ROOT / "build" / "cyclonedx"  # put there by `make release`
LARGEST_MB = 60
TEXT = "a charming and often affecting journey"
ROWS = [{"text": TEXT, "label": 1}, {"text": "dull , and far too long", "label": 0}]
# what is run in each empty environment, from an empty folder
COMMANDS = (
    ("whence", "--version"),
    ("whence", "explain", TEXT, "--format", "json"),
    ("whence", "explain", "--task", "qa", "--question", "Who wrote it?", "--context", "It was written by Anna Smith."),
    ("whence", "explain", "He opened the", "--task", "causal-lm", "--continuation", " door"),
    ("whence", "compare", TEXT, "--method", "gae", "--method", "attnlrp"),
    (
        "whence",
        "evaluate",
        "rows.jsonl",
        "--method",
        "gradient",
        "--metric",
        "comprehensiveness",
        "--output",
        "results",
    ),
    ("whence", "methods"),
    ("whence", "models", "--export", "sentiment", "exported"),
    ("whence", "explain", TEXT, "--model", "exported", "--format", "html", "--output", "page.html"),
    ("whence", "doctor", "--format", "json"),
)


def run(*command: str, **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def build() -> tuple[Path, Path]:
    """A fresh sdist, and the wheel that is built from it."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST), str(ROOT))
    (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    print(run(sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(wheel)).strip())
    for file in (sdist, wheel):
        megabytes = file.stat().st_size / 1e6
        print(f"{file.name}: {megabytes:.1f} MB")
        if megabytes > LARGEST_MB:
            sys.exit(f"{file.name} is over {LARGEST_MB} MB")
    return sdist, wheel


def tried(package: Path) -> None:
    """Install into an empty environment and use it there."""
    with tempfile.TemporaryDirectory() as place:
        home, folder = Path(place) / "environment", Path(place) / "empty"
        folder.mkdir()
        venv.create(home, with_pip=False)
        python = home / "bin" / "python"
        lent = next((home / "lib").glob("python*/site-packages")) / "lent.pth"
        lent.write_text(sysconfig.get_paths()["purelib"] + "\n")
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        run(*pip, "--no-index", "--no-deps", "--no-build-isolation", "--ignore-installed", str(package))
        (folder / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in ROWS))
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | {"HF_HUB_OFFLINE": "1"}
        where = run(str(python), "-c", "import whence; print(whence.__file__)", cwd=folder, env=clean)
        if not where.startswith(str(home)):
            sys.exit(f"{package.name}: not the installed package is used, but {where}")
        for command in COMMANDS:
            said = run(str(home / "bin" / command[0]), *command[1:], cwd=folder, env=clean)
        if not json.loads(said)["healthy"]:
            sys.exit(f"{package.name}: {said}")
        print(f"{package.name}: installed into an empty environment, {len(COMMANDS)} commands run, healthy")


def closure(name: str) -> dict[str, str]:
    """Every package that a plain `pip install whence` brings, with the version that is installed here."""
    found: dict[str, str] = {}
    waiting = [name]
    while waiting:
        own = metadata.distribution(waiting.pop())
        if own.name.lower() in found:
            continue
        found[own.name.lower()] = own.version
        needs = [Requirement(text) for text in own.requires or []]
        waiting += [n.name for n in needs if n.marker is None or n.marker.evaluate({"extra": ""})]
    return found


def bill_of_materials(version: str) -> Path:
    packages = closure("whence")
    del packages["whence"]
    lines = "".join(f"{name}=={number.split('+')[0]}\n" for name, number in sorted(packages.items()))
    file = DIST / f"whence-{version}.cdx.json"
    with tempfile.TemporaryDirectory() as place:
        listed, project = Path(place) / "requirements.txt", Path(place) / "pyproject.toml"
        listed.write_text(lines)
        text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        project.write_text(text.replace('dynamic = ["version"]', f'version = "{version}"'), encoding="utf-8")
        (Path(place) / "README.md").write_text((ROOT / "README.md").read_text(encoding="utf-8"), encoding="utf-8")
        (Path(place) / "LICENSE").write_text((ROOT / "LICENSE").read_text(encoding="utf-8"), encoding="utf-8")
        options = [
            "--pyproject",
            str(project),
            "--mc-type",
            "library",
            "--output-reproducible",
            "--output-file",
            str(file),
        ]
        beside = {**os.environ, "PYTHONPATH": str(BILL_TOOL)}
        run(sys.executable, "-m", "cyclonedx_py", "requirements", *options, str(listed), env=beside)
    return file


def main() -> None:
    sdist, wheel = build()
    version = re.fullmatch(r"whence-(.+)\.tar\.gz", sdist.name)
    assert version is not None
    bill = bill_of_materials(version[1])
    print(f"{bill.name}: {len(json.loads(bill.read_text())['components'])} components")
    tried(wheel)
    tried(sdist)


if __name__ == "__main__":
    main()
