"""Make every picture of the gallery from the embedded models, and the page (README.md) that shows each with its command.

    make gallery

The commands under the pictures are what is run here, not a copy: a shell line goes through the command line, a Python block is
executed. Pages are photographed where Chromium is installed; without it the photographs stay as they are.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from page import page_section, photograph_page
from PIL import Image
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from whence.apps.cli import app

HERE = Path(__file__).parent
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
CHROME = 120  # pixels of a headless window that are not page
DPI = 120
TEXT = "Despite a slow start and a silly subplot, this courtroom drama grips like a vice; I would not have missed it."
SHORT = "it 's a charming and often affecting journey ."
QUESTION = "Who built the lighthouse on Gannet Rock?"
CONTEXT = (
    "The lighthouse on Gannet Rock was built in 1847 by the engineer Alasdair Munro after three fishing boats were "
    "lost in a single winter. It stands 38 metres tall."
)
CLASSES = "whence classes --model topics --top 3 --cloud clouds.png --overlap overlap.png"
NIGHT = TerminalTheme((22, 24, 29), (236, 237, 239), [(0, 0, 0)] * 8, [(128, 128, 128)] * 8)


DONE: set[str] = set()


@dataclass(frozen=True)
class Picture:
    """One entry: `code` makes `file`. A .svg is what the terminal shows, a .png a figure, a .html a page."""

    file: str
    title: str
    says: str
    code: str
    height: int = 0  # of a page's photograph


SECTIONS: dict[str, list[Picture]] = {
    "In a terminal": [
        Picture(
            "terminal-highlight.svg",
            "Highlighted text",
            "Blue speaks for the prediction, red and underlined against it; the stronger, the brighter.",
            f'whence explain "{TEXT}" --top 5',
        ),
        Picture(
            "terminal-compare.svg",
            "Methods side by side",
            "A row per method. Methods without signs are purple. Δ rows show where the first method differs from the others.",
            f'whence compare "{TEXT}" --method attnlrp --method attcat --method alti --method rollout --delta',
        ),
        Picture(
            "terminal-layers.svg",
            "Words over layers",
            "A block per word and layer, the method's own score last.",
            f'whence explain "{SHORT}" --method attcat --layers',
        ),
        Picture(
            "terminal-contrast.svg",
            "This rather than that",
            "A language model's choice between two words: a plural subject between singular words.",
            'whence explain "The keys to the old cabinet [MASK] on the table." --task masked-lm --contrast were was --top 4',
        ),
    ],
    "Pages": [
        Picture(
            "highlight.html",
            "One explanation",
            "What a notebook shows too. No script, nothing loaded; hover a word for its score and rank.",
            f'whence explain "{TEXT}" --format html --output highlight.html',
            140,
        ),
        Picture(
            "pair.html",
            "A pair",
            "Premise and hypothesis are labelled; so are question and context, prompt and continuation.",
            'whence explain "A man is sleeping on a bench." --pair "Nobody is awake." --model nli --format html --output pair.html',
            200,
        ),
        Picture(
            "question.html",
            "A question and its context",
            "Why this answer?",
            f'whence explain --question "{QUESTION}" --context "{CONTEXT}" --format html --output question.html',
            240,
        ),
        Picture(
            "right-to-left.html",
            "Right to left",
            "The direction comes from the text; tags in it stay text.",
            "whence explain 'هذا الفيلم رائع وقد أحببته <b>كثيرا</b> charming !' --format html --output right-to-left.html",
            130,
        ),
        Picture(
            "compare.html",
            "Methods side by side",
            "The same rows as in the terminal.",
            f'whence compare "{TEXT}" --method attnlrp --method alti --method transatt --delta --format html --output compare.html',
            460,
        ),
        Picture(
            "report.html",
            "A report of many texts",
            "Search, filter, sort; rows where the model is wrong are marked. Ten thousand rows open and filter at once.",
            """from pathlib import Path

import whence
from whence import zoo
from whence.render.report import report_html

