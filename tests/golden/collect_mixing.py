"""Cut the mixing methods' numbers out of the golden files: `python tests/golden/collect_mixing.py PATH/TO/golden/open`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

KEYS = ("ours", "ours.C", "ours.R", "ours_l2", "ours2", "norm", "norm.R", "norm2", "globenc_cls")


def main(root: Path) -> None:
    manifest = json.loads((root / "manifest.json").read_text())
    kept: dict[str, np.ndarray] = {}
    for record in manifest["records"]:
        case = manifest["cases"].get(record.get("case"), record)
        if record["repo"] not in ("transformer-contributions", "GlobEnc") or not all(case["attention_mask"]):
            continue
        name = f"{Path(case['model']).name}/{case['input_index']}"
        arrays = np.load(root / case["file"])
        kept[f"{name}/input_ids"] = np.array(case["input_ids"])
        for key in KEYS:
            if key in arrays and arrays[key].shape[-1] == len(case["input_ids"]):
                kept[f"{name}/{key}"] = arrays[key].squeeze()
        if record.get("token_type_ids"):
            kept[f"{name}/globenc_cls.types"] = np.array(record["token_type_ids"])
    np.savez_compressed(Path(__file__).parent / "mixing.npz", **kept)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
