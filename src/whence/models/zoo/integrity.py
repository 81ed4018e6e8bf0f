"""Are the embedded models' files those that were published? `SHA256SUMS` beside them says what they must be.

`python -m whence.models.zoo.integrity` writes that file anew, after the models were changed on purpose; `sha256sum -c` reads it too.
"""

from __future__ import annotations

import hashlib

from whence.models.zoo.catalogue import ROOT

SUMS = ROOT / "SHA256SUMS"
KINDS = (".safetensors", ".json")


def sums() -> dict[str, str]:
    """The hash of every weight, configuration, tokenizer and head mask, by its path inside the zoo."""
    files = sorted(f for f in ROOT.rglob("*") if f.suffix in KINDS)
    return {f.relative_to(ROOT).as_posix(): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def damaged() -> list[str]:
    """What is not as published: files that are missing, changed, or not known.

    >>> damaged()
    []
    """
    here = sums()
    lines = SUMS.read_text(encoding="utf-8").splitlines() if SUMS.exists() else []
    published = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    return [name for name in sorted({*here, *published}) if here.get(name) != published.get(name)]


if __name__ == "__main__":
    SUMS.write_text("".join(f"{digest}  {name}\n" for name, digest in sums().items()), encoding="utf-8")
