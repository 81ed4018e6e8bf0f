"""Put what the GPU machine needs into one small folder: it has no network, and perhaps no pyarrow.

    python -m train.pack base --data DATA --minilm MINILM --out .train-payload/base
    python -m train.pack adapters --data DATA --start .train-payload/base --base TRAINED --out .train-payload/adapters

The first folder holds the cut vocabulary, MiniLM's weights and the texts of the language models; the second the
trained base (from `train.all join`), the first pooler, and the training tables of the four tasks.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from train.common import Log, held_out_texts, load_weights, read_table, save_weights, write_table

TEXTS = {
    "imdb_train": ("text",),
    "books": ("text",),
    "agnews_train": ("text",),
    "sst2_train": ("text",),
    "snli_train": ("premise", "hypothesis"),
    "squad_train": ("question", "context"),
}
TASKS = {
    "sst2_train": ("text", "label"),
    "agnews_train": ("text", "label", "source"),
    "snli_train": ("premise", "hypothesis", "label"),
    "squad_train": ("question", "context", "answer", "start"),
}


def copy_tables(data: Path, out: Path, tables: dict[str, tuple[str, ...]], forbidden: set[str], log: Log) -> None:
    """The named columns, without the rows that have a text of an evaluation table in them."""
    for table, columns in tables.items():
        rows = [{c: row[c] for c in columns if c in row} for row in read_table(data, table)]
        kept = [r for r in rows if not any(str(v).lower() in forbidden for v in r.values())]
        write_table(out, table, kept)
        size = (out / f"{table}.json.xz").stat().st_size / 1e6
        log(f"{table}: {len(kept)} of {len(rows)} rows, {size:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["base", "adapters"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minilm", type=Path, help="base: folder of all-MiniLM-L6-v2")
    parser.add_argument("--start", type=Path, help="adapters: the folder that `pack base` made")
    parser.add_argument("--base", type=Path, help="adapters: the trained base, a Hugging Face directory")
    options = parser.parse_args()
    log = Log("pack")
    options.out.mkdir(parents=True, exist_ok=True)
    if options.what == "base":
        step = [sys.executable, "-m", "train.vocabulary", "--data", options.data, "--minilm", options.minilm]
        subprocess.run([*map(str, step), "--out", str(options.out)], check=True)
        copy_tables(options.data, options.out, TEXTS, held_out_texts(options.data), log)
    else:
        # labelled rows are kept whole: a short hypothesis may recur in the test set, the pair does not
        copy_tables(options.data, options.out, TASKS, set(), log)
        shutil.copyfile(options.start / "vocab.txt", options.out / "vocab.txt")
        shutil.copytree(options.base, options.out / "base", dirs_exist_ok=True)
        first = load_weights(options.start / "init.safetensors")
        pooler = {key: tensor for key, tensor in first.items() if "pooler" in key}
        save_weights(options.out / "init.safetensors", pooler)
    total = sum(f.stat().st_size for f in options.out.rglob("*") if f.is_file())
    log(f"{total / 2**20:.1f} MiB in {options.out}")


if __name__ == "__main__":
    main()
