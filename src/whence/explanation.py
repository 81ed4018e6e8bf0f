"""The result: one score per token, with everything needed to read, draw, store and repeat it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whence.errors import InputError
from whence.render.meaning import NOT_SAID, Meaning
from whence.render.words import Word, words_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.floating[Any]]
NoneType = type(None)
Kinds = type | tuple[type, ...]
STORED = {name: np.dtype(name) for name in ("float16", "float32", "float64")}  # what scores are kept in


@dataclass(frozen=True, eq=False)
class Explanation:
    """Which tokens made the model decide for `target`. Padding is never included; special tokens are, and are marked."""

    tokens: tuple[str, ...]
    input_ids: tuple[int, ...]
    scores: Floats  # (n,) float32; float64 if the model ran in float64
    special: NDArray[np.bool_]  # (n,): [CLS], [SEP], …; scores[~special] are the text's own
    offsets: tuple[tuple[int, int], ...]  # characters [start, end) in the token's own segment
    word_ids: tuple[int | None, ...]
    segments: tuple[int | None, ...]  # 0 = text, 1 = pair, None = special
    target: str
    target_index: int
    probability: float | None  # of the target; None for regression
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    layers: Floats | None = None  # (L, n) where the method has layers
    matrices: dict[str, Floats] | None = None  # name → (L, n, n); mixing methods with matrices=True: "C" and "R"
    text: str | None = None
    pair: str | None = None
    truncated: bool = False
    prediction: str | None = None  # what the model answered, which need not be the target
    model: str | None = None
    contrast: str | None = None  # the target is explained *rather than* this
    task: str = "sequence-classification"
    meaning: Meaning = NOT_SAID  # what the method says of its scores; where it is not given, the registry is asked

    def __post_init__(self) -> None:
        """Explanations that were stored before they said what their scores mean are drawn as their method declares it today."""
        if self.meaning is NOT_SAID:
            from whence.registry import declared_meaning

            object.__setattr__(self, "meaning", declared_meaning(self.method, self.options))

    def __len__(self) -> int:
        return len(self.input_ids)

    def words(self) -> list[Word]:
        """Whole words, special tokens left out; a word's score comes from its pieces' as the method says (`meaning.combine`), by
        default their sum."""
        return words_of(self, self.scores, self.meaning.combine)

    def top(self, k: int = 10) -> list[Word]:
        """The k words that weigh most, for or against; ties go to the earlier word."""
        return sorted(self.words(), key=lambda w: -abs(w.score))[:k]

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings: ready for JSON; `from_dict` gives the same Explanation back."""
        return {
            "tokens": list(self.tokens),
            "scores": self.scores.tolist(),
            "target": self.target,
            "target_index": self.target_index,
            "probability": self.probability,
            "prediction": self.prediction,
            "contrast": self.contrast,
            "task": self.task,
            "method": self.method,
            "options": self.options,
            "meaning": self.meaning.to_dict(),
            "text": self.text,
            "pair": self.pair,
            "input_ids": list(self.input_ids),
            "special": np.asarray(self.special).tolist(),
            "offsets": [list(o) for o in self.offsets],
            "word_ids": list(self.word_ids),
            "segments": list(self.segments),
            "layers": None if self.layers is None else self.layers.tolist(),
            "matrices": None if self.matrices is None else {k: m.tolist() for k, m in self.matrices.items()},
            "truncated": self.truncated,
            "model": self.model,
            "dtype": str(self.scores.dtype),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Explanation:
        """The inverse of `to_dict`."""
        if not isinstance(data, Mapping):
            raise InputError(f"a stored Explanation is a mapping (what to_dict gives), got {type(data).__name__}.")
        missing = sorted({"tokens", "scores", "target", "target_index", "method", "input_ids", "special"} - set(data))
        if missing:
            raise InputError(f"this is not a stored Explanation: it lacks {', '.join(missing)}.")
        try:
            found = cls._from_plain(data)
        except (TypeError, ValueError, AttributeError, LookupError, OverflowError) as error:
            raise InputError(f"this is not a stored Explanation: {error}.") from error
        wrong = misfits(found)
        if wrong:
            raise InputError(f"this is not a stored Explanation: {wrong[0]} does not fit its {len(found)} tokens.")
        return found

    @classmethod
    def _from_plain(cls, data: Mapping[str, Any]) -> Explanation:
        n = len(data["tokens"])
        dtype = STORED[data.get("dtype", "float32")]
        layers = data.get("layers")
        matrices = data.get("matrices")
        return cls(
            tokens=tuple(data["tokens"]),
            input_ids=tuple(data["input_ids"]),
            scores=np.asarray(data["scores"], dtype=dtype),
            special=np.asarray(data["special"], dtype=bool),
            offsets=tuple((int(a), int(b)) for a, b in data.get("offsets") or [(0, 0)] * n),
            word_ids=tuple(data.get("word_ids") or range(n)),
            segments=tuple(data.get("segments") or [None if s else 0 for s in data["special"]]),
            target=data["target"],
            target_index=data["target_index"],
            probability=finite(data.get("probability")),
            method=data["method"],
            options=dict(data.get("options") or {}),
            layers=None if layers is None else np.asarray(layers, dtype=dtype),
            matrices=None if matrices is None else {k: np.asarray(m, dtype=dtype) for k, m in matrices.items()},
            text=data.get("text"),
            pair=data.get("pair"),
            truncated=bool(data.get("truncated", False)),
            prediction=data.get("prediction"),
            model=data.get("model"),
            contrast=data.get("contrast"),
            task=data.get("task", "sequence-classification"),
            meaning=Meaning.from_dict(data["meaning"]) if data.get("meaning") is not None else NOT_SAID,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Explanation) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.input_ids, self.method, self.target_index))

    def __repr__(self) -> str:
        best = ", ".join(f"{w.text!r} {w.score:+.3g}" for w in self.top(3))
        p = "" if self.probability is None else f" (p={self.probability:.3f})"
        return f"<Explanation of {self.target!r}{p} by {self.method}: {best}>"

    def to_text(
        self, *, color: bool | None = None, pieces: bool = False, width: int | None = None, layers: bool = False
    ) -> str:
        """Highlighted text for a terminal; layers=True shows a block per word and layer instead.

        color=None colours on a terminal that allows it, and is plain elsewhere.
        """
        from whence.render.terminal import explanation_text, layers_text

        return (layers_text if layers else explanation_text)(self, color=color, pieces=pieces, width=width)

    def to_html(self, *, pieces: bool = False, theme: str | None = None) -> str:
        """A self-contained HTML fragment: no script, no network; hover a word for its score and rank.

        theme: "light" or "dark"; None follows the reader's system.
        """
        from whence.render.html import explanation_html

        return explanation_html(self, pieces=pieces, theme=theme)

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_latex(self, *, pieces: bool = False, document: bool = True) -> str:
        """The highlighted text as a LaTeX document that needs the package xcolor only; document=False gives its body."""
        from whence.render.latex import explanation_latex

        return explanation_latex(self, pieces=pieces, document=document)

    def figure(self, kind: str | None = None, **options: Any) -> Figure:
        """A matplotlib figure, sized for a paper: "bars", "layers", "text", "matrix" or "matrices" (ALTI with matrices=True).

        kind=None gives layers where the method has them and bars elsewhere. Options: width (inches), theme ("light" or "dark"),
        pieces; rows={name: Explanation} adds rows below the layers; name= and layer= choose a matrix.
        """
        from whence.render.figures import explanation_figure

        return explanation_figure(self, kind, **options)


