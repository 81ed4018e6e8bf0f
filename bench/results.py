"""The tables and curves of the four papers, re-made on the embedded models: JSON, Markdown and figures in one folder.

    python -m bench.results --data DATA --out OUT [--device cuda] [--only sentiment layers …] [--limit N] [--seeds DIR …]

DATA holds sst2_dev, agnews_test, snli_test and squad2_dev_half as .jsonl, .parquet or .csv. Every table is an ordinary
`whence evaluate` into OUT/NAME, so an interrupted run goes on where it stopped; OUT/NAME.md is the page for docs/results.
matplotlib is needed for figures only: without it, `python -m bench.results --out OUT --figures` draws them later, elsewhere.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import whence
from bench import papers
from whence.evaluate import heads
from whence.evaluate.data import read
from whence.evaluate.metrics.agreement import spearman_correlation
from whence.evaluate.report import can_draw
from whence.evaluate.run import usable
from whence.evaluate.tables import as_markdown
from whence.evaluate.tune import OBJECTIVE, tune
from whence.models import layers_of
from whence.registry import all_methods
from whence.relevance.head_mask import as_mask

GROUPS = {
    "AOPC and log-odds, as the papers released them and by the equations": (
        *("aopc:attcat", "lodds:attcat-pad", "aopc:mask-lrp", "lodds:mask-lrp", "aopc:paper", "lodds:paper"),
    ),
    "Comprehensiveness and sufficiency": (
        *("comprehensiveness:alti", "sufficiency:alti", "comprehensiveness:eraser", "sufficiency:eraser"),
        *("comprehensiveness:paper", "sufficiency:paper"),
    ),
    "The hiding and the revealing game": (
        *("hiding-auc:accuracy", "revealing-auc:accuracy", "hiding-auc:probability", "revealing-auc:probability"),
    ),
    "Classes: Kendall's τ between them, tokens that they share": ("kendall:scores", "kendall:argsort", "token-overlap"),
}
METRICS = tuple(m for group in GROUPS.values() for m in group)
GAMES = (*GROUPS["The hiding and the revealing game"], "token-overlap")
FILES = {"sst2": "sst2_dev", "agnews": "agnews_test", "snli": "snli_test", "squad": "squad2_dev_half"}
SUFFIXES = (".jsonl", ".parquet", ".csv")
RATES = tuple(range(10, 101, 10))  # per cent of a head mask's zeros that are switched on


@dataclass(frozen=True)
class Options:
    data: Path
    out: Path
    device: str
    batch_tokens: int
    limit: int | None
    seeds: tuple[Path, ...]
    methods: tuple[str, ...] | None = None  # fewer than a table has by itself, for a machine without a GPU
    metrics: tuple[str, ...] = METRICS

    def file(self, name: str) -> Path:
        found = [path for suffix in SUFFIXES if (path := self.data / (FILES[name] + suffix)).exists()]
        if not found:
            raise SystemExit(f"{FILES[name]}{{{','.join(SUFFIXES)}}} is not in {self.data}")
        return found[0]

    def count(self, wanted: int) -> int:
        return min(wanted, self.limit or wanted)

    def load(self, model: str | Path) -> whence.Explainer:
        return whence.load(model, device=self.device)

    def command(self, name: str) -> str:
        """How a page is made anew."""
        more = " --seeds SEED0 SEED1 …" if name == "robustness" else ""
        more += f" \\\n  --method {' '.join(self.methods)}" if self.methods else ""
        more += f" \\\n  --metric {' '.join(self.metrics)}" if self.metrics != METRICS else ""
        return f"```console\n$ python -m bench.results --data DATA --out OUT --only {name}{more}\n```\n"

    def evaluate(
        self, name: str, explainer: whence.Explainer, data: Any, methods: Any, metrics: Any, **more: Any
    ) -> whence.Report:
        fixed: dict[str, Any] = {"output": self.out / name, "batch_tokens": self.batch_tokens}
        return whence.evaluate(explainer, data, methods, metrics, **fixed, **more)


def sentiment(o: Options) -> str:
    """Every method and metric on SST-2 dev; its texts are short enough for max-flows too."""
    explainer, count = o.load("sentiment"), o.count(872)
    every = [
        *(m.name for m in usable(explainer, read(o.file("sst2"), limit=count))),
        *(m.name for m in all_methods() if m.on_request),
    ]
    report = o.evaluate("sentiment", explainer, o.file("sst2"), o.methods or every, o.metrics, limit=count)
    return page(o.command("sentiment"), "`sentiment` on SST-2 dev", report, GROUPS, papers.SENTIMENT)


def topics(o: Options) -> str:
    """Every method and metric on AG News test."""
    report = o.evaluate("topics", o.load("topics"), o.file("agnews"), o.methods, o.metrics, limit=o.count(500))
    return page(o.command("topics"), "`topics` on AG News test", report, GROUPS, papers.TOPICS)


def nli(o: Options) -> str:
    """Every method and metric on SNLI test pairs."""
    report = o.evaluate("nli", o.load("nli"), o.file("snli"), o.methods, o.metrics, limit=o.count(500))
    return page(o.command("nli"), "`nli` on SNLI test", report, GROUPS, ())


def qa(o: Options) -> str:
    """Precision@20 on answerable questions."""
    data = [
        {
            "question": e.input["question"],
            "context": e.input["context"],
            "answer": e.input["context"][slice(*e.answer)],
            "start": e.answer[0],
        }
        for e in read(o.file("squad"))
        if e.answer is not None
    ][: o.count(300)]
    titles = ("precision-at-k:mask-lrp", "precision-at-k:attcat")
    explainer = o.load("qa")
    # hundreds of tokens each: occlusion alone of the perturbation methods, the others ask for thousands of rows a question
    methods = [m.name for m in usable(explainer, read(data)) if m.kind != "perturbation" or m.name == "occlusion"]
    report = o.evaluate("qa", explainer, data, methods, titles)
    return page(
        o.command("qa"), "`qa` on answerable SQuAD v2 dev questions", report, {"Precision@20": titles}, papers.QA
    )


def layers(o: Options) -> str:
    """Decoded saliency at every layer: figures 2, 3, 5 to 8 and 4 of the paper."""
    pages = []
    for model, file, count in (("sentiment", "sst2", 872), ("topics", "agnews", 500)):
        explainer = o.load(model)
        depth = len(layers_of(explainer.model))
        methods = ["grad-cam", "simple", "smoothgrad", "integrated-gradients"]
        methods += [
            f"{name}(layer={i})" for name in ("decoded-grad-cam", "decoded-simple") for i in range(1, depth + 1)
        ]
        report = o.evaluate(f"layers-{model}", explainer, o.file(file), methods, GAMES, limit=o.count(count))
        groups = {"The games and token overlap, layer by layer": GAMES}
        title = f"Decoded saliency by layer: `{model}`"
        pages.append(page(o.command("layers"), title, report, groups, ()) + overlap_curve(report))
    return "\n".join(pages)


def overlap_curve(report: whence.Report) -> str:
    """Figure 4 as a table: % of shared tokens among the top k."""
    curves = report.curves["token-overlap"]
    ks = [k for k in curves.grid if k in (5, 10, 20, 50, 100)]
    lines = ["", "Share of the top k tokens that two classes have in common (figure 4 of Decoded saliency):", ""]
    lines += ["| method | " + " | ".join(f"k = {k:.0f}" for k in ks) + " |", "|---|" + "---|" * len(ks)]
    for name, values in curves.lines.items():
        lines.append(f"| {name} | " + " | ".join(f"{values[curves.grid.index(k)]:.3f}" for k in ks) + " |")
    return "\n".join(lines) + "\n"


def robustness(o: Options) -> str:
    """Jaccard-25% and Spearman between models that differ by seed only (figures 7 and 8 of ALTI)."""
    if len(o.seeds) < 2:
        return "# Robustness across seeds\n\nGive two or more models: --seeds DIR DIR …\n"
    first, *others = (o.load(path) for path in o.seeds)
    methods = [
        "alti",
        "gradient",
        "gradient-x-input",
        "integrated-gradients",
        "rollout",
        "globenc",
        "norms",
        "attcat",
        "gae",
    ]
    titles = ("jaccard", "spearman")
    count = o.count(300)
    report = o.evaluate("robustness", first, o.file("sst2"), methods, titles, limit=count, models=others)
    title = f"Robustness: {len(o.seeds)} models that differ by seed, SST-2 dev"
    return page(o.command("robustness"), title, report, {"Agreement of explanations between models": titles}, ())


def masks(o: Options) -> str:
    """Mask-LRP with its own mask, random masks of as many heads, and its mask corrupted (table 1 and figure 4 of Mask-LRP)."""
    explainer = o.load("sentiment")
    own = as_mask(None, explainer.defaults.head_mask)
    folder = o.out / "head-masks"
    folder.mkdir(parents=True, exist_ok=True)
    made = {f"random-{seed}": heads.random_mask(own, seed) for seed in range(5)}
    made |= {f"corrupted-{rate}-{seed}": heads.corrupted_mask(own, rate, seed) for rate in RATES for seed in range(3)}
    for name, mask in made.items():
        mask.save(folder / f"{name}.json")
    names = {f"mask-lrp(head_mask={folder / f'{name}.json'})": name for name in made}
    titles = GROUPS["AOPC and log-odds, as the papers released them and by the equations"][2:]
    methods = ["mask-lrp", "transatt", *names]
    report = o.evaluate("masks", explainer, o.file("sst2"), methods, titles, limit=o.count(300))
    title = "Mask-LRP: its own mask, random masks, corrupted masks"
    shown = [m for m in report.rank() if m not in names]
    made_page = page(o.command("masks"), title, report, {"AOPC and log-odds": titles}, (), shown)
    return made_page + corruption(report, names, titles)


def corruption(report: whence.Report, names: dict[str, str], titles: Sequence[str]) -> str:
    """Means over seeds per rate of corruption."""
    groups: dict[str, list[str]] = {}
    for long, short in names.items():
        groups.setdefault(short.rsplit("-", 1)[0], []).append(long)
    lines = ["", "Means (± standard deviation) over seeds:", ""]
    lines += ["| mask | " + " | ".join(titles) + " |", "|---|" + "---|" * len(titles)]
    for name, members in groups.items():
        found = [[report.figures[t][m].mean for m in members] for t in titles]
        lines.append(f"| {name} | " + " | ".join(f"{np.mean(v):.3f} ± {np.std(v):.3f}" for v in found) + " |")
    return "\n".join(lines) + "\n"


def tuning(o: Options) -> str:
    """Tune on some texts, measure on others: is the choice as good as the best method there?"""
    explainer = o.load("sentiment")
    rows = [{"text": e.input, "label": e.label} for e in read(o.file("sst2"), limit=o.limit)]
    order = np.random.default_rng(0).permutation(len(rows))
    sample, held_out = ([rows[i] for i in part] for part in np.split(order, [min(200, len(rows) // 2)]))
    tuned = tune(explainer, sample, batch_tokens=o.batch_tokens)
    tuned.recipe.save(o.out / "recipe.json")
    methods = [*dict.fromkeys([tuned.recipe.title, *(row["candidate"] for row in tuned.rows)])]
    report = o.evaluate("tuning", explainer, held_out, methods, OBJECTIVE)
    lines = [f"{tuned.sentence()}", ""]
    for title in OBJECTIVE[:2]:
        own, best = report.figures[title][tuned.recipe.title], next(f for f in report.figures[title].values() if f.best)
        lines.append(
            f"Held-out {title}: {own.mean:.3f} [{own.low:.3f}, {own.high:.3f}]; the best single method has {best.mean:.3f} "
            f"[{best.low:.3f}, {best.high:.3f}]."
        )
    return page(
        o.command("tuning"),
        "Tuning: chosen on 200 texts, measured on the others",
        report,
        {"Held-out texts": OBJECTIVE},
        (),
    ) + "\n".join(["", *lines, ""])


def page(
    command: str,
    title: str,
    report: whence.Report,
    groups: dict[str, Sequence[str]],
    printed: Sequence[papers.Printed],
    methods: Sequence[str] | None = None,
) -> str:
    """One page: a table per group of metrics, then the papers' figures beside ours."""
    s = report.settings
    lines = [f"# {title}", "", command]
    lines.append(
        f"{s['texts']} texts, model `{s['model']}` ({s['dtype']}, {s['device']}), target: {s['target']}, seed {s['seed']}, "
        f"whence {s['whence']}. Methods are in the order of their mean rank over all metrics of the page."
    )
    for group, titles in groups.items():
        chosen = {t: report.figures[t] for t in titles if t in report.figures}
        if chosen:
            lines += ["", f"## {group}", "", as_markdown(methods or report.rank(), chosen, report.better)]
    beside = compared(report, printed)
    if beside:
        lines += ["## Beside the papers", "", *beside]
    return "\n".join(lines) + "\n"


