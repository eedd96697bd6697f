"""Makes text of unknown origin safe for a terminal.

Model names, sources and error messages of servers may hold terminal escapes (ESC, C1) and other
control characters. They may also hold marks that reverse the writing direction (the "Trojan Source"
attack, CVE-2021-42574), and halves of characters that no encoding can write.
"""

from __future__ import annotations

import re

_UNSAFE = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, but not tab and newline
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # directions of writing
    r"\u2028\u2029\ufeff\U000e0000-\U000e007f"  # separators, and what no terminal shows
    r"\ud800-\udfff"
)
_UNSAFE_IN_TEXT = re.compile(f"[{_UNSAFE}]")
_UNSAFE_IN_LINE = re.compile(rf"[{_UNSAFE}\t\n]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def visible(text: str) -> str:
    """`text` with every unsafe character written as an escape such as `\\x1b`; newlines and tabs
    stay."""
    return _UNSAFE_IN_TEXT.sub(_as_python, text)


def visible_line(text: str) -> str:
    """Like `visible`, on one line: newlines and tabs become escapes too."""
    return _UNSAFE_IN_LINE.sub(_as_python, text)


def visible_json(document: str) -> str:
    """The same JSON document, from `json.dumps`, with escapes for unsafe characters."""
    return _UNSAFE_IN_TEXT.sub(_as_json, document)


def without_unsafe(text: str) -> str:
    """`text` without its unsafe characters, as wide on a terminal as before: all of them but halves
    of characters have no width."""
    return _UNSAFE_IN_TEXT.sub("", _SURROGATE.sub("\ufffd", text))


def _as_python(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def _as_json(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
