"""Which words does a model lean on, per class? Word scores over many explanations, weighted by how rare a word is.

Pure: explanations and background counts in, words out. The measure is that of "Decoded Layer Saliency" §4.2: the scores of a word
are summed over all texts of a predicted class and multiplied by the word's inverse document frequency in everyday language; a model
that has learnt classes apart has few words in the top lists of two of them. Departures: whole words, case folded, instead of word
pieces; only what has a letter or a digit counts as a word; the built-in background is Zipf's law over ranks, not Wikipedia counts.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import combinations
from string import ascii_lowercase, digits

from whence.errors import InputError
from whence.explanation import Explanation
from whence.render.table import Table

WORD = re.compile(r"[^\W_]+")


def fold(word: str) -> str | None:
    """A word as it is counted; None for punctuation.

    >>> fold("Charming"), fold("…"), fold("½")
    ('charming', None, '½')
    """
    return word.casefold() if WORD.search(word) else None


@dataclass(frozen=True)
class Background:
    """In how many of `documents` texts each word occurs; words that are not listed occur in `unseen` of them."""

    name: str
    documents: float
    counts: Mapping[str, float]
    unseen: float = 0.0

    def idf(self, word: str) -> float:
        """ln((1 + N) / (1 + df)): 0 for a word in every text, and larger the rarer the word is."""
        return math.log((1 + self.documents) / (1 + min(self.counts.get(word, self.unseen), self.documents)))

    @classmethod
    def of_texts(cls, texts: Iterable[str], name: str = "own corpus") -> Background:
        """Counts of a corpus of one's own.

        >>> Background.of_texts(["the film", "the plot"]).counts["the"]
        2
        """
        counts: Counter[str] = Counter()
        documents = 0
        for text in texts:
            documents += 1
            counts.update({word.casefold() for word in WORD.findall(text)})
        if not documents:
            raise InputError("the background corpus holds no text; give one per line.")
        return cls(name, documents, counts)

    @classmethod
    def of_ranks(cls, words: Sequence[str], *, documents: int = 50_000, length: int = 300) -> Background:
        """Counts that Zipf's law expects of words sorted from the most to the least frequent: the r-th word makes up
        0.1 / (r + 2.7) of a language (Mandelbrot's form), and a text of `length` words holds it with the matching chance.
        Words beyond the list are as rare as those that would follow three times as far down; single letters and digits count
        as being everywhere.

        >>> common = Background.of_ranks(["the", "of", "charming"])
        >>> common.idf("the") < common.idf("charming") < common.idf("unheard")
        True
        """

        def expected(rank: int) -> float:
            return documents * -math.expm1(length * math.log1p(-0.1 / (rank + 2.7)))

        counts = {letter: float(documents) for letter in ascii_lowercase + digits}
        counts |= {word: expected(rank) for rank, word in enumerate(words)}
        return cls("word ranks", documents, counts, expected(3 * len(words) + 3))


@dataclass(frozen=True)
class ClassWord:
    """One word of one class."""

    word: str
    score: float  # total × idf
    total: float  # the sum of its scores
    idf: float
    texts: int  # in how many texts of the class it occurs
    examples: tuple[int, ...]  # the explanations in which it weighs most, strongest first


@dataclass(frozen=True)
class ClassWords:
    """Words of every predicted class, strongest first; only words that speak for the class."""

    classes: dict[str, list[ClassWord]]
    texts: dict[str, int]  # texts per class
    method: str
    background: str
    skipped: int = 0  # explanations of a target that was not predicted

    def top(self, k: int) -> dict[str, list[ClassWord]]:
        return {name: words[:k] for name, words in self.classes.items()}

    def shortest(self) -> int:
        """How long the shortest list is: overlap beyond it says nothing."""
        return min(map(len, self.classes.values()), default=0)

    def overlap(self, k: int) -> float:
        """The share of the k strongest words that two classes have in common, averaged over all pairs of classes."""
        pairs = list(combinations([{w.word for w in words[:k]} for words in self.classes.values()], 2))
        return sum(len(a & b) for a, b in pairs) / (len(pairs) * k) if pairs else 0.0

    def overlap_curve(self, most: int = 100) -> dict[str, list[float]]:
        """{'x': k, 'mean': overlap in percent} for k up to `most` or the shortest list, ready to be drawn."""
        ks = range(1, min(most, self.shortest()) + 1)
        return {"x": [float(k) for k in ks], "mean": [100 * self.overlap(k) for k in ks]}

    def table(self, k: int = 10) -> Table:
        return Table(
            {"class": name, "word": w.word, "score": round(w.score, 4), "texts": w.texts, "idf": round(w.idf, 2)}
            for name, words in self.top(k).items()
            for w in words
        )


@dataclass
class _Sums:
    total: float = 0.0
    texts: int = 0
    best: list[tuple[float, int]] = field(default_factory=list)  # the strongest (score, −explanation), as a heap

    def add(self, score: float, number: int, examples: int) -> None:
        """The word's score in one more text."""
        self.texts += 1
        heappush(self.best, (score, -number))
        if len(self.best) > examples:
            heappop(self.best)


def class_words(
    explanations: Sequence[Explanation | None], background: Background | None = None, *, examples: int = 3
) -> ClassWords:
    """Sum word scores per predicted class and weigh them by rarity.

    background=None takes the explained texts themselves. Explanations of a label that was not predicted are left out; None stands in
    the place of a row that could not be read. What is kept does not grow with the number of texts, so that a saved corpus can be read as it is summed.

    >>> class_words([]).classes
    Traceback (most recent call last):
    ...
    whence.errors.InputError: no explanation of a predicted class; explain with target=None.
    """
    sums: dict[str, dict[str, _Sums]] = {}
    texts: Counter[str] = Counter()
    methods, gaps = set(), 0
    for i, e in enumerate(explanations):
        if e is None:
            gaps += 1
        if e is None or not is_of_prediction(e):
            continue
        methods.add(e.method)
        texts[e.target] += 1
        found = sums.setdefault(e.target, {})
        own: dict[str, float] = {}
        for word in e.words():
            name = fold(word.text)
            if name is not None:
                found.setdefault(name, _Sums()).total += word.score
                own[name] = own.get(name, 0.0) + word.score
        for name, score in own.items():
            found[name].add(score, i, examples)
    if not texts:
        raise InputError("no explanation of a predicted class; explain with target=None.")
    if len(methods) > 1:
        raise InputError(f"words of one method at a time: these explanations are by {', '.join(sorted(methods))}.")
    if background is None:
        spoken = (f"{e.text or ''} {e.pair or ''}" for e in explanations if e is not None and is_of_prediction(e))
        background = Background.of_texts(spoken, "the explained texts")
    classes = {name: _ranked(found, background) for name, found in sorted(sums.items())}
    skipped = len(explanations) - gaps - texts.total()
    return ClassWords(classes, dict(texts), methods.pop(), background.name, skipped)


def is_of_prediction(e: Explanation) -> bool:
    return e.prediction in (None, e.target)


def _ranked(found: Mapping[str, _Sums], background: Background) -> list[ClassWord]:
    words = []
    for word, entry in found.items():
        idf = background.idf(word)
        if entry.total * idf > 0:
            best = tuple(-number for _, number in sorted(entry.best, reverse=True))
            words.append(ClassWord(word, entry.total * idf, entry.total, idf, entry.texts, best))
    return sorted(words, key=lambda w: (-w.score, w.word))
