"""The package itself: names come when they are asked for, and nothing heavy before."""

from __future__ import annotations

import subprocess
import sys

import pytest

import whence

HEAVY = ("torch", "transformers", "scipy", "pyarrow", "matplotlib", "ray", "fastapi")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_command_line_reads_its_arguments_before_anything_heavy_is_imported() -> None:
    assert run(f"import sys, whence.apps.cli; print([m for m in {HEAVY} if m in sys.modules])") == "[]"


def test_functions_keep_their_names_whatever_is_imported_in_which_order() -> None:
    code = "import whence.methods.mixing, whence.load, whence.evaluate.data, whence.metrics, whence.models.specs, whence; print(*"
    code += "(type(getattr(whence, n)).__name__ for n in ('load', 'methods', 'metrics', 'models', 'evaluate')), whence.__version__)"
    assert run(code) == f"{'function ' * 5}{whence.__version__}"


def test_methods_are_registered_for_who_asks_the_registry_first() -> None:
    count = (
        "from whence.registry import all_methods; from whence.evaluate.metrics.registry import get_metric; "
        "print(len(all_methods()), get_metric('aopc').name)"
    )
    assert run(count) == f"{len(whence.methods())} aopc"


def test_everything_public_is_there() -> None:
    code = "from whence import *; import whence; print([n for n in whence.__all__ if n not in globals()], 'load' in dir(whence))"
    assert run(code) == "[] True"
    assert set(whence._NAMES) | {"__version__"} == set(whence.__all__)


def test_modules_are_found_as_attributes_and_other_names_are_refused() -> None:
    assert (
        run("import whence; print(whence.explanation.Explanation.__name__, whence.errors.WhenceError.__name__)")
        == "Explanation WhenceError"
    )
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = whence.nothing
    assert not hasattr(whence, "_nothing")


def test_a_replaced_name_stays_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whence, "load", lambda name: name)
    assert whence.load("mine") == "mine"
