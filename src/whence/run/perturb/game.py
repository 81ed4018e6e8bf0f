"""What a perturbation method sees of one text: units to keep or to take away, and a question to ask about them.

A method is a generator. It opens a game on its text, yields questions (which units each changed row keeps), is sent one value of the
model per row, and returns the scores of the units:

    @method("leave-one-out", kind="perturbation")
    def leave_one_out(text, *, unit="token"):
        game = text.game(unit=unit)
        y = yield game.ask(~np.eye(game.units, dtype=bool))
        return game.part(-y)

So it never runs the model: the scheduler runs what all texts and all methods ask for together.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from whence.errors import InputError, NotSupported, UnknownName
from whence.inputs import Encoded
from whence.inputs.numbers import seed_of
from whence.run.perturb.rows import Bools, Rows, Units, delete, replace, units_of
from whence.trace.attribution import RowScores

Floats = NDArray[np.float64]

REPLACEMENTS = ("mask", "unk", "pad", "delete")  # in the order of preference where nothing is asked for
VALUES = ("logit", "probability")


@dataclass(frozen=True)
class Coalitions:
    """Values wanted of k changed rows."""

    game: Game
    keep: Bools  # (k, units)
    later: int  # rows that will be asked for after these, as far as is known

    @property
    def tokens(self) -> int:
        return len(self.keep) * len(self.game.text.row)


Play: TypeAlias = Generator[Coalitions, Floats, RowScores]


@dataclass(frozen=True)
class Text:
    """One row to perturb, and what may stand in for its tokens."""

    row: Encoded
    stand_ins: Mapping[str, int]  # mask, unk, pad, bos, eos: those that the model has
    task: str

    def game(
        self, *, unit: str = "token", replace: str | None = None, segment: int | None = None, of: str = "logit"
    ) -> Game:
        """Open a game: by which units the text is changed, what takes their place, and which value is asked for."""
        if of not in VALUES:
            raise UnknownName("value of=", of, VALUES)
        return Game(self, units_of(self.row, unit, segment), self._stand_in(replace), of)

    def _stand_in(self, wanted: str | None) -> str:
        if wanted is not None and wanted not in REPLACEMENTS:
            raise UnknownName("replacement", wanted, REPLACEMENTS)
        # where answers are positions, deleting would move them
        can_delete = self.task != "question-answering"
        known = [r for r in REPLACEMENTS if r in self.stand_ins or (r == "delete" and can_delete)]
        if not known:
            raise NotSupported("this model has no token that could stand in for others; load it with its tokenizer.")
        if wanted is None:
            return known[0]
        if wanted not in known:
            why = (
                f"has no {wanted} token" if wanted != "delete" else "answers with positions, which deleting would move"
            )
            raise InputError(f"replace={wanted!r}: this model {why}; it can use {', '.join(known)}.")
        return wanted


@dataclass(frozen=True)
class Game:
    """A text cut into units."""

    text: Text
    parts: Units
    replacement: str
    of: str

    @property
    def units(self) -> int:
        return self.parts.count

    def ask(self, keep: Bools, later: int = 0) -> Coalitions:
        """Yield this: the values of k rows that keep the units where `keep` (k, units) is True."""
        return Coalitions(self, keep, later)

    def draw(self, seed: int) -> np.random.Generator:
        """Random numbers that depend on the seed and the text's tokens, not on what else is explained."""
        return np.random.default_rng([seed_of(seed), *self.text.row.real_ids])

    def rows(self, keep: Bools) -> Rows:
        """The changed rows of a question."""
        kept = self.parts.tokens_kept(keep)  # (k, n)
        if self.replacement != "delete":
            return replace(self.text.row, kept, self.text.stand_ins[self.replacement])
        row = self.text.row
        places = row.places
        nothing = ~(kept & row.real)[:, : places[0] + 1 if places else None].any(1)
        if not nothing.any():
            return delete(row, kept)
        # a decoder's text has no frame of special tokens: of the empty text, or prompt, one token is left that says nothing
        first = int(row.real.argmax())  # padding before it stays
        kept[nothing, first] = True
        rows = delete(row, kept)
        rows.ids[rows.starts[nothing] + first] = self._blank()
        return rows

    def _blank(self) -> int:
        for name in ("bos", "eos", "pad", "unk", "mask"):
            if name in self.text.stand_ins:
                return self.text.stand_ins[name]
        raise NotSupported(
            "replace='delete' would leave nothing of this text, and the model has no token for an empty one: load it with "
            "its tokenizer."
        )

    def part(self, scores: Floats, stderr: Floats | None = None, **facts: Any) -> RowScores:
        """Return this: the units' scores (units,), and their standard errors where there are any.

        The pieces of a word share its score, and its standard error, equally: so `Explanation.words()` gives the unit's.
        """
        facts["replace"] = self.replacement
        if stderr is not None:
            facts["stderr"] = self.parts.to_tokens(stderr).tolist()
        return RowScores(self.parts.to_tokens(scores), options=facts)
