"""Compute the head masks that come with the embedded models.

    python -m train.heads TREEBANK.conllu[.gz] [NAME …]

Run it again whenever the weights change: the masks in src/whence/models/zoo/heads/ belong to the weights beside them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from whence.models import zoo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("treebank", type=Path)
    parser.add_argument("names", nargs="*", default=zoo.names())
    args = parser.parse_args()
    for name in args.names:
        file = zoo.head_mask(name)
        file.parent.mkdir(exist_ok=True)
        print(f"== {name} → {file.name}", flush=True)
        command = [sys.executable, "-m", "whence", "heads", str(args.treebank), "--model", name, "--output", str(file)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
