"""A head mask: which heads of which layers relevance may pass through (Mask-LRP), with where it came from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whence.errors import InputError, WhenceError
from whence.inputs.numbers import seed_of
from whence.relevance.gates import Grid

FORMAT = "whence head mask 1"


@dataclass(frozen=True)
class HeadMask:
    """ℳ = ℳ_synt + ℳ_pos, counts by layer and head (Mask-LRP eq. 6); a mask given as one table has one part."""

    parts: tuple[Grid, ...]  # each (L, H): the syntactic and the positional counts, or the one table that was given
    source: str = "given"
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def array(self) -> NDArray[np.float64]:
        """The whole mask, (L, H)."""
        total: NDArray[np.float64] = np.asarray(self.parts, dtype=np.float64).sum(0)
        return total

    @property
    def count(self) -> int:
        """How many heads are in the mask."""
        return int(np.count_nonzero(self.array))

    def to_dict(self) -> dict[str, Any]:
        """What an Explanation keeps of it."""
        names = ("syntactic", "positional") if len(self.parts) == 2 else ("heads",)
        tables = {name: [list(row) for row in part] for name, part in zip(names, self.parts, strict=True)}
        return {"source": self.source, **tables}

    def save(self, file: str | Path) -> None:
        """Write the mask as JSON, one line per layer, with its provenance."""
        data = {"format": FORMAT, **self.to_dict(), "provenance": self.provenance}
        del data["source"]
        try:
            Path(file).write_text(compact(data) + "\n", encoding="utf-8")
        except OSError as error:
            raise WhenceError(f"{str(file)!r} could not be written: {error.strerror or error}.") from error


def compact(data: dict[str, Any]) -> str:
    """JSON with a line per key and a line per row of a table."""
    lines = []
    for key, value in data.items():
        if isinstance(value, list) and value and isinstance(value[0], list):
            rows = ",\n  ".join(json.dumps(row) for row in value)
            lines.append(f'"{key}": [\n  {rows}\n ]')
        elif isinstance(value, dict):
            inner = ",\n  ".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in value.items())
            lines.append(f'"{key}": {{\n  {inner}\n }}')
        else:
            lines.append(f'"{key}": {json.dumps(value, ensure_ascii=False)}')
    return "{\n " + ",\n ".join(lines) + "\n}"


def load_mask(file: str | Path, source: str | None = None) -> HeadMask:
    """Read a mask written by `HeadMask.save` or `whence heads`."""
    try:
        data = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"the head mask {str(file)!r} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{str(file)!r} is no JSON file: {error}.") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f"{str(file)!r} is no head mask; `whence heads` writes them (format {FORMAT!r}).")
    names = ("syntactic", "positional") if "syntactic" in data else ("heads",)
    lacking = [name for name in names if name not in data]
    if lacking:
        raise InputError(f"the head mask {str(file)!r} lacks {lacking[0]!r}; `whence heads` writes them whole.")
    parts = tuple(grid(data[name]) for name in names)
    if len({np.shape(part) for part in parts}) > 1:
        raise InputError(f"the tables of the head mask {str(file)!r} differ in layers or heads.")
    provenance = data.get("provenance")
    return HeadMask(parts, source or str(file), provenance if isinstance(provenance, dict) else {})


def grid(values: Any) -> Grid:
    """(L, H) counts as nested tuples."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.empty(0)
    if array.ndim != 2 or not array.size or not np.isfinite(array).all() or (array < 0).any():
        raise InputError("a head mask is a table of layers × heads with numbers from 0 up, such as [[0, 1], [1, 1]].")
    return tuple(tuple(int(v) if v == int(v) else float(v) for v in row) for row in array)


def as_mask(given: Any, embedded: Path | None = None) -> HeadMask:
    """The mask meant: one given as such, as a table, as a file; or with None the embedded model's own."""
    if isinstance(given, HeadMask):
        return given
    if given is None:
        if embedded is None or not embedded.exists():
            raise InputError(
                "no head mask is given and this model comes with none: make one with `whence heads FILE.conllu --model … "
                "--output MASK.json` and pass head_mask='MASK.json', or pass a table of layers × heads."
            )
        return load_mask(embedded, f"embedded ({embedded.stem})")
    if isinstance(given, (str, Path)):
        return load_mask(given)
    return HeadMask((grid(given.tolist() if hasattr(given, "tolist") else given),))


def random_mask(like: HeadMask, seed: int = 0) -> HeadMask:
    """As many heads as `like`, drawn at random, once each: the paper's Random baseline (Tab. 1)."""
    shape = like.array.shape
    chosen = np.random.default_rng(seed_of(seed)).permutation(like.array.size)[: like.count]
    flat = np.zeros(like.array.size)
    flat[chosen] = 1
    return HeadMask((grid(flat.reshape(shape)),), f"random ({like.count} heads, seed {seed})")


def corrupted_mask(mask: HeadMask, percent: float, seed: int = 0) -> HeadMask:
    """`mask` with `percent` % of its zeros switched on, drawn at random (§5.4, Fig. 4); at 100 no head is masked out."""
    if not 0 <= percent <= 100:
        raise InputError(f"percent={percent!r}: give a number from 0 to 100.")
    flat = mask.array.reshape(-1).copy()
    zeros = np.random.default_rng(seed_of(seed)).permutation(np.flatnonzero(flat == 0))
    flat[zeros[: round(percent / 100 * len(zeros))]] = 1
    table = grid(flat.reshape(mask.array.shape))
    return HeadMask((table,), f"{mask.source}, {percent:g}% corrupted (seed {seed})")


def ones_mask(shape: Sequence[int]) -> HeadMask:
    """No head is masked out: Mask-LRP's `paper` variant is then `transatt`."""
    return HeadMask((grid(np.ones(tuple(shape))),), "all ones")
