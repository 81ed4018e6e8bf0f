"""Collect the authors' reference scores of the relevance methods into relevance.npz.

    python tests/golden/collect_relevance.py ROOT

ROOT is the folder with `manifest.json` and the arrays that the authors' released code made on the models kept here
(float64). Rows with padding and with masked special tokens are kept too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

MODELS = ("bert_cls", "roberta_cls", "distilbert_cls")
REPOSITORIES = ("masklrp", "attcat", "chefer", "chefer_orig")
METHODS = {
    "MGAE": "transatt",
    "GAE": "transatt",
    "generate_LRP": "transatt",
    "full_lrp": "lrp",
    "LRP_last_layer": "partial-lrp",
}


def call(record: dict[str, Any], masks: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Our method and options that reproduce a record."""
    method, mask = METHODS.get(record["method"]), record.get("head_mask", "none")
    if method is None or record.get("kwargs", {}).get("start_layer") not in (None, 0):
        return None
    if mask == "none":
        return method, {"rules": "lrp" if record["repo"] == "chefer_orig" else "deep-taylor"}
    if method == "transatt" and record["repo"] == "masklrp":
        return "mask-lrp", {"variant": "released", "head_mask": masks[mask]}
    return None


def collect(root: Path) -> tuple[list[Any], list[np.ndarray]]:
    manifest = json.loads((root / "manifest.json").read_text())
    found: dict[str, np.ndarray] = {}
    for record in manifest["records"]:
        case = manifest["cases"].get(record.get("case"), record)
        model, key = Path(case["model"]).name, record["keys"].get("scores")
        if model not in MODELS or record.get("repo") not in REPOSITORIES or not key or case.get("variant") == "pos0":
            continue
        ours, arrays = call(record, manifest["head_masks"]), np.load(root / case["file"])
        if ours is None or key not in arrays:
            continue
        scores = np.asarray(arrays[key], dtype=np.float64).reshape(-1)
        if len(scores) != len(case["input_ids"]) or not np.isfinite(scores).all():
            continue
        row = {"input_ids": case["input_ids"], "attention_mask": case["attention_mask"]}
        if model == "bert_cls":
            row["token_type_ids"] = record.get("token_type_ids") or [0] * len(scores)
        target = record["target"] if isinstance(record.get("target"), int) else 0
        found.setdefault(json.dumps([model, *ours, row, target], sort_keys=True), scores)
    return [json.loads(key) for key in found], list(found.values())


if __name__ == "__main__":
    index, scores = collect(Path(sys.argv[1]))
    file = Path(__file__).with_name("relevance.npz")
    lengths = [len(s) for s in scores]
    np.savez_compressed(file, index=json.dumps(index), scores=np.concatenate(scores), lengths=lengths)
    print(len(index), "cases")
