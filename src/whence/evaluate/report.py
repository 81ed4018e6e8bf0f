"""What an evaluation found: a figure with its interval per method and metric, curves, a ranking; saved in every format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whence.corpus.bad_rows import BadRow
from whence.errors import UnknownName, WhenceError
from whence.evaluate import statistics
from whence.evaluate.data import Sample
from whence.evaluate.engine import BASELINE, Plan, Results
from whence.evaluate.metrics.overlap import Corpus
from whence.evaluate.metrics.registry import Metric
from whence.evaluate.statistics import Figure
from whence.evaluate.tables import ARROWS, as_csv, as_latex, as_markdown, cell, csv_text
from whence.render.curves import Curve, curves_figure
from whence.render.table import Table
from whence.render.tables import table_figure
from whence.run.provenance import write_whole

Floats = NDArray[np.float64]

CORPUS_RESAMPLES = 200
LINES, WIDE = 8, 5.5  # how many curves one figure holds, and its width in inches
FORMATS = {"markdown": as_markdown, "latex": as_latex, "csv": as_csv}


@dataclass(frozen=True)
class Curves:
    """One metric's mean curve per method."""

    metric: str
    grid: tuple[float, ...]
    lines: dict[str, tuple[float, ...]]  # method → one value per point of the grid
    spread: dict[str, tuple[float, ...]] = field(default_factory=dict)  # half the 95% interval of each mean

    def drawn(self, name: str) -> Curve:
        """One line as plain data; shares of a text in percent."""
        scale = 100.0 if self.is_share else 1.0
        mean = np.array(self.lines[name])
        curve: Curve = {"x": scale * np.array(self.grid), "mean": mean}
        if name in self.spread:
            curve |= {"low": mean - self.spread[name], "high": mean + self.spread[name]}
        return curve

    @property
    def is_share(self) -> bool:
        return max(self.grid, default=0) <= 1


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


@dataclass(frozen=True)
class Report:
    """Figures of every method by every metric."""

    figures: dict[str, dict[str, Figure]]  # metric → method
    values: dict[str, dict[str, Floats]]  # metric → method → (rows,), NaN where a row was not measured
    curves: dict[str, Curves]  # metric → its mean curves
    better: dict[str, str]  # metric → "higher" or "lower"
    settings: dict[str, Any]
    errors: tuple[BadRow, ...] = ()  # rows of the data that could not be read; their values are NaN

    def in_place(self, sample: Sample) -> Report:
        """With a value for every row of the data: NaN where one could not be read."""
        if not sample.bad:
            return self

        def spread(values: Floats) -> Floats:
            every = np.full(sample.total, np.nan)
            every[sample.rows] = values
            return every

        values = {m: {name: spread(v) for name, v in own.items()} for m, own in self.values.items()}
        return replace(self, values=values, errors=sample.bad)

    @property
    def methods(self) -> list[str]:
        return list(next(iter(self.figures.values())))

    @property
    def metrics(self) -> list[str]:
        return list(self.figures)

    def rank(self, metric: str | None = None) -> list[str]:
        """Methods from the best to the worst by one metric, or by the mean of their ranks over all of them."""
        if metric is not None and metric not in self.figures:
            raise UnknownName("metric of this report", metric, self.figures)
        return sorted(self.methods, key=self.mean_ranks([metric] if metric else self.metrics).__getitem__)

    def mean_ranks(self, metrics: list[str] | None = None) -> dict[str, float]:
        """Each method's mean rank over metrics (1 is best); metrics that measured nothing do not count."""
        rows = []
        for metric in metrics or self.metrics:
            means = np.array([f.mean for f in self.figures[metric].values()])
            if np.isfinite(means).all():
                rows.append(statistics.ranks(means, self.better[metric]))
        mean = np.mean(rows, axis=0) if rows else np.zeros(len(self.methods))
        return dict(zip(self.methods, mean.tolist(), strict=True))

    def table(self, format: str | None = None) -> Any:
        """One row per method, best first; as a Table, or as text in "markdown", "latex" or "csv".

        The best of a column is marked *, and what is not significantly different from it (paired permutation test, Holm) ≈.
        """
        if format is None:
            return Table(
                {"method": name, **{m: cell(self.figures[m][name]) for m in self.metrics}} for name in self.rank()
            )
        if format not in FORMATS:
            raise UnknownName("format", format, FORMATS)
        return FORMATS[format](self.rank(), self.figures, self.better)

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()  # type: ignore[no-any-return]

    def figure(self, metric: str | None = None, methods: Sequence[str] | None = None, *, theme: str = "light") -> Any:
        """A matplotlib figure of a metric's curves: of these methods, or of the best ones and the random baseline.

        Without a metric, the table as a heat map: methods × metrics, best method first.
        """
        if metric is None:
            means = {n: {m: self.figures[m][n].mean for m in self.metrics} for n in methods or self.rank()}
            return table_figure(means, {m: way == "higher" for m, way in self.better.items()}, theme=theme)
        if metric not in self.curves:
            raise UnknownName("metric with a curve", metric, self.curves)
        curves = self.curves[metric]
        for name in methods or ():
            if name not in curves.lines:
                raise UnknownName("method of this report", name, curves.lines)
        ranked = [name for name in self.rank(metric) if name != BASELINE][: LINES - 1]
        chosen = methods or [*ranked, *([BASELINE] if BASELINE in curves.lines else [])]
        lines = {name: curves.drawn(name) for name in chosen}
        share = "% of tokens, strongest first" if curves.is_share else "k strongest tokens"
        return curves_figure(lines, share, f"{metric} {ARROWS[self.better[metric]]}", width=WIDE, theme=theme)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, ready for JSON; NaN is null."""
        return {
            "settings": self.settings,
            "errors": [row.to_dict() for row in self.errors],
            "better": self.better,
            "figures": {m: {name: plain(asdict(f)) for name, f in own.items()} for m, own in self.figures.items()},
            "curves": {m: plain(asdict(c)) for m, c in self.curves.items()},
            "values": {m: {name: plain(v.tolist()) for name, v in own.items()} for m, own in self.values.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        """The inverse of `to_dict`."""
        return cls(
            {m: {n: Figure(**nan(f)) for n, f in own.items()} for m, own in data["figures"].items()},
            {m: {n: np.array(nan(v), dtype=np.float64) for n, v in own.items()} for m, own in data["values"].items()},
            {m: Curves(**nan(c)) for m, c in data["curves"].items()},
            dict(data["better"]),
            dict(data["settings"]),
            tuple(BadRow(**row) for row in data.get("errors", ())),
        )

    def save(self, folder: str | Path) -> None:
        """report.json (everything), table.md, table.tex, table.csv, values.csv, and a figure per curve if matplotlib is here."""
        path = Path(folder)
        try:
            path.mkdir(parents=True, exist_ok=True)
            write_whole(path / "report.json", json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False).encode())
            for format, suffix in (("markdown", "md"), ("latex", "tex"), ("csv", "csv")):
                write_whole(path / f"table.{suffix}", self.table(format).encode())
            write_whole(path / "values.csv", self.values_csv().encode())
            self._save_figures(path)
        except OSError as error:
            raise WhenceError(
                f"the report could not be written to {str(folder)!r}: {error.strerror or error}."
            ) from error

    def _save_figures(self, path: Path) -> None:
        for metric in self.curves if can_draw() else ():
            self.figure(metric).savefig(path / f"{metric.replace(':', '-')}.svg", metadata={"Date": None})

    def values_csv(self) -> str:
        """Every number: text, method, metric, value."""
        rows = [
            [str(i), name, metric, repr(float(v))]
            for metric, own in self.values.items()
            for name, values in own.items()
            for i, v in enumerate(values)
            if np.isfinite(v)
        ]
        return csv_text([["text", "method", "metric", "value"], *rows])


def plain(value: Any) -> Any:
    """NaN and infinity have no JSON: null."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: nan(v) for k, v in value.items()}
    if isinstance(value, list):
        return [nan(v) for v in value]
    return float("nan") if value is None else value


