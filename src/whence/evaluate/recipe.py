"""A recipe: the method and options found best for a model, in a small JSON file that `load` and `whence explain` take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from whence.errors import InputError, WhenceError
from whence.evaluate.candidates import Candidate
from whence.registry import get_method
from whence.run.provenance import write_whole


@dataclass(frozen=True)
class Recipe:
    """Which method to explain a model with, and why."""

    method: str
    options: dict[str, Any]
    model: str
    tuned: dict[str, dict[str, Any]] = field(default_factory=dict)  # every tried method's own best options
    objective: tuple[str, ...] = ()
    texts: int = 0
    sure: float | None = None  # bootstrap probability of being the best of the finalists
    ms_per_text: float | None = None
    whence: str = ""

    @property
    def title(self) -> str:
        return Candidate(self.method, self.options).title

    def save(self, file: str | Path) -> None:
        try:
            write_whole(Path(file), (json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n").encode())
        except OSError as error:
            raise WhenceError(
                f"the recipe could not be written to {str(file)!r}: {error.strerror or error}."
            ) from error


def read_recipe(recipe: str | Path | Recipe | Mapping[str, Any]) -> Recipe:
    """A recipe from its file (or as it is), checked: the method exists and takes the options."""
    if isinstance(recipe, Recipe):
        found = recipe
    else:
        if not isinstance(recipe, (str, Path, Mapping)):
            raise InputError(f"recipe= takes a file that `whence tune` wrote, got {type(recipe).__name__}.")
        given = recipe if isinstance(recipe, Mapping) else parsed(Path(recipe))
        if not isinstance(given.get("method"), str):
            raise InputError("a recipe names a 'method'; `whence tune` writes one.")
        known = Recipe.__dataclass_fields__
        for name, value in options_in(given):
            if not isinstance(value, Mapping):
                raise InputError(f"a recipe's {name} must be an object of options, got {type(value).__name__}.")
        found = Recipe(**{"options": {}, "model": "", **{k: v for k, v in given.items() if k in known}})
    get_method(found.method).check(found.options)
    for name, options in found.tuned.items():
        get_method(name).check(options)
    return found


def options_in(given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What of a recipe must be options: its own, the table of tuned methods, and every entry of that."""
    tuned = given.get("tuned", {})
    own = [("options", given.get("options", {})), ("tuned", tuned)]
    return own + ([(f"tuned {name}", value) for name, value in tuned.items()] if isinstance(tuned, Mapping) else [])


def parsed(file: Path) -> Mapping[str, Any]:
    try:
        given = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"the recipe {str(file)!r} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"the recipe {str(file)!r} is not JSON: {error}.") from error
    if not isinstance(given, Mapping):
        raise InputError(f"the recipe {str(file)!r} must be a JSON object; `whence tune` writes one.")
    return given
