"""Keep the method pages true: draw every page's picture by the page's own command, and fill in what was measured.

    python docs/methods/make.py             # figures of docs/results, and the table of the index
    python docs/methods/make.py --pictures  # and the pictures (a minute)

What a person wrote stays; only what stands between `<!-- made -->` and `<!-- end -->` is written here.
tests/docs/test_reference_pages.py holds that the pages are as this program would leave them.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
import tempfile
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

import whence

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
MADE = re.compile(r"(<!-- made -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)
FAITHFUL = ("comprehensiveness:paper", "sufficiency:paper", "hiding-auc:probability", "revealing-auc:probability")
# (page, what it was measured on, metrics)
MEASURED = (
    ("sentiment", "`sentiment`, SST-2 dev", (*FAITHFUL, "kendall:scores")),
    ("topics", "`topics`, AG News test", (*FAITHFUL, "kendall:scores")),
    ("nli", "`nli`, SNLI test", (*FAITHFUL, "kendall:scores")),
    ("qa", "`qa`, SQuAD 2 dev", ("precision-at-k:mask-lrp",)),
    ("robustness", "ten seeds, SST-2 dev", ("jaccard",)),
)

Columns = dict[str, dict[str, float]]  # metric with its arrow → method → mean


@dataclass(frozen=True)
class Row:
    """One method's figure by one metric, beside random's and the best."""

    page: str
    data: str
    metric: str  # with its arrow
    own: float
    random: float
    best: float
    best_method: str


def columns(page: str) -> Columns:
    """The tables of a result page, up to where it compares with the papers."""
    found: Columns = {}
    heads: list[str] = []
    for line in (RESULTS / f"{page}.md").read_text(encoding="utf-8").split("## Beside the papers")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| method"):
            heads = cells[1:]
        elif not line.startswith("|"):
            heads = []
        else:
            for head, cell in zip(heads, cells[1:], strict=True):
                if number := re.search(r"-?\d+\.\d+", cell):
                    found.setdefault(head, {})[cells[0]] = float(number[0])
    return found


def measured(method: str) -> list[Row]:
    rows = []
    for page, data, metrics in MEASURED:
        table = columns(page)
        for head, values in table.items():
            name, arrow = head.split()
            if name in metrics and method in values:
                choose = max if arrow == "↑" else min
                best = choose(values, key=values.__getitem__)
                rows.append(Row(page, data, head, values[method], values["random"], values[best], best))
    return rows


def figures(method: str) -> str:
    """The table of one method's page."""
    rows = measured(method)
    if not rows:
        return "Not among the methods of the [result pages](../results/README.md)."
    lines = [f"| measured on | metric | `{method}` | `random` | best |", "|---|---|---|---|---|"]
    shown = ""
    for r in rows:
        where = "" if r.data == shown else f"[{r.data}](../results/{r.page}.md)"
        shown = r.data
        lines.append(f"| {where} | {r.metric} | {r.own:.3f} | {r.random:.3f} | {r.best:.3f} (`{r.best_method}`) |")
    return "\n".join(lines)


def facts(page: str) -> list[str]:
    """What the line under a page's title says: family, signs, target."""
    return re.findall(r"^\*(.+)\*$", page, flags=re.MULTILINE)[0].split(" · ")


def index() -> str:
    """The table of all methods."""
    ranking = columns("sentiment")["comprehensiveness:paper ↑"]
    lines = [
        "| method | in a few words | family | signs | target | cost | comprehensiveness |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in whence.methods():
        name = row["name"]
        if row["family"] == "plug-in" or not (HERE / f"{name}.md").exists():
            continue
        text = (HERE / f"{name}.md").read_text(encoding="utf-8")
        title = text.splitlines()[0].partition(": ")[2]
        family, signs, target = facts(text)
        figure = f"{ranking[name]:.3f}" if name in ranking else "not measured"
        lines.append(f"| [`{name}`]({name}.md) | {title} | {family} | {signs} | {target} | {row['cost']} | {figure} |")
    return "\n".join(lines)


def pages() -> list[Path]:
    """The pages of methods, one each."""
    names = [row["name"] for row in whence.methods() if row["family"] != "plug-in"]
    return [HERE / f"{name}.md" for name in names]


def up_to_date(file: Path) -> str:
    """The page as it should read."""
    text = file.read_text(encoding="utf-8")
    made = index() if file.name == "README.md" else figures(file.stem)
    return MADE.sub(lambda found: f"{found[1]}{made}{found[2]}", text)


def draw(file: Path) -> None:
    """Run the page's own commands that draw, and keep what they drew."""
    from whence.apps.cli import app

    for line in re.findall(r"^\$ (whence .*--figure .*)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE):
        here = Path.cwd()
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
            os.chdir(folder)
            try:
                app(shlex.split(line)[1:], standalone_mode=False)
                for picture in Path(folder).glob("*.png"):
                    small = Image.open(picture).convert("RGB").quantize(64, dither=Image.Dither.NONE)
                    small.save(HERE / "pictures" / picture.name, optimize=True)
            finally:
                os.chdir(here)


def main() -> None:
    for file in [*pages(), HERE / "README.md"]:
        file.write_text(up_to_date(file), encoding="utf-8")
        if "--pictures" in sys.argv:
            draw(file)


if __name__ == "__main__":
    main()
