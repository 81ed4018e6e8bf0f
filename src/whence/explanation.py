"""The result: one score per token, with everything needed to read, draw, store and repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whence.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Word:
    """A whole word with the summed score of its pieces."""

    text: str
    score: float
    tokens: tuple[int, ...]  # which tokens it is made of
    segment: int  # 0 = text, 1 = pair
    start: int  # characters [start, end) in its segment
    end: int


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

    def __len__(self) -> int:
        return len(self.tokens)

    def words(self) -> list[Word]:
        """Whole words, special tokens left out; a word's score is the sum of its pieces' scores."""
        groups: dict[int, list[int]] = {}
        for i, number in enumerate(self.word_ids):
            if number is not None and not self.special[i]:
                groups.setdefault(number, []).append(i)
        return [self._word(pieces) for pieces in groups.values()]

    def _word(self, pieces: list[int]) -> Word:
        segment = self.segments[pieces[0]] or 0
        source = self.pair if segment == 1 else self.text
        start, end = self.offsets[pieces[0]][0], self.offsets[pieces[-1]][1]
        if source is not None and end > start:
            text = source[start:end]
            start, end, text = start + len(text) - len(text.lstrip()), end, text.strip() or text
        else:
            text = "".join(plain_piece(self.tokens[i]) for i in pieces)
        return Word(text, float(self.scores[pieces].sum()), tuple(pieces), segment, start, end)

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
            "method": self.method,
            "options": self.options,
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
        missing = sorted({"tokens", "scores", "target", "target_index", "method", "input_ids", "special"} - set(data))
        if missing:
            raise InputError(f"this is not a stored Explanation: it lacks {', '.join(missing)}.")
        n = len(data["tokens"])
        dtype = np.dtype(data.get("dtype", "float32"))
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
            probability=data.get("probability"),
            method=data["method"],
            options=dict(data.get("options") or {}),
            layers=None if layers is None else np.asarray(layers, dtype=dtype),
            matrices=None if matrices is None else {k: np.asarray(m, dtype=dtype) for k, m in matrices.items()},
            text=data.get("text"),
            pair=data.get("pair"),
            truncated=bool(data.get("truncated", False)),
            prediction=data.get("prediction"),
            model=data.get("model"),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Explanation) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.input_ids, self.method, self.target_index))

    def __repr__(self) -> str:
        best = ", ".join(f"{w.text!r} {w.score:+.3g}" for w in self.top(3))
        p = "" if self.probability is None else f" (p={self.probability:.3f})"
        return f"<Explanation of {self.target!r}{p} by {self.method}: {best}>"

    def to_text(self, *, color: bool | None = None, pieces: bool = False, width: int | None = None) -> str:
        """Highlighted text for a terminal. color=None colours on a terminal that allows it, and is plain elsewhere."""
        from whence.render.terminal import explanation_text

        return explanation_text(self, color=color, pieces=pieces, width=width)

    def to_html(self, *, pieces: bool = False) -> str:
        """A self-contained HTML fragment: no script, no network; hover a word for its score and rank."""
        from whence.render.html import explanation_html

        return explanation_html(self, pieces=pieces)

    def _repr_html_(self) -> str:
        return self.to_html()

    def figure(self) -> Figure:
        """A matplotlib figure: words over layers where the method has layers, a bar per word elsewhere."""
        from whence.render.figures import explanation_figure

        return explanation_figure(self)


def plain_piece(token: str) -> str:
    """A piece as people would read it: without the tokenizer's own marks."""
    return token.removeprefix("##").lstrip("Ġ▁").removesuffix("</w>")