samples = zoo.samples("sentiment")
found = whence.load("sentiment").explain([row["text"] for row in samples])
page = report_html(found, title="Sentiment samples", labels=[row["label"] for row in samples])
Path("report.html").write_text(page, encoding="utf-8")""",
            620,
        ),
        Picture(
            "classes.html",
            "Words per class",
            "Which words does the model lean on? Open a word to see the texts it comes from.",
            "whence classes --model topics --top 12 --examples 3 --format html --output classes.html",
            980,
        ),
    ],
    "Figures for a paper": [
        Picture(
            "text.png",
            "Highlighted text, one column wide",
            "Vector output with .svg or .pdf.",
            f'whence explain "{TEXT}" --figure text.png --kind text',
        ),
        Picture(
            "difference.png",
            "The difference of two methods on one text (Mask-LRP, figure 6)",
            "Both methods on the shared scale, then where the first weighs tokens more or less.",
            f'whence compare "{TEXT}" --method mask-lrp --method rollout --delta --figure difference.png',
        ),
        Picture(
            "bars.png",
            "A bar per word",
            "What speaks against the prediction is hatched.",
            f'whence explain "{SHORT}" --figure bars.png --kind bars',
        ),
        Picture(
            "layers.png",
            "Tokens over layers, with the sum and rollout (AttCAT, figure 4)",
            "Cells against the prediction carry a minus, which a grey print keeps. Long texts go on below.",
            f'''import whence
from whence.render.canvas import write

found = whence.load("sentiment").explain(
    "{TEXT}",
    ["attcat", "rollout"],
)
figure = found["attcat"].figure("layers", rows={{"rollout": found["rollout"]}}, theme="light")
write(figure, "layers.png")''',
        ),
        Picture(
            "matrix.png",
            "Contributions of input tokens to the last layer, and the strip that is the score (ALTI, figure 5)",
            "Rows are tokens of the last layer, columns tokens of the input; the strip is the row of [CLS].",
            f'whence explain "{SHORT}" --method alti --option matrices=True --figure matrix.png --kind matrix',
        ),
        Picture(
            "matrices.png",
            "The same through the layers (ALTI, figures 10–12)",
            "Contributions start on the diagonal and mix.",
            f'whence explain "{SHORT}" --method alti --option matrices=True --figure matrices.png --kind matrices',
        ),
        Picture(
            "strips.png",
            "The score's strip through the layers",
            "What [CLS] holds of each word, layer by layer.",
            f'whence explain "{SHORT}" --method alti --figure strips.png --kind layers',
        ),
        Picture(
            "heads.png",
            "Heads with a function (Mask-LRP, figure 5)",
            "The mask that mask-lrp keeps; `whence heads FILE.conllu --figure heads.png` makes it for your model and says what each head does.",
            """import json

from whence import zoo
from whence.render.canvas import write
from whence.render.heads import mask_figure

mask = json.loads(zoo.head_mask("sentiment").read_text(encoding="utf-8"))
panels = {name: mask[name] for name in ("syntactic", "positional")}
write(mask_figure(panels, title="sentiment", theme="light"), "heads.png")""",
        ),
        Picture(
            "generated.png",
            "What each written token rests on",
            "A row per token the language model wrote, a column per token before it.",
            """import whence
from whence.render.canvas import write

written = whence.load("causal-lm").generate("Neither the sheriff nor his deputy could", max_new_tokens=6)
write(written.figure(theme="light"), "generated.png")""",
        ),
    ],
    "Numbers": [
        Picture(
            "curves.png",
            "Perturbation curves with intervals (decoded saliency, figures 2–3; Mask-LRP, figure 3)",
            "The tokens that weigh most are deleted first: how far does the prediction's probability fall? Bands are 95% intervals.",
            """import whence
from whence import zoo
from whence.render.canvas import write

