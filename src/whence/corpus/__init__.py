"""Big runs: a corpus in, a sharded Parquet dataset of scores out, on this machine or on a Ray cluster.

>>> import whence.corpus
>>> whence.corpus.run.__name__
'run'
"""

import whence.backends  # first: it imports torch at rest
from whence.corpus.run import Summary, run
from whence.corpus.saved import Explanations, Saved
from whence.corpus.saved import open_run as open

whence.backends.settle()

__all__ = ["Explanations", "Saved", "Summary", "open", "run"]
