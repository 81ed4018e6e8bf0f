"""Finished chunks of an evaluation in its output folder, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from whence.errors import WhenceError
from whence.evaluate.engine import Results
from whence.evaluate.metrics import Case
from whence.run.provenance import refuse_others, write_whole


class Store:
    """A folder of parts, all made under the same settings."""

    def __init__(self, folder: str | Path, settings: Mapping[str, Any]) -> None:
        self.folder = Path(folder)
        self._parts = self.folder / "parts"
        plain = json.loads(json.dumps(settings))
        known = self.folder / "settings.json"
        try:
            self._parts.mkdir(parents=True, exist_ok=True)
            if known.exists():
                refuse_others(json.loads(known.read_text(encoding="utf-8")), plain, self.folder)
            else:
                write_whole(known, json.dumps(plain, indent=1, ensure_ascii=False).encode())
        except OSError as error:
            raise WhenceError(f"the folder {str(folder)!r} cannot be used: {error.strerror or error}.") from error

    def get(self, number: int) -> Results | None:
        """A finished part; None if it is not there, or was cut off while it was written."""
        try:
            with np.load(self._parts / f"{number:05d}.npz") as arrays:
                return unpack(dict(arrays))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    def put(self, number: int, results: Results) -> None:
        path = self._parts / f"{number:05d}.npz"
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, **pack(results))
        os.replace(partial, path)


def pack(results: Results) -> dict[str, Any]:
    """Flat arrays for one file."""
    arrays: dict[str, Any] = {}
    for kind, found in (("value", results.values), ("weight", results.weights), ("curve", results.curves)):
        arrays |= {f"{kind}/{metric}": array for metric, array in found.items()}
    for name, cases in results.cases.items():
        arrays[f"scores/{name}"] = np.concatenate([c.scores for c in cases])
        arrays[f"special/{name}"] = np.concatenate([c.special for c in cases])
        arrays[f"ids/{name}"] = np.concatenate([np.array(c.ids) for c in cases])
        arrays[f"length/{name}"] = np.array([len(c.ids) for c in cases])
        arrays[f"target/{name}"] = np.array([c.target for c in cases])
    return arrays


def unpack(arrays: Mapping[str, Any]) -> Results:
    results = Results({}, {}, {})
    for key, array in arrays.items():
        kind, _, name = key.partition("/")
        if kind in ("value", "weight", "curve"):
            getattr(results, f"{kind}s")[name] = array
        elif kind == "length":
            ends = np.cumsum(array)[:-1]
            parts = [np.split(arrays[f"{k}/{name}"], ends) for k in ("scores", "special", "ids")]
            results.cases[name] = [
                Case(scores, special, tuple(ids.tolist()), int(target))
                for scores, special, ids, target in zip(*parts, arrays[f"target/{name}"], strict=True)
            ]
    return results