model = whence.load("sentiment")
texts = [row["text"] for row in zoo.samples("sentiment")][:24]
methods = ["rollout", "alti", "gae", "attnlrp"]
report = whence.evaluate(model, texts, methods, ["aopc", "lodds", "comprehensiveness", "sufficiency"])
write(report.figure("aopc", theme="light"), "curves.png")""",
        ),
        Picture(
            "table.png",
            "Methods × metrics",
            "Each column runs from its worst to its best method. The report is the one above.",
            """write(report.figure(theme="light"), "table.png")""",
        ),
        Picture(
            "violins.png",
            "How robust are explanations? (ALTI, figures 7–8)",
            "Agreement of the strongest quarter of the tokens with those of three copies of the model whose weights carry 10% noise; "
            "model, texts and methods are those above.",
            """import torch

from whence.render.violins import violins_figure


def noisy(seed):
    torch.manual_seed(seed)
    copy = whence.load("sentiment")
    for weight in copy.model.parameters():
        weight.data += 0.1 * weight.std(correction=0) * torch.randn_like(weight)
    return copy


agreement = whence.evaluate(model, texts, methods, ["jaccard"], models=[noisy(seed) for seed in range(3)])
write(violins_figure(agreement.values["jaccard"], "Jaccard-25%", "sentiment, 24 texts", theme="light"), "violins.png")""",
        ),
        Picture(
            "clouds.png",
            "Word clouds of the classes (decoded saliency, figures 9 and 11)",
            "Word scores summed over the texts of a class, weighted by how rare a word is.",
            CLASSES,
        ),
        Picture(
            "overlap.png",
            "Do classes share their words? (decoded saliency, figure 4)",
            "The less, the better the model tells the classes apart by what it leans on.",
            CLASSES,
        ),
    ],
}


def main() -> None:
    os.chdir(HERE)
    scope: dict[str, object] = {"__name__": "gallery"}
    for section, pictures in SECTIONS.items():
        for picture in pictures:
            start = time.perf_counter()
            make(picture, scope)
            print(f"{section}: {picture.file} ({time.perf_counter() - start:.1f} s)", flush=True)
    run_shell(f'whence explain "{TEXT}" --format latex --output sentence.tex')
    if CHROMIUM is None:
        print("NOTICE: no Chromium: the page of whence serve was not photographed.", file=sys.stderr)
    else:
        for photo in photograph_page(CHROMIUM, HERE):
            shrink(photo)
    (HERE / "README.md").write_text(readme(), encoding="utf-8")
    total = sum(f.stat().st_size for f in HERE.iterdir() if f.is_file())
    print(f"{total / 1e6:.2f} MB in {HERE.name}/")


def make(picture: Picture, scope: dict[str, object]) -> None:
    if picture.file.endswith(".svg"):
        Path(picture.file).write_text(terminal_picture(run_shell(picture.code)), encoding="utf-8")
        return
    run(picture.code, scope)
    if picture.file.endswith(".png"):
        run(in_the_dark(picture.code), scope)
        for name in (picture.file, dark(picture.file)):
            shrink(Path(name))
    else:
        photograph(picture)


def run(code: str, scope: dict[str, object]) -> None:
    """A shell line or a Python block; what was run before has made its files."""
    if code in DONE:
        return
    DONE.add(code)
    if code.startswith("whence "):
        run_shell(code)
    else:
        with mock.patch("whence.render.canvas.DPI", DPI):
            exec(compile(code, "gallery", "exec"), scope)


def run_shell(line: str) -> str:
    """What `whence …` prints on a colour terminal 100 columns wide."""
    shown = io.StringIO()
    with (
        redirect_stdout(shown),
        mock.patch.dict(os.environ, {"FORCE_COLOR": "1", "COLUMNS": "100"}),
        mock.patch("whence.render.canvas.DPI", DPI),
    ):
        app(shlex.split(line)[1:], standalone_mode=False)
    return shown.getvalue()


def dark(file: str) -> str:
    return file.replace(".png", "-dark.png")


def in_the_dark(code: str) -> str:
    """The same on dark paper; of a Python block only the lines that draw, its numbers are there already."""
    if code.startswith("whence "):
        return dark(code) + " --theme dark"
    drawing = [line for line in code.split("\n") if line.startswith("write(") or 'theme="light"' in line]
    return dark("\n".join(drawing)).replace('theme="light"', 'theme="dark"')


def shrink(file: Path) -> None:
    """Large pictures of few hues (pages, word clouds) are kept with a palette."""
    if file.stat().st_size > 100_000:
        Image.open(file).convert("RGB").quantize(255, dither=Image.Dither.NONE).save(file, optimize=True)


def terminal_picture(ansi: str) -> str:
    """A drawing of the terminal; fonts are the reader's own, nothing is loaded."""
    console = Console(width=100, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(ansi.rstrip("\n")))
    drawn = console.export_svg(title="", theme=NIGHT, unique_id="whence")
    drawn = re.sub(r"@font-face\s*\{.*?\}", "", drawn, flags=re.DOTALL)
    return drawn.replace("Fira Code, monospace", "DejaVu Sans Mono, Menlo, Consolas, monospace").replace(
        "Fira Code", "monospace"
    )