def misfits(e: Explanation) -> list[str]:
    """The fields of an Explanation that are not what its type says."""
    n = len(e)
    numbers = {"scores": (e.scores, (n,)), "special": (e.special, (n,))}
    if e.layers is not None:
        numbers["layers"] = (e.layers, (*e.layers.shape[:1], n))
    for name, matrix in (e.matrices or {}).items():
        numbers[f"matrices[{name!r}]"] = (matrix, (*matrix.shape[:1], n, n))
    wrong = [name for name, (array, shape) in numbers.items() if array.shape != shape or not np.isfinite(array).all()]
    per_token: dict[str, tuple[tuple[Any, ...], Kinds]] = {
        "tokens": (e.tokens, str),
        "input_ids": (e.input_ids, int),
        "offsets": (e.offsets, tuple),
        "word_ids": (e.word_ids, (int, NoneType)),
        "segments": (e.segments, (int, NoneType)),
    }
    wrong += [k for k, (v, kind) in per_token.items() if len(v) != n or not all(isinstance(x, kind) for x in v)]
    single: dict[str, tuple[Any, Kinds]] = {
        "target": (e.target, str),
        "target_index": (e.target_index, int),
        "method": (e.method, str),
        "probability": (e.probability, (int, float, NoneType)),
        **{k: (getattr(e, k), (str, NoneType)) for k in ("text", "pair", "prediction", "model", "contrast", "task")},
    }
    return wrong + [name for name, (value, kind) in single.items() if not isinstance(value, kind)]


def finite(probability: Any) -> Any:
    """A stored probability as it is, if it is one that can be shown; whether it is a number at all is for `misfits` to say."""
    # NaN, infinity and whole numbers beyond all floats are alike in this: they are not within what a float can be
    if isinstance(probability, (int, float)) and not abs(probability) <= sys.float_info.max:
        raise ValueError("its probability is no finite number")
    return probability
