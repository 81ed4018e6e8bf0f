"""Data as people have them: files, globs, directories, saved runs, `datasets`, lists; read in order, or any stretch of rows."""

import whence.fast.imports  # noqa: F401  (first: it imports torch at rest)
from whence.corpus.sources.columns import guess, guess_inputs, input_of, typical
from whence.corpus.sources.files import SUFFIXES, Files, expand, placed, stream
from whence.corpus.sources.runs import is_run, run_records, run_rows
from whence.corpus.sources.sources import Records, Source, from_hub, readable, rows_of_table, source_of

__all__ = [
    "SUFFIXES",
    "Files",
    "Records",
    "Source",
    "expand",
    "from_hub",
    "guess",
    "guess_inputs",
    "input_of",
    "is_run",
    "placed",
    "readable",
    "rows_of_table",
    "run_records",
    "run_rows",
    "source_of",
    "stream",
    "typical",
]
