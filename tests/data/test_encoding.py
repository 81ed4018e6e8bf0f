"""What is no UTF-8 text is refused in a sentence that says what it is and what to do; odd lines of a text are not."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whence.corpus.sources import source_of, stream
from whence.corpus.sources.encoding import check_text
from whence.errors import InputError
from whence.evaluate.data import read

TABLE = "text,label\ngood film,1\nbad film,0\n"


def zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("xl/workbook.xml", data)
    return file.getvalue()


def parquet(data: bytes) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"text": [data.decode()]}), file)
    return file.getvalue()


KINDS = [
    (gzip.compress, r"is compressed with gzip: unpack it \(gzip -dc {name} > FILE\), and give the file"),
    (
        zipped,
        "is a zip archive, as a spreadsheet in .xlsx is: unpack it, and give what is inside, or save the sheet as CSV",
    ),
    (bz2.compress, "is compressed with bzip2"),
    (lzma.compress, "is compressed with xz"),
    (parquet, "is a Parquet file: name it .parquet"),
    (
        lambda data: b"\x80\x04\x95\x1a\x00\x00\x00\xff\xfe" + data,
        "is no text file, whatever its name: give UTF-8 text",
    ),
    *(
        (
            lambda data, encoding=encoding: data.decode().encode(encoding),
            f"is {says} text, and UTF-8 is read: save it as UTF-8",
        )
        for encoding, says in [
            ("utf-16", "UTF-16"),
            ("utf-16-le", "UTF-16LE"),
            ("utf-16-be", "UTF-16BE"),
            ("utf-32", "UTF-32"),
            ("utf-32-be", "UTF-32BE"),
        ]
    ),
]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
@pytest.mark.parametrize(("made", "says"), KINDS)
def test_what_is_no_text_is_refused(tmp_path: Path, suffix: str, made, says: str) -> None:
    file = tmp_path / f"reviews.{suffix}"
    content = TABLE if suffix == "csv" else TABLE.replace(",", "\t") if suffix == "tsv" else '{"text": "good film"}\n'
    file.write_bytes(made(content.encode()))
    says = f"^{file.name} " + says.format(name=file.name)
    for reading in (source_of, read, lambda path: list(stream([path]))):
        with pytest.raises(InputError, match=says):
            reading(file)


@pytest.mark.parametrize(
    "text", ["текст\nхороший фильм\n", "文本,标签\n很好的电影,1\n", "テキスト\n良い\n", "نص\nفيلم\n"]
)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32-le"])
def test_other_languages_in_other_encodings(text: str, encoding: str) -> None:
    check_text(text.encode(), "a.csv")
    with pytest.raises(InputError, match=r"a\.csv is UTF-"):
        check_text(text.encode(encoding), "a.csv")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"text\r\n\x00\r\n",
        b"text\n\x00\x00\n",
        "prénom,texte\né,bon film\n".encode("latin-1"),
        b"\xef\xbb\xbftext\ngood\n",
        b"\x00\x00\n{}\n",
        b"\x1b[31mred\n",
        ("é" * 40_000).encode(),
        b"text\n" + b"\xff" * 9,
    ],
)
def test_odd_lines_of_a_text_cost_themselves(content: bytes) -> None:
    check_text(content, "a.csv")
