"""The options of a method: what types they take, as their annotations say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral, Real
from types import SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np


def option_types(function: Callable[..., Any], names: Sequence[str]) -> dict[str, tuple[type, ...]]:
    """The classes in the annotations of a function's options; an option that may be anything, or says nothing, is left out.

    >>> def f(trace, *, layer: int | None = None, mask: Any = None): ...
    >>> option_types(f, ["layer", "mask"])
    {'layer': (<class 'int'>, <class 'NoneType'>)}
    """
    types: dict[str, tuple[type, ...]] = {}
    for name in names:
        annotated = SimpleNamespace(__annotations__={name: function.__annotations__.get(name, Any)})
        try:
            hint = get_type_hints(annotated, globalns=getattr(function, "__globals__", {}))[name]
        except NameError:  # known to type checkers only
            continue
        kinds = get_args(hint) if isinstance(hint, UnionType) or get_origin(hint) is Union else (hint,)
        if all(isinstance(kind, type) and get_origin(kind) is None for kind in kinds) and Any not in kinds:
            types[name] = kinds
    return types


def fits(value: Any, kinds: tuple[type, ...]) -> bool:
    """Is a value of one of the classes? A whole number will do for a float; True and False are no numbers.

    >>> fits(3, (float,)), fits(True, (int,)), fits(None, (int, type(None)))
    (True, False, True)
    """
    if isinstance(value, (bool, np.bool_)):
        return bool in kinds
    abstract = {int: Integral, float: Real}
    return isinstance(value, tuple(abstract.get(kind, kind) for kind in kinds))
