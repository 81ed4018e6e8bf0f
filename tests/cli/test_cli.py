"""The command line, in this process and once as a real one."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import whence
from whence.apps.cli import main

TEXT = "it 's a charming and often affecting journey ."


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str, stdin: str = ""
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["whence", *words])
    monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    return lambda *words, stdin="": run(capsys, monkeypatch, *words, stdin=stdin)


def test_explain_prints_prediction_and_words(cli) -> None:
    code, out, _ = cli("explain", TEXT, "--top", "3")
    assert code == 0
    assert out.startswith("positive ")
    assert "charming" in out
    assert "\x1b" not in out
    assert len(out.strip().split("\n")) == 5


def test_json_is_to_dict(cli, sentiment: whence.Explainer) -> None:
    code, out, _ = cli("explain", TEXT, "--format", "json", "--method", "gae", "--target", "negative")
    assert code == 0
    data = json.loads(out)
    assert whence.Explanation.from_dict(data) == sentiment.explain(TEXT, "gae", "negative")
    assert {"tokens", "scores", "target", "target_index", "probability", "method"} <= set(data)


def test_several_methods_texts_and_targets_give_a_list(cli) -> None:
    _, out, _ = cli(
        "explain",
        "-",
        "--method",
        "attcat",
        "--method",
        "gradient",
        "--format",
        "json",
        stdin="good film\nbad film\n",
    )
    found = [(d["text"], d["method"]) for d in json.loads(out)]
    assert found == [
        ("good film", "attcat"),
        ("good film", "gradient"),
        ("bad film", "attcat"),
        ("bad film", "gradient"),
    ]
    _, out, _ = cli("explain", TEXT, "--target", "all", "--format", "json")
    assert [d["target"] for d in json.loads(out)] == ["negative", "positive"]
    _, out, _ = cli(
        "explain", TEXT, "--method", "attcat", "--target", "0", "--option", "variant=paper", "--format", "json"
    )
    data = json.loads(out)
    assert (data["target"], data["options"]) == ("negative", {"variant": "paper"})


def test_pairs(cli) -> None:
    code, out, _ = cli("explain", "A man sleeps.", "--pair", "Nobody is awake.", "--model", "nli", "--format", "json")
    assert code == 0
    assert json.loads(out)["pair"] == "Nobody is awake."


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("explain", TEXT, "--method", "atcat"), "did you mean 'attcat'"),
        (("explain", TEXT, "--model", "sentimnet"), "did you mean 'sentiment'"),
        (("explain", TEXT, "--format", "xml"), "text, json"),
        (("explain", ""), "is empty"),
        (("explain", "-"), "stdin holds no text"),
        (("explain", TEXT, "--target", "happy"), "negative, positive"),
        (("explain", TEXT, "--target", "7"), "out of range"),
        (("explain", TEXT, "--option", "variant"), "name=value"),
        (("models", "--export", "nothing", "x"), "unknown"),
    ],
)
def test_mistakes_are_one_sentence_and_status_2(cli, words: tuple[str, ...], says: str) -> None:
    code, out, err = cli(*words)
    assert code == 2
    assert out == ""
    assert says in err
    assert err.startswith("whence: ")
    assert "Traceback" not in err
    assert err.count("\n") == 1


def test_long_text_warns_on_stderr(cli) -> None:
    code, out, err = cli("explain", "good " * 2000, "--format", "json")
    assert code == 0
    assert json.loads(out)["truncated"] is True
    assert "were cut" in err


def test_tables(cli) -> None:
    _, out, _ = cli("methods")
    assert [line.split("\t")[0] for line in out.strip().split("\n")] == [m["name"] for m in whence.methods()]
    _, out, _ = cli("models")
    assert out.startswith("sentiment\tsequence-classification\tnegative, positive")
    _, out, _ = cli("--version")
    assert out.startswith(f"whence {whence.__version__}, python 3.")
    assert out.strip().endswith(f"torch {torch.__version__}, transformers {transformers.__version__}")


def test_export_writes_a_plain_directory(cli, tmp_path: Path, sentiment: whence.Explainer) -> None:
    code, _, _ = cli("models", "--export", "sentiment", str(tmp_path / "model"))
    assert code == 0
    again = whence.load(tmp_path / "model")
    np.testing.assert_allclose(again.explain(TEXT).scores, sentiment.explain(TEXT).scores, atol=1e-5)


def test_as_a_real_process() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "whence", "explain", TEXT, "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["target"] == "positive"
    assert done.stderr == ""


def test_every_task_has_its_embedded_model(cli) -> None:
    context = "The book was written by Anna Smith in 1932."
    code, out, _ = cli(
        "explain", "--task", "qa", "--question", "Who wrote the book?", "--context", context, "--top", "2"
    )
    assert code == 0
    assert out.startswith("Anna Smith ")
    code, out, _ = cli(
        "explain", "--question", "When?", "--context", "-", "--answer", "1932", "--top", "2", stdin=context
    )
    assert code == 0
    assert out.startswith("1932 ")
    sentence = "the keys to the cabinet [MASK] on the table ."
    code, out, _ = cli("explain", "--task", "masked-lm", sentence, "--contrast", "are", "is", "--top", "1")
    assert code == 0
    assert out.startswith("are rather than is ")
    assert out.strip().split("\n")[-1].split()[0] == "keys"
    code, out, _ = cli(
        "explain", "--task", "causal-lm", "Once upon a time", "--continuation", " there was", "--format", "json"
    )
    assert code == 0
    assert json.loads(out)["pair"] == " there was"
    code, out, _ = cli("explain", "--task", "causal-lm", "He opened the", "--generate", "2", "--top", "1")
    assert code == 0
    assert out.count("attnlrp") == 2
    drawn = [
        cli(
            "explain", "--task", "causal-lm", "He opened the", "--generate", "3", "--sample", "--option", f"seed={seed}"
        )
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    question = ("--question", "Who wrote the book?", "--context", context, "--contrast", "Anna Smith", "1932")
    code, out, _ = cli("explain", *question, "--top", "1")
    assert code == 0
    assert out.startswith("Anna Smith rather than 1932 ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give a text to explain, or --question"),
        (("--question", "Who?"), "needs the --context"),
        (("good", "--question", "Who?", "--context", "She."), "not both"),
        (("good", "--context", "She."), "go with --question"),
        (("good", "--task", "ner"), "name one with --model"),
        (("good", "--task", "poetry"), "unknown task 'poetry'"),
        (("good", "--task", "causal-lm", "--generate", "2", "--target", "x"), "leave --target"),
        (("good", "--task", "causal-lm", "--sample"), "give --generate"),
    ],
)
def test_errors_about_tasks(cli, words: tuple[str, ...], message: str) -> None:
    code, _, err = cli("explain", *words)
    assert code == 2
    assert message in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("explain", TEXT, "--device", "tpu"), "device='tpu' is no device; this machine has cpu"),
        (("explain", TEXT, "--device", ""), "device='' is no device"),
        (("explain", TEXT, "--device", "meta"), "device='meta' cannot be used here"),
        (("explain", TEXT, "--device", "cuda:99"), "device='cuda:99' cannot be used here"),
        (("compare", TEXT, "--device", "tpu"), "is no device"),
        (("check", "gae", "--device", "tpu"), "is no device"),
        (("explain", TEXT, "--model", ""), "the model's name is empty"),
        (("explain", "--question", "who", "--context", "Bob", "--model", "sentiment"), "not for question-answering"),
        (("explain", "good", "--task", "causal-lm", "--model", "sentiment"), "not for causal-lm"),
        (("explain", TEXT, "--target=--1"), "unknown label '--1'"),
        (("explain", TEXT, "--target", "9" * 5000), "unknown label '999"),
        (("explain", TEXT, "--theme", "blue"), "unknown theme 'blue'"),
        (("compare", TEXT, "--theme", "blue"), "unknown theme 'blue'"),
        (("classes", "--theme", "blue"), "unknown theme 'blue'"),
        (("explain", TEXT, "--kind", "nope"), "unknown kind of figure 'nope'"),
        (("explain", TEXT, "--kind", "bars"), "give --figure"),
        (("explain", TEXT, "--layers", "--format", "json"), "leave them out of json"),
        (("explain", TEXT, "--top", "3", "--format", "html"), "leave them out of html"),
        (("explain", TEXT, "--top", "-1"), "Invalid value for '--top'"),
        (("evaluate", "x.csv", "--limit", "0"), "see `whence evaluate --help`"),
        (("explain", TEXT, "--nope"), "No such option: --nope"),
        (("explian", TEXT), "No such command 'explian'"),
        (("explain", "a", "b"), "extra argument"),
        (("explain", TEXT, "--top"), "'--top' requires an argument; see `whence --help`"),
    ],
)
def test_no_word_is_passed_over_and_none_is_a_traceback(cli, words: tuple[str, ...], says: str) -> None:
    code, out, err = cli(*words)
    assert (code, out) == (2, "")
    assert says in err
    assert err.startswith("whence: ")
    assert err.endswith(".\n")
    assert err.count("\n") == 1


def test_help_is_no_mistake(cli) -> None:
    code, out, err = cli("explain", "--help")
    assert (code, err) == (0, "")
    assert "--model" in out
    code, out, err = cli()
    assert "explain" in out + err


def test_what_generates_is_checked_and_told(cli) -> None:
    asked = ("explain", "--task", "causal-lm", "He opened the", "--generate")
    for seed in ("x", "-1", "1.5", "9" * 30):
        code, _, err = cli(*asked, "2", "--sample", "--option", f"seed={seed}")
        assert code == 2
        assert "give a whole number, 0 or more" in err
    prompt = ("Once upon a time", "--generate", "5000")  # the model does not end this one by itself
    code, out, err = cli(*asked[:3], *prompt, "--method", "random", "--format", "json")
    assert code == 0
    written = len(json.loads(out))
    assert f"{written} tokens were written, not 5000: the model reads" in err


def test_export_overwrites_nothing(cli, tmp_path: Path) -> None:
    kept = tmp_path / "model.safetensors"
    kept.write_text("mine", encoding="utf-8")
    code, out, err = cli("models", "--export", "sentiment", str(tmp_path))
    assert (code, out) == (2, "")
    assert "is not empty: give a new one" in err
    assert kept.read_text(encoding="utf-8") == "mine"
    code, _, err = cli("models", "--export", "sentiment", str(kept))
    assert (code, "could not be written to" in err) == (2, True)


def test_evaluate_takes_a_split_of_datasets_only(cli, tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text("text,label\ngood film,1\n", encoding="utf-8")
    for command in ("evaluate", "tune"):
        code, _, err = cli(command, str(file), "--split", "test")
        assert code == 2
        assert "--split test names a part of a Hugging Face dataset" in err


def test_classes_of_what_is_saved_take_no_model(cli, tmp_path: Path) -> None:
    saved = tmp_path / "run.json"
    cli("explain", "-", "--format", "json", "--output", str(saved), stdin="good film\nbad film\n")
    assert cli("classes", str(saved))[0] == 0
    for words in (("--model", "nope"), ("--model", "sentiment"), ("--option", "variant=paper")):
        code, out, err = cli("classes", str(saved), *words)
        assert (code, out) == (2, "")
        assert "holds explanations already" in err


def test_a_saved_probability_that_is_none(cli, tmp_path: Path) -> None:
    _, out, _ = cli("explain", TEXT, "--format", "json")
    saved = tmp_path / "run.json"
    for odd in ("Infinity", "NaN", "1" + "0" * 400):
        saved.write_text(json.dumps({**json.loads(out), "probability": 0.125}).replace("0.125", odd), encoding="utf-8")
        code, _, err = cli("report", str(saved), "--output", str(tmp_path / "r.html"))
        assert code == 2
        assert "this is not a stored Explanation: its probability is no finite number." in err
