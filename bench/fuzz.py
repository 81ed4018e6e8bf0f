"""Fuzz one target of `tests/fuzz/targets.py` with atheris (coverage-guided): `python -m bench.fuzz recipe -max_total_time=120`.

atheris is no part of the development set (`pip install atheris`, CPython 3.11–3.13 on Linux); `make fuzz` installs it apart.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

PACKAGES = [
    "whence.inputs",
    "whence.evaluate",
    "whence.evaluate.heads",
    "whence.explanation",
    "whence.registry",
    "whence.render",
]

with atheris.instrument_imports(include=PACKAGES):
    from tests.fuzz.targets import TARGETS

# right inputs, from which wrong ones are made
SEEDS: dict[str, list[str]] = {
    "text": ["a charming film , but the plot is slow !", "[CLS] good [SEP]"],
    "row": ['{"input_ids": [2, 7, 9, 3], "token_type_ids": [0, 0, 0, 0], "attention_mask": [1, 1, 1, 1]}'],
    "data-jsonl": [
        '{"text": "a good film", "label": 1, "rationales": [[1, 2]]}\n{"text": "a dull film", "label": "LABEL_0"}\n',
        '{"premise": "a film", "hypothesis": "a movie", "label": -1}\n',
        '{"question": "who ?", "context": "the actor", "answers": {"text": ["actor"], "answer_start": [4]}}\n',
    ],
    "data-csv": ['text,label\n"a good, film",1\na dull film,LABEL_0\n'],
    "data-tsv": ["premise\thypothesis\tlabel\na film\ta movie\t2\n"],
    "recipe": [
        '{"method": "cat", "options": {"layer": 1}, "model": "m", "tuned": {"cat": {"layer": 2}}}',
        '{"method": "occlusion", "options": {"window": 2, "replace": "mask"}, "model": "", "sure": 0.5, "texts": 3}',
    ],
    "mask": [
        '{"format": "whence head mask 1", "heads": [[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]]}',
        '{"format": "whence head mask 1", "syntactic": [[1, 0, 0, 0]], "positional": [[0, 1, 0, 0]], "provenance": {}}',
    ],
    "conllu": [
        "# text = au film\n1-2\tau\t_\t_\t_\t_\t_\t_\t_\t_\n1\tà\t_\t_\t_\t_\t3\tcase\t_\t_\n2\tle\t_\t_\t_\t_\t3\tdet\t_\t_\n3\tfilm\t_\t_\t_\t_\t0\troot\t_\tSpaceAfter=No\n"
    ],
    "stored-explanation": [
        '{"tokens": ["a", "b"], "scores": [0.5, -1], "target": "x", "target_index": 0, "method": "gae", "input_ids": [7, 8], '
        '"special": [false, true], "offsets": [[0, 1], [0, 0]], "word_ids": [0, null], "layers": [[1, 2]], "text": "a"}'
    ],
}


def main() -> None:
    name, *options = sys.argv[1:] or [""]
    if name not in TARGETS:
        sys.exit(f"name a target: {', '.join(TARGETS)}")
    corpus = Path(tempfile.mkdtemp(prefix="whence-fuzz-"))
    for number, seed in enumerate(SEEDS.get(name, [])):
        (corpus / str(number)).write_text(seed, encoding="utf-8")
    atheris.Setup([sys.argv[0], *options, str(corpus)], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
