"""One rule for rows that cannot be read, in every command: kept in place with the error, counted, named by file and line; `--strict` stops."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

import whence
import whence.corpus
from tests import architectures
from tests.cli.test_cli import cli  # noqa: F401  (the fixture)
from whence.corpus.bad_rows import BadRow, sentence
from whence.errors import BadRows, InputError
from whence.evaluate.check import check
from whence.evaluate.data import read
from whence.evaluate.tune import tune

CSV = b'text,label\na good film,1\n"stray,1\n,0\na dull \xff film,0\na dull film,0\nfine plot,1\n'
LINES = b"a good film\n\n  \t\na dull \xff film\na dull film\nfine plot\n"
BAD = {1: "a.csv:3", 2: "a.csv:4", 3: "a.csv:5"}
SAID = "whence: 3 of 6 rows could not be read: a.csv:3, record 2 cannot be read: a quote opens a value .*; a.csv:4: the text is empty"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_bytes(CSV)
    (tmp_path / "lines.txt").write_bytes(LINES)
    return tmp_path


COMMANDS = [
    ("evaluate", "a.csv", "--method", "gradient", "--metric", "kendall"),
    ("tune", "a.csv", "--method", "gradient", "--method", "random", "--objective", "comprehensiveness"),
    ("check", "gradient", "--data", "a.csv"),
    ("classes", "a.csv", "--method", "gradient"),
    ("corpus", "a.csv", "--output", "out", "--method", "gradient"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=[c[0] for c in COMMANDS])
def test_every_command_goes_on_and_says_so(cli, data: Path, words: tuple[str, ...]) -> None:  # noqa: F811
    code, out, complained = cli(*words)
    assert (code, re.match(SAID, complained) is not None) == (3, True), complained
    assert out


@pytest.mark.parametrize("words", COMMANDS, ids=[c[0] for c in COMMANDS])
def test_strict_stops_at_the_first(cli, data: Path, words: tuple[str, ...]) -> None:  # noqa: F811
    code, out, complained = cli(*words, "--strict")
    assert (code, out) == (2, "")
    assert complained.startswith("whence: a.csv:3, record 2 cannot be read: ")
    assert "This run is strict: without --strict" in complained
    (data / "a.csv").write_text("text,label\na good film,1\na dull film,0\nfine plot,1\n")
    code, _, complained = cli(*("again" if word == "out" else word for word in words), "--strict")
    assert (code, "could not be read" in complained) == (0, False)


def test_a_strict_corpus_run_stops_at_rows_of_an_earlier_one(cli, data: Path) -> None:  # noqa: F811
    words = ("corpus", "a.csv", "--output", "out", "--method", "gradient")
    assert cli(*words)[0] == 3
    code, _, complained = cli(*words)
    assert (code, re.match(SAID, complained) is not None) == (3, True), "named again though nothing was missing"
    code, _, complained = cli(*words, "--strict")
    assert (code, complained.startswith("whence: a.csv:3, record 2")) == (2, True)


def test_lines_and_results_line_up(cli, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    def explained(*words: str, text: bytes = LINES) -> tuple[int, str, str]:
        def given(*_: Any) -> io.TextIOWrapper:
            return io.TextIOWrapper(io.BytesIO(text), encoding="utf-8")

        monkeypatch.setattr(io, "StringIO", given)  # what the fixture makes stdin of
        return cli("explain", "-", "--method", "gradient", *words)

    code, out, complained = explained("--format", "json")
    rows = json.loads(out)
    assert (code, len(rows)) == (3, 6)
    assert [row.get("error", "") != "" for row in rows] == [False, True, True, True, False, False]
    assert [row.get("place") for row in rows[1:4]] == ["stdin:2", "stdin:3", "stdin:4"]
    assert [row["text"] for row in rows] == ["a good film", "", "  \t", None, "a dull film", "fine plot"]
    assert complained.startswith("whence: 3 of 6 rows could not be read: stdin:2: the text is empty")
    for words, count in (
        (("--target", "all"), 12),
        (("--method", "attcat"), 12),
        (("--method", "attcat", "--target", "all"), 24),
    ):
        rows = json.loads(explained("--format", "json", *words)[1])
        per_line = count // 6
        assert len(rows) == count
        assert [row.get("place") for row in rows[per_line : 2 * per_line]] == ["stdin:2"] * per_line
        assert rows[4 * per_line]["text"] == "a dull film"
    code, out, _ = explained()
    assert (code, out.split("\n\n")[1:4]) == (
        3,
        [
            "stdin:2: the text is empty: there is nothing to explain; give at least one word.",
            "stdin:3: the text is empty: there is nothing to explain; give at least one word.",
            "stdin:4 is not UTF-8 text.",
        ],
    )
    code, out, _ = explained("--format", "latex")
    assert (code, out.count("\n% stdin:")) == (3, 3)
    code, out, _ = explained("--format", "html")
    page = json.loads(re.search(r'id="rows">(.*?)</script>', out)[1])  # type: ignore[index]
    assert [row.get("error", "")[:7] for row in page] == ["", "stdin:2", "stdin:3", "stdin:4", "", ""]
    assert "3 explanations of sentiment, and 3 rows that could not be read." in out
    code, out, complained = explained("--strict")
    assert (code, out, complained.startswith("whence: stdin:2: the text is empty")) == (2, "", True)
    code, out, complained = explained(text=b"\xff\n\ngood\n\n")
    assert (code, out.rstrip().endswith("give at least one word.")) == (3, True), "a blank line at the end is a line"
    code, _, complained = explained("--target", "nope")
    assert (code, "unknown label 'nope'" in complained) == (2, True)


def test_other_tasks_and_questions_keep_lines_too(cli, data: Path) -> None:  # noqa: F811
    def explained(stdin: str, *words: str) -> tuple[int, list[Any]]:
        code, out, _ = cli("explain", "-", "--format", "json", "--method", "gradient", *words, stdin=stdin)
        return code, [row.get("error") for row in json.loads(out)]

    code, errors = explained(
        "the keys [MASK] here\nno mask\nthe [MASK] and [MASK] .\n", "--task", "masked-lm", "--target", "are"
    )
    assert (code, errors[0]) == (3, None)
    assert "there is no [MASK]" in errors[1]
    assert "1 word as target for 2 [MASK]" in errors[2], "what does not fit is found out by the model"
    code, errors = explained("He opened\n\nShe\n", "--task", "causal-lm", "--generate", "2")
    assert (code, [error is None for error in errors]) == (3, [True, True, False, False, True, True])
    code, errors = explained("A man sleeps.\n\nA dog runs.\n", "--pair", "Nobody is awake.", "--model", "nli")
    assert (code, errors) == (0, [None] * 3), "a pair with an empty first text has something to explain"
    code, _, complained = cli(
        "explain",
        "-",
        "--task",
        "masked-lm",
        "--target",
        "are",
        "--contrast",
        "are",
        "are",
        stdin="a [MASK]\nb [MASK]\n",
    )
    assert (code, "names the target itself" in complained) == (2, True)


def test_nothing_but_bad_rows_is_an_error(cli, data: Path) -> None:  # noqa: F811
    (data / "a.csv").write_text('text,label\n"stray,1\n,0\n')
    for words in COMMANDS[:-1]:
        code, out, complained = cli(*words)
        assert (code, out) == (2, "")
        assert complained.startswith(
            "whence: none of the rows could be read. 2 of 2 rows could not be read: a.csv:2, record 1"
        )
    code, _, complained = cli("explain", "-", "--model", "masked-lm", "--task", "masked-lm", stdin="no mask\n\n")
    assert (
        code,
        "none of the rows could be read. 2 of 2 rows could not be read: stdin:1: there is no" in complained,
    ) == (2, True)


def test_numbers_stand_in_the_rows_places(cli, data: Path) -> None:  # noqa: F811
    words = (
        "evaluate",
        "a.csv",
        "--method",
        "gradient",
        "--metric",
        "comprehensiveness",
        "--format",
        "json",
        "--output",
        "folder",
    )
    code, out, _ = cli(*words)
    report = json.loads(out)
    assert code == 3
    assert [value is None for value in report["values"]["comprehensiveness"]["gradient"]] == [
        False,
        *[True] * 3,
        False,
        False,
    ]
    assert {row["row"]: row["place"] for row in report["errors"]} == BAD
    assert report["settings"]["texts"] == report["figures"]["comprehensiveness"]["gradient"]["n"] == 3
    again = whence.Report.from_dict(report)
    assert [row.row for row in again.errors] == [1, 2, 3]
    lines = (data / "folder" / "values.csv").read_text().splitlines()[1:]
    assert {line.split(",")[0] for line in lines} == {"0", "4", "5"}
    code, out, _ = cli(*words)
    assert (code, json.loads(out)) == (3, report), "and when it is gone on with"
    (data / "good.csv").write_text("text,label\na good film,1\na dull film,0\nfine plot,1\n")
    alone = json.loads(cli("evaluate", "good.csv", *words[2:-2])[1])
    assert alone["figures"] == report["figures"]
    tuned = json.loads(cli(*COMMANDS[1], "--format", "json")[1])
    assert [row["place"] for row in tuned["errors"]] == list(BAD.values())


def test_examples_of_classes_are_numbers_of_rows(cli, data: Path) -> None:  # noqa: F811
    for name in ("a.csv", "lines.txt"):
        code, out, complained = cli("classes", name, "--method", "gradient", "--format", "json")
        found = json.loads(out)
        assert (code, f"3 of 6 rows could not be read: {name}:" in complained) == (3, True)
        assert {n for words in found["classes"].values() for w in words for n in w["examples"]} <= {0, 4, 5}
        assert [row["row"] for row in found["errors"]] == [1, 2, 3]
    (data / "a.jsonl").write_bytes(
        b'{oops\n{"text": "a good film"}\n{"text": null}\n\n7\n{"text": "bad"}\n{"text": "\xff"}\n'
    )
    code, out, complained = cli("classes", "a.jsonl", "--method", "gradient", "--format", "json")
    places = [(row["row"], row["place"]) for row in json.loads(out)["errors"]]
    assert (code, places) == (3, [(0, "a.jsonl:1"), (2, "a.jsonl:3"), (3, "a.jsonl:5"), (5, "a.jsonl:7")])
    assert "4 of 6 rows could not be read: a.jsonl:1 is not JSON" in complained
    code, _, complained = cli("classes", "--background", "a.csv", "--top", "1")
    assert (code, "2 of 6 rows could not be read: a.csv:3" in complained) == (3, True)


def test_a_report_shows_bad_rows_in_their_places(cli, data: Path) -> None:  # noqa: F811
    cli("corpus", "a.csv", "--output", "out", "--method", "gradient", "--keep", "label")
    code, out, complained = cli("report", "out", "--output", "page.html", "--label", "label")
    assert (code, out) == (3, "3 explanations in page.html\n")
    assert complained.startswith("whence: 3 of 6 rows could not be read: out, row 1: a.csv:3, record 2")

    def rows() -> list[Any]:
        page = (data / "page.html").read_text()
        return json.loads(re.search(r'id="rows">(.*?)</script>', page)[1])  # type: ignore[no-any-return,index]

    assert [(row.get("error", "")[:10], row.get("label")) for row in rows()] == [
        ("", "positive"),
        *(("out, row 1", None), ("out, row 2", None), ("out, row 3", None)),
        ("", "negative"),
        ("", "positive"),
    ]
    code, out, _ = cli("report", "out", "--output", "page.html", "--limit", "4")
    assert (code, out, len(rows())) == (3, "1 explanations in page.html (the first of 6; --limit shows more)\n", 4)
    code, out, _ = cli("report", "out", "--output", "page.html", "--limit", "1")
    assert (code, len(rows())) == (0, 1)
    (data / "page.html").unlink()
    code, out, complained = cli("report", "out", "--output", "page.html", "--strict")
    assert (code, out, (data / "page.html").exists()) == (2, "", False)
    assert complained.startswith("whence: out, row 1: a.csv:3")
    for command in (("classes", "out"), ("evaluate", "out", "--method", "gradient", "--metric", "kendall")):
        code, _, complained = cli(*command)
        assert (code, "3 of 6 rows could not be read: out, row 1" in complained) == (3, True)
        assert cli(*command, "--strict")[0] == 2


def test_what_explain_wrote_is_read_with_its_gaps(cli, data: Path) -> None:  # noqa: F811
    _, out, _ = cli("explain", "-", "--format", "json", "--method", "gradient", stdin="good film\n\nbad film\n")
    (data / "run.json").write_text(out)
    (data / "run.jsonl").write_text("\n".join([*map(json.dumps, json.loads(out)), "{oops", '{"tokens": 5}']) + "\n")
    for name, bad, first in (("run.json", 1, "stdin:2"), ("run.jsonl", 3, "stdin:2")):
        code, out, complained = cli("report", name, "--output", "page.html")
        assert (code, out) == (3, "2 explanations in page.html\n")
        assert f"{bad} of {2 + bad} rows could not be read: {first}: the text is empty" in complained
        code, out, complained = cli("classes", name, "--format", "json")
        assert (code, len(json.loads(out)["errors"])) == (3, bad)
        assert cli("classes", name, "--strict")[0] == cli("report", name, "--strict")[0] == 2
    assert "run.jsonl:4 is not JSON" in cli("report", "run.jsonl", "--output", "page.html")[2]


# ---- in Python ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny() -> whence.Explainer:
    return whence.load(architectures.model("bert"), architectures.tokenizer())


def test_functions_warn_and_keep_places(data: Path, tiny: whence.Explainer) -> None:
    says = r"3 of 6 rows could not be read: a\.csv:3"
    with pytest.warns(BadRows, match=says):
        report = whence.evaluate(tiny, data / "a.csv", ["gradient"], ["comprehensiveness"], progress=False)
    assert {row.row: row.place for row in report.errors} == BAD
    with pytest.warns(BadRows, match=says):
        tuned = tune(tiny, data / "a.csv", ["gradient", "random"], objective=["comprehensiveness"], progress=False)
    assert [row.place for row in tuned.errors] == list(BAD.values())
    with pytest.warns(BadRows, match=says):
        assert len(check(tiny, "gradient", data / "a.csv").errors) == 3
    with pytest.warns(BadRows, match=says):
        whence.load("sentiment", sample=data / "a.csv")
    done = whence.corpus.run(data / "a.csv", data / "out", tiny, "gradient", progress=False)
    assert {row.row: row.place for row in done.bad} == BAD
    for strict in (
        lambda: whence.evaluate(tiny, data / "a.csv", ["gradient"], ["kendall"], strict=True),
        lambda: tune(tiny, data / "a.csv", ["gradient"], strict=True),
        lambda: check(tiny, "gradient", data / "a.csv", strict=True),
        lambda: whence.corpus.run(data / "a.csv", data / "other", tiny, "gradient", strict=True, progress=False),
        lambda: read(data / "a.csv"),
    ):
        with pytest.raises(InputError, match=r"a\.csv:3, record 2 cannot be read"):
            strict()
    with pytest.warns(
        BadRows, match=r"2 of 4 rows could not be read: row 1: the text is empty.*; row 3: expected a text"
    ):
        report = whence.evaluate(tiny, ["good film", "", "bad", None], ["gradient"], ["kendall"], progress=False)
    assert len(report.errors) == 2


def test_one_odd_record_decides_nothing_for_the_others(tmp_path: Path) -> None:
    """Nor where it is the first."""
    for odd in ('{"oops": 1}', '"plain"', "7", "null", "[]", "{oops"):
        file = tmp_path / "a.jsonl"
        file.write_text(odd + '\n{"sentence": "good", "label": 1}\n{"sentence": "bad", "label": 0}\n')
        examples = read(file, strict=False)
        assert [e.input for e in examples] == [None, "good", "bad"], odd
        assert [e.place for e in examples] == ["a.jsonl:1", "a.jsonl:2", "a.jsonl:3"]


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.csv").write_text('text\ngood\n"stray\nbad\n')
    examples = read(str(tmp_path / "*" / "a.csv"), strict=False)
    assert [e.place for e in examples if e.error] == [f"{tmp_path}/x/a.csv:3", f"{tmp_path}/y/a.csv:3"]
    source = whence.corpus.sources.source_of(str(tmp_path / "*" / "a.csv"))
    assert source.place(4) == f"{tmp_path}/y/a.csv:3"


def test_three_are_named_and_the_others_counted() -> None:
    bad = [BadRow(i, f"a.csv:{i + 2}", "the text is empty.") for i in range(5)]
    assert sentence(bad, 1000) == (
        "5 of 1,000 rows could not be read: a.csv:2: the text is empty; a.csv:3: the text is empty; a.csv:4: the text is empty; "
        "and 2 more."
    )
    assert sentence(bad[:3], 10_000, 4000).endswith("and 3,997 more.")
