"""Collect the authors' reference scores of the single-pass methods into engine.json.gz.

    python tests/golden/collect.py ROOT

ROOT is the folder with `manifest.json` and the arrays that the authors' released code made on the models kept here
(float64). Unlike the sample checks, masked variants are kept too: padded rows and rows with masked special tokens.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np

# authors' function → our call: (method, options, whether their code zeroes position 0)
CALLS = {
    "AttCAT": ("attcat", {"variant": "released"}, False),
    "TransCAM": ("attcat", {"variant": "released"}, False),
    "attn_gradcam": ("attention-gradcam", {"variant": "released"}, True),
    "gradcam": ("grads", {}, True),
    "attn_last_layer": ("raw-attention", {}, True),
    "rollout": ("rollout", {}, True),
}
REPOSITORIES = ("masklrp", "attcat", "chefer")
MODELS = ("bert_cls", "roberta_cls", "distilbert_cls")


def entry(model, method, options, case, types, target, first, scores) -> dict:
    return {
        "model": model,
        "method": method,
        "options": options,
        "input_ids": case["input_ids"],
        "attention_mask": case["attention_mask"],
        "token_type_ids": types,
        "target": target,
        "first": first,
        "scores": np.asarray(scores, dtype=np.float64).reshape(-1).tolist(),
    }


def collect(root: Path) -> list[dict]:
    manifest = json.loads((root / "manifest.json").read_text())
    found: dict[str, dict] = {}
    for record in manifest["records"]:
        case = manifest["cases"].get(record.get("case"), record)
        model = Path(case["model"]).name
        key = record["keys"].get("scores")
        if model == "gpt2_cls":  # one record holds all targets
            arrays = np.load(root / case["file"])
            for target in (t for t in range(9) if f"AttCAT.t{t}" in arrays):
                row = entry(
                    model, "attcat", {"variant": "released"}, case, None, target, 0, arrays[f"AttCAT.t{target}"]
                )
                found[json.dumps([row["input_ids"], target])] = row
            continue
        if model not in MODELS or record.get("repo") not in REPOSITORIES or record["method"] not in CALLS or not key:
            continue
        if record.get("head_mask", "none") != "none" or case.get("variant") == "pos0":
            continue
        method, options, zeroed = CALLS[record["method"]]
        arrays = np.load(root / case["file"])
        scores = np.asarray(arrays[key], dtype=np.float64).reshape(-1)
        if len(scores) != len(case["input_ids"]) or not np.isfinite(scores).all():
            continue
        target = record.get("target") if isinstance(record.get("target"), int) else 0
        row = entry(model, method, options, case, record.get("token_type_ids"), target, int(zeroed), scores)
        found.setdefault(json.dumps({k: v for k, v in row.items() if k != "scores"}), row)
    return list(found.values())


if __name__ == "__main__":
    rows = collect(Path(sys.argv[1]))
    with gzip.GzipFile(Path(__file__).with_name("engine.json.gz"), "wb", mtime=0) as file:
        file.write(json.dumps(rows).encode())
    print(len(rows), "cases")
