"""What the zoo holds: one row a model, with the figure measured by ``train/evaluate.py`` on the shipped weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from whence.errors import UnknownName

ROOT = Path(__file__).parent
BASE = ROOT / "base"


@dataclass(frozen=True)
class ZooModel:
    """One embedded model.

    ``adapter`` names the folder under ``adapters/`` that is merged into the base, or is None for a model that is
    a directory of its own; ``figure`` is its headline accuracy; ``size_mb`` counts the files of this model alone
    (the adapters share one base, which is counted under ``masked-lm``).
    """

    name: str
    task: str
    labels: tuple[str, ...]
    adapter: str | None
    description: str
    figure: str
    size_mb: float = 0.0

    @property
    def directory(self) -> Path:
        """Where the model's own files are: its adapter, or its plain Hugging Face directory."""
        if self.adapter is not None:
            return ROOT / "adapters" / self.adapter
        return BASE if self.name == "masked-lm" else ROOT / self.name


_MODELS = (
    ZooModel(
        "sentiment",
        "sequence-classification",
        ("negative", "positive"),
        "sentiment",
        "sentiment of a film-review sentence",
        "SST-2 dev accuracy 89.6%",
    ),
    ZooModel(
        "topics",
        "sequence-classification",
        ("World", "Sports", "Business", "Sci/Tech"),
        "topics",
        "topic of a news item",
        "AG News test accuracy 91.7%",
    ),
    ZooModel(
        "nli",
        "sequence-classification",
        ("entailment", "neutral", "contradiction"),
        "nli",
        "does the hypothesis follow from the premise",
        "SNLI test accuracy 84.2%",
    ),
    ZooModel(
        "qa",
        "question-answering",
        (),
        "qa",
        "span of the context that answers the question",
        "SQuAD F1 66.1, EM 50.5",
    ),
    ZooModel(
        "masked-lm",
        "masked-lm",
        (),
        None,
        "word behind [MASK]: the base with its language-model head",
        "masked-token accuracy 52.7%",
    ),
    ZooModel(
        "causal-lm",
        "causal-lm",
        (),
        None,
        "next word: a tiny GPT-2 trained from scratch",
        "perplexity 63.2",
    ),
)


def models() -> tuple[ZooModel, ...]:
    """Every embedded model, with the size of its files.

    >>> [m.name for m in models() if m.task == "sequence-classification"]
    ['sentiment', 'topics', 'nli']
    """
    return tuple(replace(m, size_mb=_size_mb(m.directory)) for m in _MODELS)


def names() -> list[str]:
    """The names `load` knows.

    >>> names()
    ['sentiment', 'topics', 'nli', 'qa', 'masked-lm', 'causal-lm']
    """
    return [m.name for m in _MODELS]


def is_embedded(name: str | Path) -> bool:
    """Whether a name means an embedded model: a directory of that name goes before it only if there is a model in it.

    >>> is_embedded("sentiment"), is_embedded("my-model")
    (True, False)
    """
    return str(name) in names() and not (Path(name) / "config.json").is_file()


def find(name: str) -> ZooModel:
    """The catalogue row of ``name``; an unknown name is an error that says which names there are."""
    for m in _MODELS:
        if m.name == name:
            return m
    raise UnknownName("zoo model", name, names())


def card(name: str) -> str:
    """The model card of ``name``, in Markdown.

    >>> print(card("sentiment").splitlines()[0])
    # sentiment
    """
    return (ROOT / "cards" / f"{find(name).name}.md").read_text(encoding="utf-8")


def _size_mb(directory: Path) -> float:
    return round(sum(f.stat().st_size for f in directory.iterdir() if f.is_file()) / 1e6, 1)
