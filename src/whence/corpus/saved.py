"""What a run wrote, read back lazily: Explanations shard by shard, never the whole corpus at once."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from whence.corpus.bad_rows import BadRow
from whence.corpus.sources.runs import manifest_of, reading, shard_files, shard_of, warn_unsealed
from whence.corpus.table import SCORES
from whence.errors import InputError, UnknownName
from whence.explanation import Explanation
from whence.registry import declared_meaning
from whence.render.meaning import Meaning


class Saved:
    """A finished (or interrupted) run: `saved["gae"]` are the Explanations of one method, in the order of the rows."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self.manifest = manifest_of(directory)
        self.options: dict[str, dict[str, Any]] = {
            m["name"]: m["options"] for m in self.manifest["settings"]["methods"]
        }
        meanings = self.manifest.get("meanings", {})  # older runs do not say
        self.meanings = {
            name: Meaning.from_dict(meanings[name]) if name in meanings else declared_meaning(name, options)
            for name, options in self.options.items()
        }
        self.methods = tuple(self.options)
        self.files = shard_files(directory)
        self._sound: set[tuple[Path, int, int]] = set()  # files of which every byte was looked at, as they were then

    def __repr__(self) -> str:
        done = "" if self.complete else f", {len(self.files)} of {self.manifest['shards']} shards"
        return f"<whence run {str(self.directory)!r}: {len(self):,} rows by {', '.join(self.methods)}{done}>"

    @property
    def complete(self) -> bool:
        return len(self.files) == int(self.manifest["shards"])

    @cached_property
    def about(self) -> list[dict[str, Any]]:
        """Rows, errors, truncated texts and tokens of every shard."""
        return [shard_of(self.manifest, file) for file in self.files]

    @contextmanager
    def reading(self, file: Path) -> Iterator[None]:
        """A shard's rows are read in this block, once every byte is known to be what was written."""
        with reading(file):
            state = file.stat()
            key = file, state.st_mtime_ns, state.st_size
            if key not in self._sound:
                shard_of(self.manifest, file, whole=True)
                self._sound.add(key)
            yield

    def __len__(self) -> int:
        """Rows, those in error included."""
        return sum(int(a["rows"]) for a in self.about)

    def __iter__(self) -> Iterator[Explanation]:
        """Explanations by the first method."""
        return iter(self[self.methods[0]])

    def __getitem__(self, method: str) -> Explanations:
        if method not in self.methods:
            raise UnknownName(f"method of the run in {str(self.directory)!r}", method, self.methods)
        return Explanations(self, method)

    def errors(self) -> Iterator[tuple[int, str]]:
        """(row, sentence) of every row that could not be explained."""
        for file, about in zip(self.files, self.about, strict=True):
            if about["errors"]:
                with self.reading(file):
                    table = pq.read_table(file, columns=["row", "error"])
                    table = table.filter(pc.is_valid(table["error"]))
                yield from zip(table["row"].to_pylist(), table["error"].to_pylist(), strict=True)

    def column(self, name: str) -> Iterator[Any]:
        """A kept column, one value for every Explanation."""
        if name not in self.manifest["settings"]["keep"]:
            raise UnknownName("kept column", name, self.manifest["settings"]["keep"])
        for file in self.files:
            with self.reading(file):
                table = pq.read_table(file, columns=[name, "error"])
                values = table.filter(pc.is_null(table["error"]))[name].to_pylist()
            yield from values


class Explanations(Sequence[Explanation]):
    """The Explanations of one method; rows in error are left out. A shard or two are in memory at a time."""

    def __init__(self, saved: Saved, method: str) -> None:
        self._saved, self.method = saved, method
        self._shard = lru_cache(maxsize=2)(self._read)

    @cached_property
    def _starts(self) -> list[int]:
        """Where each shard begins, in Explanations."""
        counts = []
        for file, about in zip(self._saved.files, self._saved.about, strict=True):
            with reading(file):
                lines = pq.read_metadata(file).num_rows  # a row in error has one line; a row may have one per target
            counts.append(lines - int(about["errors"]))
        return list(accumulate(counts, initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> Explanation: ...

    @overload
    def __getitem__(self, index: slice) -> list[Explanation]: ...

    def __getitem__(self, index: int | slice) -> Explanation | list[Explanation]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"explanation {index} of {len(self)}")
        shard = bisect_right(self._starts, number) - 1
        return self._explanation(self._shard(shard)[number - self._starts[shard]])

    def __iter__(self) -> Iterator[Explanation]:
        for shard in range(len(self._saved.files)):
            for line in self._read(shard):
                yield self._explanation(line)

    @property
    def lines(self) -> int:
        """Explanations, and rows in error."""
        return len(self) + sum(int(about["errors"]) for about in self._saved.about)

    def in_place(self) -> Iterator[Explanation | BadRow]:
        """Every row in its order, those in error too."""
        for shard in range(len(self._saved.files)):
            for line in self._read(shard, errors=True):
                if line["error"] is None:
                    yield self._explanation(line)
                else:
                    place = f"{self._saved.directory.name}, row {line['row']}"
                    yield BadRow(line["row"], place, line["error"], line["text"])

    def _read(self, shard: int, errors: bool = False) -> list[dict[str, Any]]:
        """A shard's lines, with or without those in error."""
        file = self._saved.files[shard]
        unwanted = {"error", *self._saved.manifest["settings"]["keep"], SCORES}
        with self._saved.reading(file):
            names = [n for n in pq.read_schema(file).names if n not in unwanted]
            # the dots of Parquet's own column names: a method's name may hold hyphens, never dots
            table = pq.ParquetFile(file).read([*names, "error", f"{SCORES}.{self.method}"])
            lines: list[dict[str, Any]] = (table if errors else table.filter(pc.is_null(table["error"]))).to_pylist()
            return lines

    def _explanation(self, line: dict[str, Any]) -> Explanation:
        about = self._saved.manifest
        settings = about["settings"]
        facts = json.loads(line["facts"]).get(self.method, {}) if line["facts"] else {}
        return Explanation(
            tokens=tuple(line["tokens"]),
            input_ids=tuple(line["input_ids"]),
            scores=np.asarray(line[SCORES][self.method], dtype=settings["scores"]),
            special=np.asarray(line["special"], dtype=bool),
            offsets=tuple((o["start"], o["end"]) for o in line["offsets"]),
            word_ids=tuple(line["word_ids"]),
            segments=tuple(line["segments"]),
            target=line["target"],
            target_index=line["target_index"],
            probability=line["probability"],
            method=self.method,
            options={**self._saved.options[self.method], **facts},
            text=line["text"],
            pair=line["pair"],
            truncated=line["truncated"],
            prediction=line["prediction"],
            model=about["model"],
            contrast=line["contrast"],
            task=about["task"],
            meaning=self._saved.meanings[self.method],
        )


def open_run(directory: str | Path) -> Saved:
    """A directory that `whence corpus` wrote.

    >>> open_run("nowhere")
    Traceback (most recent call last):
    ...
    whence.errors.InputError: 'nowhere' holds no run: `whence corpus INPUT --output DIR` writes _manifest.json into it.
    """
    saved = Saved(directory)
    warn_unsealed(directory)
    if not saved.files:
        raise InputError(
            f"{str(directory)!r} holds no finished shard yet: run the same `whence corpus` command to go on."
        )
    return saved
