"""Small trained models that come with the package, so that everything works offline the minute it is installed.

One BERT base serves four tasks: each task is a LoRA adapter merged into it when loaded. How they were made is in
``train/``; what they can and cannot do is in their cards.

>>> from whence.models import zoo
>>> zoo.names()
['sentiment', 'topics', 'nli', 'qa', 'masked-lm', 'causal-lm']
"""

from whence.models.zoo.catalogue import ZooModel, card, is_embedded, models, names
from whence.models.zoo.loading import export, head_mask, layers, load, samples, words_by_frequency

__all__ = [
    "ZooModel",
    "card",
    "export",
    "head_mask",
    "is_embedded",
    "layers",
    "load",
    "models",
    "names",
    "samples",
    "words_by_frequency",
]
