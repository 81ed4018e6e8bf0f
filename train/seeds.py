"""Ten fine-tunings of the sentiment task that differ by seed only, for measurements of robustness. Not shipped.

    python -m train.seeds --data DATA --start START --base OUT/base --out OUT/sentiment-seeds

Each is an adapter in a folder named after its seed. A finished run is left alone, so an interrupted
command can be given again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from train.common import Log, arguments


def finished(file: Path) -> bool:
    """A run writes its figures at each better epoch, and marks them when it comes to its end."""
    return file.exists() and json.loads(file.read_text(encoding="utf-8")).get("finished", False) is True


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--base", type=Path, required=True, help="the trained base, a Hugging Face directory")
    parser.add_argument("--count", type=int, default=10)
    options = parser.parse_args()
    log = Log("seeds")
    for seed in range(options.seed, options.seed + options.count):
        out = options.out / f"seed-{seed}"
        if finished(out / "training.json"):
            log(f"{out} is there")
            continue
        command = [sys.executable, "-m", "train.classify", "sentiment", "--seed", seed]
        command += ["--data", options.data, "--start", options.start or options.data, "--base", options.base]
        command += ["--out", out]
        for name in ("limit", "seconds"):
            if (value := getattr(options, name)) is not None:
                command += [f"--{name}", value]
        subprocess.run([str(word) for word in command], check=True)


if __name__ == "__main__":
    main()
