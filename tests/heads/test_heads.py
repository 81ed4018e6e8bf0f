"""Head masks: reading parses, planted heads found, the ablations' masks, the command."""

from __future__ import annotations

import gzip
import json
import random
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel
from typer.testing import CliRunner

import whence
from tests import architectures
from whence.apps.cli import app
from whence.errors import InputError, NotSupported, UnknownName
from whence.evaluate import heads
from whence.evaluate.heads.conllu import ROOT, Sentence, Word
from whence.evaluate.heads.statistics import pieces_of

CONLLU = """# text = We don't like it.
1\tWe\twe\tPRON\t_\t_\t4\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\t_\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\t_\t_\t4\tadvmod\t_\t_
4\tlike\tlike\tVERB\t_\t_\t0\troot\t_\t_
5\tit\tit\tPRON\t_\t_\t4\tobj\t_\tSpaceAfter=No
5.1\tthing\t_\t_\t_\t_\t_\t_\t_\t_
6\t.\t.\tPUNCT\t_\t_\t4\tpunct\t_\t_

# a sentence whose forms are not in its text is left out
# text = something else
1\tNo\tno\tINTJ\t_\t_\t0\troot\t_\t_

1\tau\t_\tX\t_\t_\t2\tamod\t_\tSpaceAfter=No
2\t!\t!\tPUNCT\t_\t_\t0\troot\t_\t_
"""


@pytest.mark.parametrize("name", ["some.conllu", "some.conllu.gz"])
def test_conllu_words_have_characters(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    data = CONLLU.encode()
    file.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    first, second = heads.read_conllu(file)
    assert [first.text[w.start : w.end] for w in first.words] == ["We", "do", "n't", "like", "it", "."]
    assert [(w.head, w.relation) for w in first.words][:4] == [(3, "nsubj"), (3, "aux"), (3, "advmod"), (ROOT, "root")]
    assert second.text == "au!"
    assert [(w.start, w.end) for w in second.words] == [(0, 2), (2, 3)]


def test_words_of_a_fused_token_share_its_characters(tmp_path: Path) -> None:
    file = tmp_path / "fr.conllu"
    rows = ["1-2\tau" + "\t_" * 8, "1\tà\t_\tX\t_\t_\t0\troot\t_\t_", "2\tle\t_\tX\t_\t_\t1\tdet\t_\t_"]
    file.write_text("# text = au\n" + "\n".join(rows) + "\n", encoding="utf-8")
    assert [(w.start, w.end) for w in heads.read_conllu(file)[0].words] == [(0, 2), (0, 2)]


def test_files_that_are_no_treebank(tmp_path: Path) -> None:
    file = tmp_path / "x.conllu"
    with pytest.raises(InputError, match="cannot be read"):
        heads.read_conllu(file)
    file.write_text("just text\n")
    with pytest.raises(InputError, match="ten columns"):
        heads.read_conllu(file)
    file.write_text("\n\n")
    with pytest.raises(InputError, match="no parsed sentence"):
        heads.read_conllu(file)


def conllu_row(number: str, form: str, head: str) -> str:
    return f"{number}\t{form}\t_\t_\t_\t_\t{head}\tdep\t_\t_"


def test_blocks_of_comments_alone_are_no_sentences(tmp_path: Path) -> None:
    file = tmp_path / "x.conllu"
    file.write_text("# text = hi\n# x\n\n# foo\n\n")
    with pytest.raises(InputError, match="no parsed sentence"):
        heads.read_conllu(file)
    file.write_text(f"# newdoc\n\n{conllu_row('1', 'Yes', '0')}\n")
    assert [s.text for s in heads.read_conllu(file)] == ["Yes"]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (
            [("1", "a", "2"), ("2", "cat", "9")],
            r"head of word 2 \('cat'\) must be 0 or a word of its sentence, not '9'",
        ),
        ([("1", "cat", "x")], "not 'x'"),
        ([("1", "cat", "")], "not ''"),
        (
            [("1-3", "aucat", "_"), ("1", "au", "0"), ("2", "cat", "1")],
            "token 1-3 spans word 3, which its sentence lacks",
        ),
        ([("x-2", "cat", "0")], "an id must be a number .*not 'x-2'"),
    ],
)
def test_what_is_wrong_in_a_parse_is_named(tmp_path: Path, rows: list[tuple[str, str, str]], says: str) -> None:
    file = tmp_path / "x.conllu"
    file.write_text("\n".join(conllu_row(*row) for row in rows) + "\n")
    with pytest.raises(InputError, match=says):
        heads.read_conllu(file)


def test_the_line_that_is_wrong_is_the_one_shown(tmp_path: Path) -> None:
    file = tmp_path / "x.conllu"
    file.write_text(f"1\ta\tdet\n{conllu_row('2', 'cat', '0')}\n")
    with pytest.raises(InputError, match=r"ten columns: '1\\ta\\tdet'"):
        heads.read_conllu(file)
    file.write_text(CONLLU, encoding="utf-8-sig")
    assert len(heads.read_conllu(file)) == 2


