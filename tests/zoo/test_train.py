"""The parts of `train/` that decide whether a figure is honest: splits, masks, LoRA, spans, parts."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def train():
    """`train` is not installed with the package: import it from the checkout."""
    sys.path.insert(0, str(ROOT))
    try:
        names = ("all", "classify", "common", "lora", "masked_lm", "question_answering", "vocabulary")
        for name in names:
            importlib.import_module(f"train.{name}")
        yield sys.modules["train"]
    finally:
        sys.path.remove(str(ROOT))


def test_package_never_imports_train():
    for file in (ROOT / "src").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert "import train" not in text
        assert "from train" not in text


def test_nothing_of_the_selection_split_is_trained_on(train):
    long = "one two three four five six seven eight nine ten eleven twelve"
    rows = [{"text": f"{long} {i}", "label": 0} for i in range(40)]
    rows += [{"text": f"twelve {i}", "label": 1} for i in range(40)]
    kept, held = train.classify.split(rows, ("text",), 10)
    assert len(held) == 10
    held_texts, kept_texts = ([f" {row['text']} " for row in some] for some in (held, kept))
    assert not any(a in b or b in a for a in kept_texts for b in held_texts)
    assert (kept, held) == train.classify.split(rows, ("text",), 10)

    pairs = [{"premise": f"p{i // 3}", "hypothesis": f"h{i}", "label": 0} for i in range(90)]
    kept, held = train.classify.split(pairs, ("premise", "hypothesis"), 12)
    assert len(kept) + len(held) == 90
    assert not {r["premise"] for r in kept} & {r["premise"] for r in held}

    questions = [{"context": f"c{i // 4}", "question": str(i)} for i in range(80)]
    kept, held = train.question_answering.split(questions)
    assert held
    assert not {r["context"] for r in kept} & {r["context"] for r in held}


def test_evaluation_texts_are_left_out_of_the_language_models(train, tmp_path):
    tables = {
        "imdb_train": [{"text": "Seen before"}, {"text": "new"}],
        "sst2_train": [{"text": "s"}],
        "agnews_train": [{"text": "a"}],
        "books": [{"text": "b"}],
        "snli_train": [{"premise": "p", "hypothesis": "h"}],
        "squad_train": [{"question": "q", "context": "c"}],
        "imdb_test": [{"text": "seen before"}],
    }
    for name, rows in tables.items():
        train.common.write_table(tmp_path, name, rows)
        assert train.common.read_table(tmp_path, name) == rows
    documents = train.common.training_documents(tmp_path)
    assert ("Seen before",) not in documents
    assert {("new",), ("p", "h"), ("q", "c")} <= set(documents)


def test_rows_are_cut_and_corrupted_as_said(train):
    torch.manual_seed(0)
    stream = torch.randint(5, 8192, (126 * 50,))
    rows, parts = train.masked_lm.cut_rows(stream, torch.zeros_like(stream), 128)
    assert rows.shape == parts.shape == (50, 128)
    assert (rows[:, 0] == train.common.CLS).all()
    assert (rows[:, -1] == train.common.SEP).all()
    assert torch.equal(rows[:, 1:-1].flatten(), stream)
    shown, picked = train.masked_lm.corrupt(rows)
    assert picked.shape == (50, 26)
    assert (rows.gather(1, picked) > train.common.MASK).all()  # special tokens are never picked
    changed = shown != rows
    assert not changed.scatter(1, picked, False).any()
    assert (shown.gather(1, picked) == train.common.MASK).float().mean() == pytest.approx(0.8, abs=0.05)


def test_trained_layer_equals_the_merged_one(train):
    from whence.models.zoo.loading import merge

    torch.manual_seed(0)
    linear = torch.nn.Linear(24, 20)
    layer = train.lora.LoraLinear(linear, 4).eval()
    torch.nn.init.normal_(layer.lora_B.weight)
    x = torch.randn(3, 24)
    adapter = {f"base_model.model.m.{key}": t for key, t in layer.state_dict().items() if "lora" in key}
    merged = merge({"m.weight": linear.weight.detach()}, adapter, train.lora.SCALE)
    torch.testing.assert_close(layer(x), torch.nn.functional.linear(x, merged["m.weight"], linear.bias))


def test_frequent_classes_get_no_credit_for_it(train):
    rows = [{"text": "t", "label": label, "source": "vic"} for label in (0, 0, 0, 1)]
    rows += [{"text": "t", "label": label, "source": "noisy"} for label in (0, 1)]
    plain, _, _, rare, *noisy = train.classify.class_shares(rows, 2)
    assert plain == rare == [4 / 6, 2 / 6]
    assert noisy == [[0.5, 0.5]] * 2
    assert train.classify.class_shares([{"label": 0}, {"label": 0}], 2) == [[0.5, 0.5]] * 2


def test_answers_are_scored_as_squad_does(train):
    score = train.question_answering.f1_and_match
    assert score("The Holt, Anna", "holt anna") == (1.0, 1.0)
    assert score("Anna Holt in 1902", "Anna Holt") == (pytest.approx(2 / 3), 0.0)
    assert score("nothing", "Anna Holt") == (0.0, 0.0)


def test_schedule_warms_up_and_decays(train):
    factor = train.common.schedule
    assert factor(0.0) == 0.0
    assert factor(0.06) == pytest.approx(0.94)
    assert factor(0.5) == 0.5
    assert factor(1.0) == 0.02


def test_parts_join_to_what_was_written(train, tmp_path, monkeypatch):
    monkeypatch.setattr(train.all, "PART", 4000)
    (tmp_path / "out" / "base").mkdir(parents=True)
    (tmp_path / "out" / "base" / "x.bin").write_bytes(bytes(range(256)) * 50)
    train.all.write_parts(tmp_path / "out", tmp_path / "parts", train.common.Log("test"))
    assert len(list((tmp_path / "parts").iterdir())) > 1
    train.all.join_parts(tmp_path / "parts", tmp_path / "again")
    assert (tmp_path / "again" / "base" / "x.bin").read_bytes() == bytes(range(256)) * 50


def test_vocabulary_keeps_special_tokens_and_characters(train):
    ids = {"[PAD]": 0, "[unused1]": 1, "[UNK]": 2, "[CLS]": 3, "[SEP]": 4, "[MASK]": 5}
    ids |= {"a": 6, "##a": 7, "cat": 8, "dog": 9, "##ing": 10}
    kept = train.vocabulary.choose_pieces(ids, train.vocabulary.Counter({9: 5, 10: 2, 8: 1}), size=9)
    assert kept == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##a", "dog", "##ing"]
