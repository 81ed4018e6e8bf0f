"""What a bug report should say of the machine, and whether whence works on it. Nothing here names a person, a path or a host
unless it is asked to."""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import torch

from whence.errors import WhenceError
from whence.load import load
from whence.models.zoo import names
from whence.models.zoo.integrity import damaged
from whence.run.session import free_memory
from whence.version import version_of, versions

EXTRAS = {  # what `pip install whence[extra]` brings
    "plots": ("matplotlib",),
    "clouds": ("matplotlib", "wordcloud"),
    "corpus": ("pyarrow",),
    "ray": ("ray", "pyarrow"),
    "web": ("fastapi", "uvicorn"),
    "syntax": ("stanza",),
}
TEXT = "it 's a charming and often affecting journey ."
EXPECTED = {"attnlrp": ("charming", 0.4394), "gae": ("affecting", 0.00623)}  # the strongest word, on every machine
TOLERANCE = 0.02  # relative: kernels differ a little from machine to machine
SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM")


def devices() -> list[str]:
    """Where models can run, with memory."""
    found = [f"cpu ({platform.machine()}, {os.cpu_count()} cores)"]
    for i in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(i)
        found.append(f"cuda:{i} ({card.name}, {card.total_memory / 1e9:.0f} GB, CUDA {torch.version.cuda})")
    return found


def extras() -> dict[str, str]:
    """Each extra: the versions of its packages, or which are missing."""
    found = {}
    for name, packages in EXTRAS.items():
        own = {package: version_of(package) for package in packages}
        lacking = [package for package, version in own.items() if version == "missing"]
        whole = ", ".join(f"{package} {version}" for package, version in own.items())
        found[name] = f"not installed (lacks {', '.join(lacking)})" if lacking else whole
    return found


def self_test() -> dict[str, Any]:
    """Explain a sentence with an embedded model: is the answer what it is everywhere?"""
    begun = time.perf_counter()
    try:
        found = load("sentiment").explain(TEXT, list(EXPECTED))
    except (WhenceError, OSError, RuntimeError, ValueError) as error:
        return {"works": False, "error": f"{type(error).__name__}: {' '.join(str(error).splitlines()[:1])}"}
    best = {name: e.top(1)[0] for name, e in found.items()}
    works = all(as_expected(best[name].text, best[name].score, *EXPECTED[name]) for name in EXPECTED)
    shown = {name: f"{w.text} {w.score:.4g}" for name, w in best.items()}
    return {"works": works, **shown, "seconds": round(time.perf_counter() - begun, 2)}


def as_expected(word: str, score: float, known: str, value: float) -> bool:
    """
    >>> as_expected("charming", 0.44, "charming", 0.4394), as_expected("and", 0.44, "charming", 0.4394)
    (True, False)
    """
    return word == known and abs(score - value) <= TOLERANCE * abs(value)


def report(*, paths: bool = False) -> dict[str, Any]:
    """Everything, as plain data. paths=True adds where Python and whence live."""
    free = free_memory(torch.device("cpu"))
    changed = damaged()
    found: dict[str, Any] = {
        "versions": versions(),
        "system": f"{platform.system()} {platform.release()} ({platform.machine()})",
        "devices": devices(),
        "threads": torch.get_num_threads(),
        "memory free": None if free is None else f"{free / 1e9:.1f} GB",
        "settings": {name: os.environ[name] for name in SETTINGS if name in os.environ},
        "extras": extras(),
        "embedded models": {"intact": not changed, "count": len(names()), "damaged": changed},
        "self-test": self_test(),
    }
    if paths:
        found["paths"] = {"python": sys.executable, "whence": str(Path(__file__).parents[1]), "host": platform.node()}
    return found


def healthy(found: dict[str, Any]) -> bool:
    """Nothing is missing or damaged, and the self-test gave what it gives everywhere."""
    complete = "missing" not in found["versions"].values()
    return bool(complete and found["embedded models"]["intact"] and found["self-test"]["works"])


def as_text(found: dict[str, Any]) -> str:
    """A line per fact, ready to paste.

    >>> print(as_text({"versions": {"whence": "1"}, "devices": ["cpu"]}))
    versions
      whence: 1
    devices
      cpu
    """
    lines = []
    for name, value in found.items():
        if isinstance(value, dict):
            lines += [name, *(f"  {key}: {plain(one)}" for key, one in value.items())]
        elif isinstance(value, list):
            lines += [name, *(f"  {one}" for one in value)]
        else:
            lines.append(f"{name}: {plain(value)}")
    return "\n".join(lines)


def plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {one}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "unknown" if value is None else str(value)
