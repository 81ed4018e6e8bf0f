"""Collect the authors' AttCAT scores on question-answering models into qa.json.gz.

    python tests/golden/collect_qa.py ROOT

ROOT is the folder with `manifest.json` and the arrays that the authors' released code made (float64). Scores are of the highest
start logit, of the highest end logit, and their sum; for RoBERTa only records with Hugging Face's position ids.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np


def collect(root: Path) -> list[dict]:
    manifest = json.loads((root / "manifest.json").read_text())
    found = []
    for record in manifest["records"]:
        case = manifest["cases"].get(record.get("case"), record)
        model = Path(case["model"]).name
        notebook = record["repo"].startswith("attcat SQUAD")
        if not model.endswith("_qa") or not (notebook or record["method"] == "AttCAT"):
            continue
        if model == "roberta_qa" and (case.get("position_ids") or [2])[0] != 2:
            continue
        arrays = np.load(root / case["file"])
        keys = {"span": "cat.sum", "start": "cat.start", "end": "cat.end"}
        for target, key in keys.items() if notebook else [(record["which"], record["keys"]["scores"])]:
            row = {"input_ids": case["input_ids"], "attention_mask": case["attention_mask"]}
            if record.get("token_type_ids"):
                row["token_type_ids"] = record["token_type_ids"]
            scores = np.asarray(arrays[key], dtype=np.float64).reshape(-1).tolist()
            found.append({"model": model, "target": target, "row": row, "scores": scores})
    return found


if __name__ == "__main__":
    rows = collect(Path(sys.argv[1]))
    with gzip.GzipFile(Path(__file__).with_name("qa.json.gz"), "wb", mtime=0) as file:
        file.write(json.dumps(rows).encode())
    print(len(rows), "cases")
