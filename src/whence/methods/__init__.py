# ruff: noqa: F401, I001  (imported to be registered; the order is the table's)
"""Attribution methods, one module per family. Importing this package registers them all.

Notation (the docstrings use it too): A^l attention probabilities of layer l, averaged or summed over heads h; G^l = ∂y/∂A^l;
X^0 the embedding output and X^l the output of layer l; x the word embeddings; r the readout position; y the logit explained.
"""

import whence.fast.imports
from whence.methods import (
    baseline,
    attention,
    attention_gradient,
    activation,
    decoded,
    relevance,
    mixing,
    gradient,
    path,
    deeplift,
    perturbation,
)
