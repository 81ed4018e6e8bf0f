"""Two commits in turn: the best ratio of each row counts, and only what is worse twice fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import against

OTHER = Path("other")


@pytest.fixture
def ratios(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Says what each run of a tree measures: the next of a list."""

    def say(before: list[float], after: list[float]) -> None:
        runs = {OTHER: iter(before), against.ROOT: iter(after)}
        monkeypatch.setattr(
            against, "measured", lambda tree, suite, options: {(suite, "BERT", "gradient"): next(runs[tree])}
        )

    @contextlib.contextmanager
    def tree(revision: str) -> Iterator[Path]:
        yield OTHER

    monkeypatch.setattr(against, "checked_out", tree)
    return say


def test_the_best_of_all_rounds_counts(ratios: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ratios([1.0, 1.2], [1.3, 1.05])
    assert against.compare(["paths"], "HEAD~1", []) == 0
    assert "gradient: 1.00 → 1.05 (1.05)" in capsys.readouterr().out


def test_what_is_worse_once_is_run_again(ratios: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ratios([1.0, 1.0, 1.0, 1.0], [1.2, 1.3, 1.1, 1.02])
    assert against.compare(["paths"], "HEAD~1", []) == 0
    assert "once more: paths" in capsys.readouterr().out


def test_what_is_worse_twice_fails(ratios: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ratios([1.0] * 4, [1.2, 1.3, 1.1, 1.09])
    assert against.compare(["paths"], "HEAD~1", []) == 1
    assert "WORSE TWICE" in capsys.readouterr().out
