"""The benchmark program: every suite runs in small, rows say what failed, a baseline tells what became worse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bench import peers
from bench.__main__ import main
from bench.baseline import add, in_common, regressions, stored
from bench.figures import draw
from bench.measure import against, measure
from bench.peers import Company, Job
from bench.settings import PEERS, Settings, multiplying
from bench.shapes import TINY, random_rows, words_of, words_tokenizer
from bench.suites import SUITES, suite
from bench.table import Row, Table

QUICK = Settings(quick=True, threads=1, peers=())


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", [name for name in SUITES if name != "agreement"])
def test_every_suite_runs_in_small(name):
    with Company(QUICK) as company:
        found = list(suite(name)(QUICK, company))
    assert found
    for table in found:
        assert table.rows
        assert not [f"{row.name}: {row.note}" for row in table.rows if row.failed]
        assert any(row.seconds for row in table.rows)
        assert table.title in table.text()
        if table.floor:
            assert table.row(table.floor).ratio == pytest.approx(1)


def test_the_program_writes_what_it_measured_and_compares_it(tmp_path, capsys):
    file = tmp_path / "measured.json"
    common = ["relevance", "--quick", "--threads", "1", "--peers", ""]
    assert main([*common, "--json", str(file)]) == 0
    assert "attnlrp" in capsys.readouterr().out
    content = json.loads(file.read_text())
    rows = content["suites"]["relevance"]["tables"][0]["rows"]
    assert {"floor", "transatt"} <= {row["name"] for row in rows}
    for row in rows:
        row["ratio"] = 1e-6  # nothing will ever be so fast again
    file.write_text(json.dumps(content))
    assert main([*common, "--baseline", str(file)]) == 1
    assert "worse than the baseline: relevance" in capsys.readouterr().out


def test_unknown_names_are_refused(capsys):
    for arguments in (["single-pas"], ["--peers", "captun"]):
        with pytest.raises(SystemExit):
            main(arguments)
    said = capsys.readouterr().err
    assert "unknown suite 'single-pas': choose from single-pass" in said
    assert "unknown peer 'captun': choose from captum" in said


def test_a_run_that_fails_is_a_row_and_the_others_are_measured():
    def broken() -> None:
        raise ValueError("no such thing\nsecond line")

    rows = measure({"floor": lambda: None, "broken": broken, "fine": lambda: None}, QUICK, 1)
    table = against(rows, "t", "floor", {"broken": {"ratio": 1.0}})
    assert table.row("broken").note == "does not run: ValueError: no such thing"
    assert table.row("broken").failed
    assert table.row("broken").missed() == ["ratio"]
    assert table.row("fine").seconds is not None
    assert "MISSED" in table.text()


def test_regressions_are_ratios_of_ours_more_than_a_fifth_worse():
    before = Table("t", [Row("a", 1.0, 2.0), Row("b", 1.0, 2.0), Row("a · captum", 1.0, 2.0, beside="a")])
    now = Table("t", [Row("a", 1.0, 2.39), Row("b", 1.0, 2.41), Row("a · captum", 1.0, 9.0, beside="a")])
    assert regressions({"s": [now]}, {"s": [before]}) == ["s, t: b 2.41× the floor, was 2.00×"]
    assert regressions({"s": [replace(now, title="another shape")]}, {"s": [before]}) == []
    assert in_common({"s": [now]}, {"s": [before]}) > 0
    assert (
        in_common({"s": [replace(now, title="another shape")]}, {"s": [before]}) == 0
    )  # and that nothing is worse says nothing


def test_files_are_added_to_and_read_back(tmp_path):
    file = tmp_path / "base.json"
    table = Table("t", [Row("a", 0.123456, 2.0, wanted={"ratio": 3.0})], "a", notes=["so"])
    add(file, {"one": [table]}, QUICK)
    add(file, {"two": [table]}, QUICK)
    found = stored(file)
    assert list(found) == ["one", "two"]
    assert found["one"][0].rows[0] == Row("a", 0.1235, 2.0, wanted={"ratio": 3.0})
    assert found["one"][0].notes == ["so"]


def test_the_committed_baseline_names_suites_that_exist():
    for name, tables in stored(Path(peers.ROOT) / "bench" / "baseline.json").items():
        assert name in SUITES
        assert all(row.failed is False for table in tables for row in table.rows if row.beside is None)


def test_tables_with_an_axis_are_drawn(tmp_path):
    rows = [Row(f"{s}{x}", 0.1 * x, megabytes=60.0 * x, x=x, series=s) for s in ("floor", "gae") for x in (1, 2, 4)]
    tables = [Table("no axis", [Row("a", 1.0)]), Table("curves", rows, axis="tokens")]
    (file,) = draw({"long": tables}, tmp_path)
    assert file.name == "long-tokens.png"
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_peer_runs_in_its_own_process_and_an_absent_one_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "ENVIRONMENTS", tmp_path)  # only what this environment itself has
    job = Job("gradient", TINY, 2, 12, threads=1)
    with Company(replace(QUICK, peers=("captum", "interpreto"))) as company:
        rows = measure({"gradient": lambda: None, **company.runs({"gradient": job})}, QUICK, 1)
    by_name = {row.name: row for row in rows}
    captum = by_name["gradient · captum"]
    assert captum.seconds is not None
    assert captum.seconds > 0
    assert captum.beside == "gradient"
    assert by_name["gradient · interpreto"].note.startswith("does not run: PeerError: ModuleNotFoundError")


def test_every_peer_names_what_it_does():
    for name in PEERS:
        assert all(model in ("bert", "gpt2", "gpt2-lm") for model, _ in peers.methods_of(name))


def test_words_are_read_back_as_the_tokens_they_stand_for():
    texts = random_rows(2, 10, TINY.words)
    assert words_tokenizer(TINY.words)(words_of(texts))["input_ids"] == [row["input_ids"] for row in texts]


def test_tf32_is_on_for_the_block_only():
    before = torch.backends.cuda.matmul.allow_tf32
    with multiplying("tf32"):
        assert torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cuda.matmul.allow_tf32 == before