def photograph(picture: Picture) -> None:
    """The page on light and on dark paper, by Chromium."""
    if CHROMIUM is None:
        print(f"NOTICE: no Chromium: {picture.file} was made, but not photographed.", file=sys.stderr)
        return
    stem = picture.file.removesuffix(".html")
    for name, scheme in ((f"{stem}.png", 1), (f"{stem}-dark.png", 0)):
        with tempfile.TemporaryDirectory() as profile:
            subprocess.run(
                [
                    CHROMIUM,
                    "--headless",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--hide-scrollbars",
                    f"--window-size=1000,{picture.height + CHROME}",
                    f"--user-data-dir={profile}",
                    f"--blink-settings=preferredColorScheme={scheme}",
                    f"--screenshot={HERE / name}",
                    (HERE / picture.file).as_uri(),
                ],
                capture_output=True,
                check=True,
                timeout=120,
            )
        Image.open(name).crop((0, 0, 1000, picture.height)).save(name)
        shrink(Path(name))


def readme() -> str:
    """The gallery's page."""
    lines = [
        "# Gallery",
        "",
        "Every picture here is made from the embedded models by the command under it (`make gallery` runs them all).",
        "",
        "One language everywhere: a score is shown as its share of the text's strongest token. Methods with signs are drawn in **blue",
        "for** the target and **red, underlined, against** it (hatched bars and minus signs in figures, so that a grey print keeps the",
        "difference); methods without signs in **purple**, more is stronger. Light and dark follow the reader. Tokenizer marks (`##`, `Ġ`)",
        "and special tokens are shown only when asked for (`--pieces`).",
    ]
    for section, pictures in SECTIONS.items():
        lines += ["", f"## {section}"]
        for p in pictures:
            lines += ["", f"### {p.title}", "", p.says, "", shown(p), "", *fenced(p.code)]
    lines += page_section()
    lines += [
        "",
        "## LaTeX",
        "",
        "A sentence for a paper: [sentence.tex](sentence.tex) needs the package xcolor and nothing else.",
        "",
        *fenced(f'whence explain "{TEXT}" --format latex --output sentence.tex'),
    ]
    return "\n".join(lines) + "\n"


def fenced(code: str) -> list[str]:
    return ["```console", f"$ {code}", "```"] if code.startswith("whence ") else ["```py", code, "```"]


def shown(p: Picture) -> str:
    if p.file.endswith(".svg"):
        return f'<img src="{p.file}" alt="{p.title}">'
    stem = p.file.rsplit(".", 1)[0]
    picture = (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{stem}-dark.png">'
        f'<img src="{stem}.png" alt="{p.title}"></picture>'
    )
    return f"{picture}\n\n[the page itself]({p.file})" if p.file.endswith(".html") else picture


if __name__ == "__main__":
    main()
