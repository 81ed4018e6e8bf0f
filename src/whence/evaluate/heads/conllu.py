"""Parsed sentences: read from CoNLL-U files, or made from raw text by Stanza or spaCy where one is installed."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whence.errors import InputError, NotSupported, UnknownName

ROOT = -1
PARSERS = ("stanza", "spacy")
ID = re.compile(r"[0-9]+([-.][0-9]+)?")


@dataclass(frozen=True)
class Word:
    """A syntactic word: characters [start, end) of its sentence, its head's number (ROOT for none) and its relation."""

    start: int
    end: int
    head: int
    relation: str


@dataclass(frozen=True)
class Sentence:
    text: str
    words: tuple[Word, ...]


def read_conllu(file: str | Path) -> list[Sentence]:
    """All sentences of a CoNLL-U file (.gz too) whose words can be found in their text.

    Words inside a multi-word token ("don't" = do + n't) have their own part of its characters where their forms make it up,
    and all of its characters where they do not ("au" = à + le). Empty nodes (8.1) are left out.
    """
    path = Path(file)
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = data.decode("utf-8-sig").split("\n")
        sentences = [s for block in blocks(lines) if (s := sentence_of(block)) is not None]
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be read: {error.strerror or error}.") from error
    except (ValueError, LookupError, EOFError, zlib.error) as error:
        raise InputError(f"{str(file)!r} is no CoNLL-U file: {error}.") from error
    if not sentences:
        raise InputError(f"{str(file)!r} holds no parsed sentence; a CoNLL-U file (.conllu or .conllu.gz) is wanted.")
    return sentences


def blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Lines between blank lines."""
    block: list[str] = []
    for line in lines:
        if line.strip():
            block.append(line.rstrip("\r\n"))
        elif block:
            yield block
            block = []
    if block:
        yield block


def sentence_of(block: list[str]) -> Sentence | None:
    """One block as a sentence; None if it holds comments alone, or a form that is not to be found in the text."""
    lines = [line for line in block if not line.startswith("#")]
    rows = [line.split("\t") for line in lines]
    for line, row in zip(lines, rows, strict=True):
        if len(row) != 10:
            raise ValueError(f"a line has not ten columns: {line[:60]!r}")
        if not ID.fullmatch(row[0]):
            raise ValueError(f"an id must be a number (3), a range (3-4) or an empty node (3.1), not {row[0][:20]!r}")
    if not rows:
        return None
    text = next((line[len("# text =") :].strip() for line in block if line.startswith("# text =")), None)
    surface = [row for row in rows if "." not in row[0]]
    spans = surface_spans(surface, text if text is not None else joined(surface))
    if spans is None:
        return None
    words = [row for row in surface if "-" not in row[0]]
    numbers = {"0": ROOT, **{row[0]: i for i, row in enumerate(words)}}
    for row in words:
        if row[6] not in numbers:
            raise ValueError(
                f"the head of word {row[0]} ({row[1][:20]!r}) must be 0 or a word of its sentence, not {row[6][:20]!r}"
            )
    found = (Word(*spans[row[0]], numbers[row[6]], row[7]) for row in words)
    return Sentence(text if text is not None else joined(surface), tuple(found))


def inside(rows: list[list[str]]) -> set[str]:
    """Ids of the words that are part of a multi-word token."""
    return {number for row in rows if "-" in row[0] for number in numbers_of(row[0], len(rows))}


def numbers_of(span: str, most: int) -> list[str]:
    """The ids that a multi-word token's id stands for.

    >>> numbers_of("3-4", 9)
    ['3', '4']
    """
    first, last = (int(i) for i in span.split("-"))
    if last - first >= most:
        raise ValueError(f"the token {span} spans more words than its sentence has")
    return [str(i) for i in range(first, last + 1)]


def joined(rows: list[list[str]]) -> str:
    """The text from the forms alone, where the file does not give it."""
    hidden = inside(rows)
    shown = [row for row in rows if row[0] not in hidden]
    return "".join(row[1] + ("" if "SpaceAfter=No" in row[9] else " ") for row in shown).strip()


def surface_spans(rows: list[list[str]], text: str) -> dict[str, tuple[int, int]] | None:
    """Characters of every word, by its id. Forms follow each other in the text with nothing but spaces between."""
    hidden, forms = inside(rows), {row[0]: row[1] for row in rows}
    spans: dict[str, tuple[int, int]] = {}
    cursor = 0
    for number, form, *_ in rows:
        if number in hidden:
            continue
        while cursor < len(text) and text[cursor].isspace():
            cursor += 1
        if not text.startswith(form, cursor):
            return None
        start, cursor = cursor, cursor + len(form)
        if "-" not in number:
            spans[number] = (start, cursor)
            continue
        parts = numbers_of(number, len(rows))
        lacking = next((p for p in parts if p not in forms), None)
        if lacking is not None:
            raise ValueError(f"the token {number} spans word {lacking}, which its sentence lacks")
        if "".join(forms[p] for p in parts).casefold() != form.casefold():
            spans |= dict.fromkeys(parts, (start, cursor))
            continue
        for part in parts:
            spans[part] = (start, start + len(forms[part]))
            start += len(forms[part])
    return spans


def parse_texts(texts: Iterable[str], parser: str = "stanza", language: str = "en") -> list[Sentence]:
    """Parse raw texts. Stanza models must have been downloaded before: nothing is fetched from the network here.

    language: a Stanza language code, or for spaCy the name of a pipeline ("en" stands for "en_core_web_sm").
    """
    if parser not in PARSERS:
        raise UnknownName("parser", parser, PARSERS)
    return [s for text in texts for s in (with_stanza if parser == "stanza" else with_spacy)(text, language)]


def pipeline(package: str, language: str, make: Any) -> Any:
    """A parser's pipeline, made once."""
    if (package, language) not in _PIPELINES:
        try:
            _PIPELINES[package, language] = make()
        except ImportError:
            raise NotSupported(
                f"parsing raw text with {package} needs the package (pip install {package}); parsed CoNLL-U files need none."
            ) from None
        except (OSError, FileNotFoundError) as error:
            raise NotSupported(f"{package} has no model for {language!r}; download it first ({error}).") from None
    return _PIPELINES[package, language]


_PIPELINES: dict[tuple[str, str], Any] = {}


def with_stanza(text: str, language: str) -> Iterator[Sentence]:
    def make() -> Any:
        import stanza

        options = {"processors": "tokenize,mwt,pos,lemma,depparse", "download_method": None, "verbose": False}
        return stanza.Pipeline(language, **options)

    for sentence in pipeline("stanza", language, make)(text).sentences:
        first = sentence.tokens[0].start_char
        words = []
        for word in sentence.words:
            place = word if word.start_char is not None else word.parent  # inside a multi-word token: all of it
            words.append(Word(place.start_char - first, place.end_char - first, word.head - 1, word.deprel))
        yield Sentence(text[first : sentence.tokens[-1].end_char], tuple(words))


def with_spacy(text: str, language: str) -> Iterator[Sentence]:
    def make() -> Any:
        import spacy

        return spacy.load("en_core_web_sm" if language == "en" else language)

    for sentence in pipeline("spacy", language, make)(text).sents:
        words = (
            Word(
                token.idx - sentence.start_char,
                token.idx - sentence.start_char + len(token.text),
                ROOT if token.head is token or token.head.i == token.i else token.head.i - sentence.start,
                {"dobj": "obj"}.get(token.dep_, token.dep_),  # spaCy's English models name the object as CoreNLP did
            )
            for token in sentence
        )
        yield Sentence(sentence.text, tuple(words))