# ---- planted heads --------------------------------------------------------------------------------------------------------

POSITIONS = 32
FILLERS = "good bad great poor dull fine long short funny sad cold warm".split()


def planted_model() -> BertModel:
    """Layer 1 head 1 looks one token back; layer 1 head 2 looks from `film` to the verb; layer 2 looks nowhere special.

    Hidden features: 32 that tell the position, then one for the subject, one for the verb.
    """
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(architectures.VOCABULARY),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=POSITIONS,
        pad_token_id=0,
    )
    model = BertModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "LayerNorm.weight" in name else 0.0)
        embeddings = model.embeddings
        embeddings.position_embeddings.weight[:, :POSITIONS] = torch.eye(POSITIONS)
        embeddings.word_embeddings.weight[architectures.VOCABULARY["film"], POSITIONS] = 1.0
        embeddings.word_embeddings.weight[architectures.VOCABULARY["slow"], POSITIONS + 1] = 1.0
        attention = model.encoder.layer[0].attention.self
        attention.query.weight[:POSITIONS, :POSITIONS] = 20 * torch.diag(
            torch.ones(POSITIONS - 1), 1
        )  # i asks for i − 1
        attention.key.weight[:POSITIONS, :POSITIONS] = torch.eye(POSITIONS)
        attention.query.weight[POSITIONS, POSITIONS] = 20.0
        attention.key.weight[POSITIONS, POSITIONS + 1] = 1.0
    return model


def planted_corpus(count: int = 60) -> list[Sentence]:
    """Subjects `film` at all distances from the verb `slow ##ed`, among words that have no relation."""
    draw = random.Random(0)
    corpus = []
    for _ in range(count):
        words = [draw.choice(FILLERS) for _ in range(10)]
        subject, verb = draw.sample(range(10), 2)
        words[subject], words[verb] = "film", "slowed"
        parsed, at = [], 0
        for number, word in enumerate(words):
            head, relation = (
                (verb, "nsubj") if number == subject else (ROOT, "root") if number == verb else (verb, "dep")
            )
            parsed.append(Word(at, at + len(word), head, relation))
            at += len(word) + 1
        corpus.append(Sentence(" ".join(words), tuple(parsed)))
    return corpus


def test_planted_heads_are_recovered_exactly() -> None:
    corpus = planted_corpus()
    found = heads.head_statistics(planted_model(), architectures.tokenizer(), corpus, batch_tokens=100)
    mask = found.mask(model="planted")
    assert mask.to_dict()["syntactic"] == [[0, 1], [0, 0]]
    assert mask.to_dict()["positional"] == [[1, 0], [0, 0]]
    assert [(r["layer"], r["head"], r["function"]) for r in found.describe()] == [(1, 1, "-1"), (1, 2, "nsubj")]
    assert found.alpha[0, 0, 1] == 1.0
    assert found.totals.tolist() == [60, 0, 0, 0]
    assert found.tokens == 60 * 11
    assert sum(found.distances[0].values()) == pytest.approx(1.0)
    assert found.thresholds[0] < 0.3
    alone = heads.head_statistics(planted_model(), architectures.tokenizer(), corpus, batch_tokens=1)
    np.testing.assert_array_equal(alone.hits, found.hits)
    np.testing.assert_array_equal(alone.pointed, found.pointed)


def test_thresholds_are_options() -> None:
    found = heads.head_statistics(planted_model(), architectures.tokenizer(), planted_corpus(20))
    assert found.mask(xi_syntactic=1.0, xi_positional=0.95).count == 0
    with pytest.raises(InputError, match="xi_positional"):
        found.mask(xi_positional=80)


def test_words_meet_pieces_by_characters() -> None:
    row = whence.load(architectures.model("bert"), architectures.tokenizer()).session.task.encoder.encode(
        ["slowed, film"]
    )[0]
    assert row.tokens == ("[CLS]", "slow", "##ed", ",", "film", "[SEP]")
    assert pieces_of(row, 0, 6) == [1, 2]
    assert pieces_of(row, 6, 7) == [3]
    assert pieces_of(row, 8, 12) == [4]


@pytest.mark.parametrize("name", ["distilbert", "gpt2", "llama", "mpnet"])
def test_statistics_of_other_architectures(name: str) -> None:
    found = heads.head_statistics(architectures.model(name), architectures.tokenizer(), planted_corpus(5))
    assert found.alpha.shape == (4, 3, 4)
    assert int(found.pointed.sum()) == found.tokens * 12


# ---- masks ----------------------------------------------------------------------------------------------------------------


def test_masks_round_trip(tmp_path: Path) -> None:
    mask = heads.HeadMask((((1, 0), (0, 2)), ((0, 0), (1, 0))), "computed", {"model": "toy"})
    mask.save(tmp_path / "m.json")
    back = heads.load_mask(tmp_path / "m.json")
    assert back.parts == mask.parts
    assert back.provenance == {"model": "toy"}
    np.testing.assert_array_equal(back.array, [[1, 0], [1, 2]])
    (tmp_path / "m.json").write_text("{}")
    with pytest.raises(InputError, match="no head mask"):
        heads.load_mask(tmp_path / "m.json")


