"""perturb: many forwards of changed rows, scheduled together; what the perturbation methods and the metrics share."""

from whence.perturb.game import Game, Play, Question, Text
from whence.perturb.rows import Rows, Units, delete, hide, replace, units_of
from whence.perturb.run import run_perturbations
from whence.perturb.scheduler import Values, score_rows

__all__ = [
    "Game",
    "Play",
    "Question",
    "Rows",
    "Text",
    "Units",
    "Values",
    "delete",
    "hide",
    "replace",
    "run_perturbations",
    "score_rows",
    "units_of",
]
