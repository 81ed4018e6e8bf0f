"""Results as the JSON that requests are answered with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi.responses import JSONResponse

from whence.apps.serve.game import BAND, Played
from whence.apps.serve.predict import Answer
from whence.evaluate.games import GAMES
from whence.evaluate.metrics import Measured
from whence.explainer import Explainer
from whence.explanation import Explanation
from whence.render.scale import is_signed
from whence.render.spans import gap_of, layer_names
from whence.render.words import Word, words_of


class Json(JSONResponse):
    """JSON in UTF-8; half characters, which UTF-8 cannot hold, stay the escapes that JSON has for them."""

    def render(self, content: Any) -> bytes:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "backslashreplace")


def error(sentence: str, kind: str, status: int, **headers: str) -> Json:
    return Json({"error": sentence, "kind": kind}, status, headers=headers or None)


def word_span(word: Word, word_ids: Sequence[int | None]) -> dict[str, Any]:
    return {
        "word": word_ids[word.tokens[0]],
        "text": word.text,
        "segment": word.segment,
        "start": word.start,
        "end": word.end,
    }


def explained(e: Explanation) -> dict[str, Any]:
    """`Explanation.to_dict()`, with the whole words that the page draws."""
    words = [{**word_span(w, e.word_ids), "score": w.score, "tokens": list(w.tokens)} for w in e.words()]
    return {**e.to_dict(), "words": words, "signed": is_signed(e), "layer_names": layer_names(e), "gap": gap_of(e)}


def predicted(explainer: Explainer, found: Answer, hidden: Sequence[int], hidden_by: str) -> dict[str, Any]:
    said, row = found.prediction, found.row
    labelled = zip(explainer.labels, said.probabilities, strict=True) if said.probabilities else said.alternatives
    return {
        "model": explainer.name,
        "task": explainer.task,
        "label": said.label,
        "index": said.index,
        "probability": said.probability,
        "probabilities": [list(pair) for pair in labelled],
        "target": found.target.label,
        "target_probability": found.probability,
        "words": [word_span(w, row.word_ids) for w in words_of(row, np.zeros(len(row)))],
        "hidden": sorted(set(hidden)),
        "hidden_by": hidden_by,
        "truncated": row.truncated,
    }


def played(game: Played) -> dict[str, Any]:
    outcome = game.outcome
    random: dict[str, Any] = {"draws": len(outcome.random["hiding"])}
    method: dict[str, Any] = {}
    for name in GAMES:
        curves = np.stack([curve_of(m) for m in outcome.random[name]])  # (orders, steps)
        low, high = np.percentile(curves, BAND, axis=0)
        prefix = "" if name == "hiding" else f"{name}_"
        random |= {name: curves.mean(0).tolist(), f"{prefix}low": low.tolist(), f"{prefix}high": high.tolist()}
        random[f"{name}_auc"] = float(np.mean([m.value for m in outcome.random[name]]))
        standing = outcome.standing(name)
        method |= {name: curve_of(outcome.method[name]).tolist(), f"{name}_auc": outcome.method[name].value}
        method |= {f"{name}_verdict": standing.verdict, f"{name}_p": standing.p}
    return {
        "target": game.target,
        "fractions": list(game.fractions),
        "counts": list(game.counts),
        "method": method,
        "random": random,
        "order": list(game.order),
        "hidden_by": game.hidden_by,
    }


def curve_of(measured: Measured) -> np.ndarray:
    assert measured.curve is not None
    return measured.curve