def compared(report: whence.Report, printed: Sequence[papers.Printed]) -> list[str]:
    """Each printed column with ours, and the rank correlation of the two orderings."""
    lines: list[str] = []
    for column in printed:
        ours = report.figures.get(column.metric, {})
        methods = [m for m in column.figures if m in ours]
        if len(methods) < 3:
            continue
        theirs = np.array([column.figures[m] for m in methods])
        means = np.array([ours[m].mean for m in methods])
        best = (np.argmax, np.argmin)[report.better[column.metric] == "lower"]
        rho = spearman_correlation(theirs, means)
        same = "the same" if best(theirs) == best(means) else "another"
        lines += [
            f"**{column.metric}** — {column.source}",
            "",
            "| | " + " | ".join(methods) + " |",
            "|---|" + "---|" * len(methods),
        ]
        lines.append("| printed | " + " | ".join(f"{v:.3f}" for v in theirs) + " |")
        lines.append("| here | " + " | ".join(f"{v:.3f}" for v in means) + " |")
        lines += [
            "",
            f"Rank correlation of the two orderings {rho:+.2f}; {same} method is best ({methods[best(theirs)]} there, {methods[best(means)]} here).",
            "",
        ]
    return lines


TABLES: dict[str, Callable[[Options], str]] = {
    f.__name__: f for f in (sentiment, topics, nli, qa, layers, robustness, masks, tuning)
}