def report_of(plan: Plan, results: Results, settings: dict[str, Any]) -> Report:
    """Figures, intervals and tests from per-text numbers."""
    figures: dict[str, dict[str, Figure]] = {}
    values: dict[str, dict[str, Floats]] = {}
    curves: dict[str, Curves] = {}
    names = plan.names
    for metric in plan.metrics:
        title = metric.title
        if metric.over == "corpus":
            figures[title], curves[title] = over_corpus(metric, plan, results)
            continue
        values[title] = dict(zip(names, results.values[title], strict=True))
        figures[title] = statistics.compare(values[title], results.weights[title], metric.better, plan.seed)
        if title in results.curves:
            measured = np.isfinite(results.curves[title]).all((0, 2))
            found = results.curves[title][:, measured] if measured.any() else results.curves[title][:, :1]
            half = 1.96 * found.std(1) / np.sqrt(found.shape[1])
            mean, spread = (
                {n: tuple(c.tolist()) for n, c in zip(names, a, strict=True)} for a in (found.mean(1), half)
            )
            curves[title] = Curves(title, tuple(metric.grid() or ()), mean, spread)
    return Report(figures, values, curves, {m.title: m.better for m in plan.metrics}, settings)


def over_corpus(metric: Metric, plan: Plan, results: Results) -> tuple[dict[str, Figure], Curves]:
    """A metric of all texts at once: its value, and its values on bootstrap samples of the texts."""
    n = len(next(iter(results.cases.values()))) // (plan.draws if plan.names == [BASELINE] else 1)
    draws = statistics.resamples(n, plan.seed, CORPUS_RESAMPLES)
    found: dict[str, float] = {}
    samples: dict[str, Floats] = {}
    curves: dict[str, tuple[float, ...]] = {}
    for name in plan.names:
        turns = plan.draws if name == BASELINE else 1
        sets = [Corpus(results.cases[name][turn::turns]) for turn in range(turns)]
        measured = [metric(cases, np.ones(n)) for cases in sets]
        found[name] = float(np.mean([m.value for m in measured]))
        curves[name] = tuple(np.mean([m.curve for m in measured], axis=0).tolist())
        samples[name] = np.array([metric(sets[k % turns], weights).value for k, weights in enumerate(draws)])
    grid = metric.grid() or ()
    return statistics.compare_samples(found, samples, n, metric.better), Curves(metric.title, tuple(grid), curves)
