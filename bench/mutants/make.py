"""Changes to the sources by mutmut's operators, as text patches: `python -m bench.mutants.make --output mutants.json`.

mutmut itself leaves decorated functions alone, and every method of whence is decorated; here they are changed too. Left out as
in mutmut: annotations, decorators, calls of len and isinstance, default values that are computed, code outside functions.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

ROOT = Path(__file__).parents[2]
TARGETS = ("src/whence/methods", "src/whence/evaluate/metrics", "src/whence/relevance/rules.py")
CUDA_ONLY = ("mixing_triton.py",)  # Triton kernels: no test without a GPU can run them
NEVER_CALLS = ("len", "isinstance")


class Changes(cst.CSTVisitor):
    """Every (node, changed node, line) inside functions."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        self.found: list[tuple[cst.CSTNode, cst.CSTNode, int, str]] = []
        self.functions: list[str] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, (cst.Annotation, cst.Decorator)) or computed_default(node) or never_changed(node):
            return False
        if isinstance(node, cst.FunctionDef):
            self.functions.append(node.name.value)
        elif self.functions:
            line = self.get_metadata(PositionProvider, node).start.line
            for kind, operator in mutation_operators:
                if isinstance(node, kind):
                    self.found += [(node, changed, line, operator.__name__) for changed in operator(node)]
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, cst.FunctionDef):
            self.functions.pop()


def computed_default(node: cst.CSTNode) -> bool:
    plain = (cst.Name, cst.BaseNumber, cst.BaseString)
    return isinstance(node, cst.Param) and node.default is not None and not isinstance(node.default, plain)


def never_changed(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in NEVER_CALLS


def patches(file: Path) -> Iterator[dict[str, Any]]:
    """Every change of one file: characters [start, end) of it become `text`."""
    code = file.read_text(encoding="utf-8")
    wrapper = MetadataWrapper(cst.parse_module(code), unsafe_skip_copy=True)
    visitor = Changes()
    wrapper.visit(visitor)
    for node, changed, line, operator in visitor.found:
        new = wrapper.module.deep_replace(node, changed).code  # type: ignore[union-attr]
        try:
            compile(new, str(file), "exec")
        except SyntaxError:
            continue
        start, end = difference(code, new)
        text = new[start : len(new) - (len(code) - end)]
        if new != code:
            name = file.relative_to(ROOT).as_posix()
            yield {"file": name, "line": line, "operator": operator, "start": start, "end": end, "text": text}


def difference(old: str, new: str) -> tuple[int, int]:
    """The characters [start, end) of `old` outside of which both are the same.

    >>> difference("a + b", "a - b")
    (2, 3)
    """
    shorter = min(len(old), len(new))
    start = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    same = 0
    while same < shorter - start and old[-1 - same] == new[-1 - same]:
        same += 1
    return start, len(old) - same


def sources() -> list[Path]:
    found = [f for t in TARGETS for f in ([ROOT / t] if t.endswith(".py") else sorted((ROOT / t).glob("*.py")))]
    return [f for f in found if f.name not in CUDA_ONLY]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    every = [patch for file in sources() for patch in patches(file)]
    chosen = random.Random(arguments.seed).sample(range(len(every)), min(arguments.sample, len(every)))
    sample = [{"id": i, **every[i]} for i in sorted(chosen)]
    arguments.output.write_text(json.dumps({"seed": arguments.seed, "of": len(every), "mutants": sample}, indent=1))
    print(f"{len(sample)} of {len(every)} changes, seed {arguments.seed} → {arguments.output}")


if __name__ == "__main__":
    main()
