"""A stray quote in a CSV costs its own line; what Python's csv module writes is read as it was, values of several lines too."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whence.corpus.sources import files as module
from whence.corpus.sources import source_of, tables
from whence.corpus.sources.tables import Lines, comma_rows
from whence.errors import InputError


def read(path: Path, content: str | bytes) -> list[Any]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    source = source_of(path)
    return source.read(0, len(source))


def texts(records: Iterable[Any]) -> list[Any]:
    """The text of each record, None where it cannot be read."""
    return [None if isinstance(record, InputError) else record["text"] for record in records]


def test_one_stray_quote_swallows_no_rows(tmp_path: Path) -> None:
    lines = ["text,label", *(f"review number {i},{i % 2}" for i in range(200))]
    lines[12] = '"review number 11,1'
    records = read(tmp_path / "reviews.csv", "\n".join(lines) + "\n")
    assert len(records) == 200
    assert [i for i, record in enumerate(records) if isinstance(record, InputError)] == [11]
    assert "reviews.csv:13, record 12 cannot be read: a quote opens a value and none closes it" in str(records[11])
    assert records[12] == {"text": "review number 12", "label": "0"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('"stray,1\na,1\nb,"2"\n', [None, "a", "b"]),  # closed far below, and then goes on
        ('"stray,1\na,1\n"b, c",2\n', [None, "a", "b, c"]),
        ('"one" two,1\na,1\n', [None, "a"]),
        ('"one"two,1\n"a, b",1\n', [None, "a, b"]),
        ('"one" ,1\na,1\n', [None, "a"]),
        ('a,1\n"last,1', ["a", None]),
        ('a,1\n"last', ["a", None]),
        ('a,1\n"', ["a", None]),
        ('"stray\n"stray\na,1\n', [None, None, "a"]),
        ('"stray,1\r\na,1\r\n"b\r\nc",2\r\n', [None, "a", "b\r\nc"]),
        ('"a\nb, c\n""d""",1\ne,1\n', ['a\nb, c\n"d"', "e"]),  # legal
        ('a "fine" film,1\n5" disk,1\n', ['a "fine" film', '5" disk']),  # a quote inside a value without quotes
        (' "a",1\n', [' "a"']),
        ('"",1\n"""",1\n"""""",1\n', ["", '"', '""']),
        ('a,"1"', ["a"]),
        ('"a\n\n\nb",1\nc,1\n', ["a\n\n\nb", "c"]),
    ],
)
def test_where_quotes_stand(tmp_path: Path, body: str, expected: list[str | None]) -> None:
    assert texts(read(tmp_path / "a.csv", "text,label\n" + body)) == expected


def test_a_quote_costs_nothing_in_a_tsv(tmp_path: Path) -> None:
    assert texts(read(tmp_path / "a.tsv", 'text\tlabel\n"stray\t1\na\t1\n"b" c\t1\n')) == ['"stray', "a", '"b" c']


def test_a_header_with_a_stray_quote_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"the header of a\.csv cannot be read: a quote opens a value and none closes it"
    ):
        read(tmp_path / "a.csv", '"text,label\na,1\n')


def test_only_the_first_line_has_a_byte_order_mark(tmp_path: Path) -> None:
    assert texts(read(tmp_path / "a.csv", "\ufefftext\na\n\ufeffb\n")) == ["a", "\ufeffb"]


def test_a_torn_record_of_several_lines_says_so(tmp_path: Path) -> None:
    records = read(tmp_path / "a.csv", 'text,label\n"a\nb",1,2\nc,1\n')
    assert texts(records) == [None, "c"]
    assert "a.csv:2, record 1: the header names 2 columns and this record has 3 on 2 lines" in str(records[0])


def rows_of(data: bytes, line: int = 1, at: int = 0) -> list[tuple[Any, ...]]:
    """Of each row its values (None if it is torn), its line, its first byte and how many lines it takes."""
    rows = comma_rows(Lines(io.BytesIO(data), line, at))
    return [(None if row.reason else row.values, row.line, row.at, row.lines) for row in rows]


def by_definition(data: bytes, most: int) -> list[tuple[Any, ...]]:
    """The same, by trying every length of every record."""
    raw, rows, i, at = io.BytesIO(data).readlines(), [], 0, 0
    while i < len(raw):
        values, count = None, 1
        for end in range(i + 1, len(raw) + 1):
            if sum(map(len, raw[i : end - 1])) > most and end > i + 1:
                break
            try:
                values = next(csv.reader([line.decode() for line in raw[i:end]], strict=True))
                count = end - i
                break
            except csv.Error as error:
                if "unexpected end" not in str(error):
                    break
        rows.append((values, i + 1, at, count))
        at += sum(map(len, raw[i : i + count]))
        i += count
    return rows


@settings(max_examples=400, deadline=None, derandomize=True)
@given(text=st.text('a",\n\r', max_size=40), most=st.sampled_from([0, 3, 10, 1 << 23]))
def test_every_line_is_read_as_defined_and_from_every_row_on(text: str, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "MOST", most)
        rows = rows_of(text.encode())
        assert rows == by_definition(text.encode(), most)
        for i, (_, line, at, _) in enumerate(rows):
            assert rows_of(text.encode()[at:], line, at) == rows[i:]


CELLS = st.text(
    st.sampled_from("ab \",;\t\n\r'é🎬\ufeff\x00\u2028") | st.characters(exclude_categories=["Cs"]), max_size=9
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.lists(CELLS, min_size=1, max_size=4), max_size=12),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    ends=st.sampled_from(["\n", "\r\n"]),
)
def test_what_the_csv_module_writes_is_read_as_it_was(rows: list[list[str]], quoting: Any, ends: str) -> None:
    if ends == "\n":  # then Python leaves a carriage return without quotes, and cannot read it itself
        rows = [[cell.replace("\r", "\n") for cell in row] for row in rows]
    file = io.StringIO(newline="")
    csv.writer(file, quoting=quoting, lineterminator=ends).writerows([["text", "label"], *rows])
    read = list(comma_rows(Lines(io.BytesIO(file.getvalue().encode()))))
    assert [row.values for row in read] == [["text", "label"], *rows]


def test_any_stretch_of_rows_with_stray_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Line numbers too, from wherever reading begins."""
    monkeypatch.setattr(module, "STEP", 4)
    kinds = ["{},1\n", '"{}\nmore",1\n', '"stray {},1\n', "\n"]
    body = [kinds[i % len(kinds)].format(i) for i in range(60)]
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(body), encoding="utf-8")
    source = source_of(tmp_path / "a.csv")
    whole = list(map(repr, source.read(0, len(source))))
    assert len(whole) == 45
    assert sum("a.csv:" in record for record in whole) == 15
    for start in range(45):
        assert list(map(repr, source.read(start, 45))) == whole[start:]


@pytest.mark.parametrize("line", [b'x","y\n', b'""\n', b"words,1\n", b'"a","b"\n'])
def test_a_quote_that_never_closes_holds_no_file_in_memory(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is any line looked at again and again."""
    monkeypatch.setattr(tables, "MOST", 1000)
    read = 0

    def raw() -> Iterable[bytes]:
        nonlocal read
        yield b'"stray,1\n'
        for _ in range(100_000):
            read += len(line)
            yield line

    for row in comma_rows(Lines(raw())):
        assert read - row.at < 2200
    assert read == 100_000 * len(line)
