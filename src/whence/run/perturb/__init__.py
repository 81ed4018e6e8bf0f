"""perturb: many forwards of changed rows, scheduled together; what the perturbation methods and the metrics share."""

from whence.run.perturb.game import Coalitions, Game, Play, Text
from whence.run.perturb.rows import Rows, Units, delete, hide, replace, units_of
from whence.run.perturb.run import run_perturbations
from whence.run.perturb.scheduler import Values, score_rows

__all__ = [
    "Coalitions",
    "Game",
    "Play",
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
