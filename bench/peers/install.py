"""Install every peer into an environment of its own: `make bench-env`.

Each is a folder `.bench-env/NAME` that sees this environment's packages below its own, so that a peer brings only itself, what it
needs besides, and other versions where the pinned ones do not suit it. One that does not install is reported; the others go on.
"""

from __future__ import annotations

import re
import subprocess
import sysconfig
import venv
from pathlib import Path

from bench.peers import ENVIRONMENTS, ROOT
from bench.settings import PEERS

PINNED = ROOT / "constraints.txt"
# lxt asks for torchvision and more for images, whose published build does not go with a CPU torch: transformers then fails to import
ALONE = {"lxt"}


def main() -> None:
    for name in PEERS:
        print(f"{name}: {install(name)}", flush=True)


def install(name: str) -> str:
    folder = ENVIRONMENTS / name
    venv.create(folder, with_pip=False)
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "below.pth").write_text(sysconfig.get_path("purelib") + "\n")
    torch_only = folder / "torch.txt"  # an open range would fetch gigabytes of CUDA
    torch_only.write_text("".join(re.findall(r"^torch==.*\n", PINNED.read_text(encoding="utf-8"), re.MULTILINE)))
    for constraints in (PINNED, torch_only):
        # the package itself first and always, so that the folder can be taken elsewhere; then what it needs besides
        alone = pip(folder, constraints, "--ignore-installed", "--no-deps", name)
        said = alone if alone.returncode or name in ALONE else pip(folder, constraints, name)
        if not said.returncode:
            return "installed" if constraints is PINNED else "installed, with other versions than the pinned ones"
    return f"does not install: {(said.stderr.strip().splitlines() or ['pip said nothing'])[-1]}"


def pip(folder: Path, constraints: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return subprocess.run(
        [*command, "--constraint", str(constraints), *arguments], capture_output=True, text=True, check=False
    )


if __name__ == "__main__":
    main()