def draw(out: Path) -> None:
    """Figures of every report in the folder."""
    for file in sorted(out.glob("*/report.json")):
        report = whence.Report.from_dict(json.loads(file.read_text(encoding="utf-8")))
        report.save(file.parent)
        print(f"{file.parent.name}: {len(report.curves)} figures")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-tokens", type=int)
    parser.add_argument("--limit", type=int, help="at most so many texts per table")
    parser.add_argument("--seeds", type=Path, nargs="*", default=[], help="models that differ by seed only")
    parser.add_argument("--method", nargs="+", help="of sentiment, topics and nli only these")
    parser.add_argument("--metric", nargs="+", choices=METRICS, default=METRICS, help="of these three only these")
    parser.add_argument("--only", nargs="*", choices=TABLES, default=list(TABLES))
    parser.add_argument("--figures", action="store_true", help="only draw the curves of finished tables")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    if given.figures:
        if not can_draw():
            raise SystemExit("figures need matplotlib")
        draw(given.out)
        return
    if given.data is None:
        parser.error("--data is needed")
    tokens = given.batch_tokens or (131_072 if given.device.startswith("cuda") else 8192)
    options = Options(
        data=given.data,
        out=given.out,
        device=given.device,
        batch_tokens=tokens,
        limit=given.limit,
        seeds=tuple(given.seeds),
        methods=tuple(given.method) if given.method else None,
        metrics=tuple(given.metric),
    )
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.only:
        started = time.monotonic()
        text = TABLES[name](options)
        (given.out / f"{name}.md").write_text(text, encoding="utf-8")
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
