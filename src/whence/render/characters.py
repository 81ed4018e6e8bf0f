"""Characters that would drive what shows them, made visible: control characters, and those that turn the order of a text around.

A text may hold them by accident or by design: an escape sequence clears a terminal, a NUL ends what a parser reads, an override
shows `evil.exe` as `exe.live`. Marks that letters need stay as they are: joiners, combining marks, left-to-right and right-to-left marks.
"""

from __future__ import annotations

import json
import re
from typing import Any

DELETE = "␡"  # for it and the controls above it (C1), which have no pictures of their own
TURN = "⇄"  # has no direction of its own, so that a text keeps the one its first letter gives it
DIRECTIONS = (
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # embed, override or isolate a direction, or end that
)
PICTURES = str.maketrans(
    {
        **{chr(c): chr(0x2400 + c) for c in range(0x20) if chr(c) not in "\n\t"},
        **{chr(c): DELETE for c in range(0x7F, 0xA0)},
        **dict.fromkeys(DIRECTIONS, TURN),
    }
)
# what JSON would let through as it is (it escapes the controls below the blank itself); half characters have no UTF-8
UNSAID = re.compile(f"[\x7f-\x9f{DIRECTIONS}\ud800-\udfff]")


def visible(text: str) -> str:
    """Control characters as pictures of themselves, but for tabs and line ends (of which \\r\\n is one), and every change of direction
    as ⇄.

    >>> visible("\\x1b[31mred"), visible("abc\\u202edef"), visible("one\\r\\ntwo")
    ('␛[31mred', 'abc⇄def', 'one\\ntwo')
    """
    return text.replace("\r\n", "\n").translate(PICTURES)


def as_json(data: Any, *, ascii: bool = False) -> str:
    """JSON on one line that drives no terminal; what is read from it is `data`, to the letter.

    ascii: escape every character beyond ASCII, for where no other can be written.

    >>> as_json({"text": "é\\x9b\\u202e"})
    '{"text": "é\\\\u009b\\\\u202e"}'
    """
    text = json.dumps(data, ensure_ascii=ascii, allow_nan=False)
    return UNSAID.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