def test_random_and_corrupted_masks() -> None:
    mask = heads.as_mask(np.eye(6, 12))
    drawn = heads.random_mask(mask, seed=3)
    assert drawn.count == mask.count == 6
    assert drawn.parts == heads.random_mask(mask, seed=3).parts != heads.random_mask(mask, seed=4).parts
    half = heads.corrupted_mask(mask, 50)
    assert half.count == 6 + 33
    assert (half.array >= mask.array).all()
    assert heads.corrupted_mask(mask, 0).parts == mask.parts
    assert heads.corrupted_mask(mask, 100).parts == heads.ones_mask((6, 12)).parts
    with pytest.raises(InputError, match="0 to 100"):
        heads.corrupted_mask(mask, 101)


# ---- parsers --------------------------------------------------------------------------------------------------------------


def test_parsers_that_are_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    for parser in ("stanza", "spacy"):
        monkeypatch.setitem(sys.modules, parser, None)
        with pytest.raises(NotSupported, match=f"pip install {parser}"):
            heads.parse_texts(["a film"], parser, "xx")
    with pytest.raises(UnknownName, match="stanza"):
        heads.parse_texts(["a film"], "stanzas")


def test_stanza_words_are_placed_by_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in with Stanza's interface: sentence-relative heads from 1, characters of the whole text."""

    def word(start: int | None, end: int | None, head: int, deprel: str, parent: object = None) -> SimpleNamespace:
        return SimpleNamespace(start_char=start, end_char=end, head=head, deprel=deprel, parent=parent)

    token = SimpleNamespace(start_char=4, end_char=9)
    words = [word(None, None, 2, "advmod", token), word(10, 14, 0, "root")]
    sentence = SimpleNamespace(tokens=[token, SimpleNamespace(start_char=10, end_char=14)], words=words)
    fake = ModuleType("stanza")
    fake.Pipeline = lambda *a, **k: lambda text: SimpleNamespace(sentences=[sentence])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "stanza", fake)
    (found,) = heads.parse_texts(["Hm. don't like"], "stanza", "fake")
    assert found.text == "don't like"
    assert found.words == (Word(0, 5, 1, "advmod"), Word(6, 10, ROOT, "root"))


# ---- the command ----------------------------------------------------------------------------------------------------------


def test_files_that_the_command_cannot_use_are_sentences(tmp_path: Path) -> None:
    treebank, latin = tmp_path / "t.conllu", tmp_path / "latin.txt"
    treebank.write_text(CONLLU, encoding="utf-8")
    latin.write_bytes(b"caf\xe9\n")

    def said(*arguments: object) -> str:
        result = CliRunner().invoke(app, ["heads", *map(str, arguments)])
        assert isinstance(result.exception, whence.WhenceError), result.output
        return str(result.exception)

    assert "x.json' could not be written: No such file" in said(treebank, "--output", tmp_path / "no" / "x.json")
    assert "could not be written: Is a directory" in said(treebank, "--output", tmp_path)
    assert "it is not UTF-8 text" in said(latin, "--parser", "stanza")
    for name in ("h.jpg", "h.eps", "h"):
        assert "written as .png, .svg or .pdf" in said(treebank, "--figure", tmp_path / name)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["latin.txt", "t.conllu"]


def test_command(tmp_path: Path) -> None:
    treebank, mask, figure = tmp_path / "t.conllu", tmp_path / "m.json", tmp_path / "m.png"
    treebank.write_text(CONLLU, encoding="utf-8")
    arguments = [
        "heads",
        str(treebank),
        "--model",
        "sentiment",
        "--output",
        str(mask),
        "--xi-synt",
        "-0.5",
        "--xi-pos",
        "0.4",
    ]
    result = CliRunner().invoke(app, [*arguments, "--figure", str(figure)])
    assert result.exit_code == 0, result.output
    assert "of 72 heads in the mask, from 2 sentences" in result.output
    assert figure.stat().st_size > 1000
    stored = json.loads(mask.read_text())
    assert stored["provenance"]["corpus"][0].startswith("t.conllu (sha256")
    assert str(tmp_path) not in mask.read_text()
    e = whence.load("sentiment").explain("a charming journey", "mask-lrp", head_mask=str(mask))
    assert e.options["head_mask"]["source"] == str(mask)
    count = heads.load_mask(mask).count
    result = CliRunner().invoke(app, [*arguments, "--random", "1", "--format", "json"])
    assert np.count_nonzero(json.loads(result.output)["heads"]) == count
    result = CliRunner().invoke(app, [*arguments, "--corrupt", "100", "--format", "json"])
    assert np.count_nonzero(json.loads(result.output)["heads"]) == 72
