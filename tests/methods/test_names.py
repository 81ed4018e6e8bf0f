"""No room but methods/ names a method: what others must know of one, it declares. Names of defaults are the exceptions, with why."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import whence
from whence.registry import OWN, all_methods

SOURCE = Path(whence.__file__).parent
NAMES = [m.name for m in all_methods() if m.function.__module__.startswith(OWN)]
WORDS = {
    "random",
    "gradient",
    "norms",
    "simple",
    "cat",
    "relevance",
}  # of English too: named only where they are all of a string

# file → names that may stand in its strings, and why
PAPERS = "presets of metrics, called by the papers that measure so"
RULES = "names of relevance rule sets, which methods take as an option"
HELP = "a default that the command line shows before anything heavy is imported"
ALLOWED: dict[str, tuple[set[str], str]] = {
    "explainer.py": ({"attnlrp", "gae"}, "the default method and the one to fall back on"),
    "apps/cli/classes.py": ({"attnlrp"}, HELP),
    "apps/cli/corpus.py": ({"attnlrp"}, HELP),
    "apps/cli/main.py": ({"attnlrp"}, HELP),
    "apps/cli/compare.py": ({"attnlrp", "attcat", "gae", "alti", "rollout", "gradient"}, HELP),
    "apps/doctor.py": ({"attnlrp", "gae"}, "the defaults, whose scores are known on every machine"),
    "apps/serve/answers.py": ({"random"}, "a field of the answer: random orders"),
    "evaluate/engine.py": ({"random"}, "the baseline of every report"),
    "evaluate/metrics/agreement.py": ({"attcat", "mask-lrp"}, PAPERS),
    "evaluate/metrics/erasure.py": ({"attcat", "mask-lrp", "alti"}, PAPERS),
    "relevance/rules.py": ({"lrp", "attnlrp"}, RULES),
    "relevance/deeplift.py": ({"deeplift"}, RULES),
    "relevance/operations.py": ({"gradient"}, "what a backward carries"),
}


def strings(file: Path) -> Iterator[str]:
    """Every string of a module but its docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    lone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in lone:
            yield node.value


def named(text: str) -> set[str]:
    """The methods that a string names."""
    return {
        name
        for name in NAMES
        if text == name or (name not in WORDS and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text))
    }


def found() -> dict[str, set[str]]:
    files = {file.relative_to(SOURCE).as_posix(): file for file in sorted(SOURCE.rglob("*.py"))}
    return {
        name: names
        for name, file in files.items()
        if not name.startswith("methods/") and (names := set().union(*map(named, strings(file))))
    }


def test_no_other_room_names_a_method() -> None:
    strangers = {file: names - ALLOWED.get(file, (set(), ""))[0] for file, names in found().items()}
    assert not {file: names for file, names in strangers.items() if names}, "let the method declare it (whence.method)"


def test_what_is_allowed_is_there() -> None:
    names = found()
    assert {file: allowed for file, (allowed, _) in ALLOWED.items()} == {
        file: names.get(file, set()) for file in ALLOWED
    }


def test_names_are_found() -> None:
    assert named("methods that need none still work: gae, integrated-gradients.") == {"gae", "integrated-gradients"}
    assert named("cat") == {"cat"}
    assert named("random words and their gradient, lrp-like") == set()
