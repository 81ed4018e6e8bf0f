"""What a file is that should be UTF-8 text: packed files, spreadsheets and other encodings are refused, each with what to do."""

from __future__ import annotations

import codecs
import re

from whence.errors import InputError

HEAD = 1 << 16  # bytes that are looked at
PACKED = "unpack it, and give what is inside"
SHEET = "save the sheet as CSV (UTF-8), and give that"
SIGNATURES = (
    (b"\x1f\x8b", "is compressed with gzip", "unpack it (gzip -dc {name} > FILE), and give the file"),
    (b"PK\x03\x04", "is a zip archive, as a spreadsheet in .xlsx is", f"{PACKED}, or {SHEET}"),
    (b"PK\x05\x06", "is an empty zip archive", PACKED),
    (b"BZh91AY&SY", "is compressed with bzip2", PACKED),
    (b"\xfd7zXZ\x00", "is compressed with xz", PACKED),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd", PACKED),
    (b"\x04\x22\x4d\x18", "is compressed with lz4", PACKED),
    (b"7z\xbc\xaf\x27\x1c", "is a 7z archive", PACKED),
    (b"Rar!\x1a\x07", "is a rar archive", PACKED),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is a file of an office program, as a spreadsheet in .xls is", SHEET),
    (b"PAR1\x15", "is a Parquet file", "name it .parquet"),
    (b"ARROW1\x00\x00", "is an Arrow file", "write it as Parquet"),
    (b"SQLite format 3\x00", "is an SQLite database", "write the table as CSV or Parquet"),
    (b"%PDF-", "is a PDF", "give its text, one per line, or as CSV"),
)
MARKS = (  # byte order marks; the first bytes of UTF-32's are UTF-16's
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x19\x1c-\x1f]")  # bytes that no line of text has


def check_text(head: bytes, name: str) -> None:
    """Refuse what is not UTF-8 text, by its first bytes. Single lines that are broken are no reason: they cost themselves.

    >>> check_text("text,label\\n".encode("utf-16"), "reviews.csv")
    Traceback (most recent call last):
    ...
    whence.errors.InputError: reviews.csv is UTF-16 text, and UTF-8 is read: save it as UTF-8 (iconv -f UTF-16 -t UTF-8 reviews.csv > FILE).
    """
    for signature, what, fix in SIGNATURES:
        if head.startswith(signature):
            raise InputError(f"{name} {what}: {fix.format(name=name)}.")
    encoding = next((encoding for mark, encoding in MARKS if head.startswith(mark)), None)
    first = head.partition(b"\n")[0]
    if encoding is None and (CONTROL.search(first) or not is_utf_8(first)):
        encoding = without_mark(head)
    if encoding is not None:
        raise InputError(
            f"{name} is {encoding} text, and UTF-8 is read: save it as UTF-8 (iconv -f {encoding} -t UTF-8 {name} > FILE)."
        )
    if CONTROL.search(first) and not is_utf_8(head):
        raise InputError(
            f"{name} is no text file, whatever its name: give UTF-8 text (plain lines, CSV, TSV, JSONL), or Parquet."
        )


def is_utf_8(data: bytes) -> bool:
    """Whether these are the first bytes of a UTF-8 text; they may end within a character."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def without_mark(head: bytes) -> str | None:
    """Which UTF-16 or UTF-32 a text without a byte order mark is in: the one in which most of its characters are ASCII, as
    commas, blanks and line ends are in every language; None if it is in none."""
    best, most = None, 0
    for encoding in ("UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"):
        try:
            text = codecs.getincrementaldecoder(encoding)().decode(head)
        except UnicodeDecodeError:
            continue
        ascii = sum(letter < "\x80" for letter in text)
        if ascii > most and all(letter.isprintable() or letter.isspace() or letter == "\ufeff" for letter in text):
            best, most = encoding, ascii
    return best
