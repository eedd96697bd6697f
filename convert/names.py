"""Checks names from a server, an archive or an index: only names within a folder are accepted.

A name becomes part of a path. One with "..", a leading "/" or a control character would write
outside that folder.
"""

from __future__ import annotations

import re
import unicodedata

MOST_BYTES = 255
MOST_PARTS = 16
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SHOWN = 60


class BadName(ValueError):
    """A refused name; the message shows it without its control characters."""


def accepted_name(name: object, *, folders: bool = False) -> str:
    """`name`, if it is a plain file name, or with `folders` a relative path of plain names.

    Raises BadName.
    """
    if not isinstance(name, str):
        raise BadName(f"{ascii(name)[:_SHOWN]} is not a name")
    parts = name.split("/") if folders else [name]
    if len(parts) > MOST_PARTS or not all(_is_plain(part) for part in parts):
        raise BadName(
            f"{ascii(name)[:_SHOWN]} is not a plain {'relative path' if folders else 'file name'}"
        )
    return name


def is_commit(text: object) -> bool:
    """True for the full id of a commit: 40 hexadecimal digits."""
    return isinstance(text, str) and _COMMIT.fullmatch(text) is not None


def is_sha256(text: object) -> bool:
    """True for a sha256: 64 hexadecimal digits."""
    return isinstance(text, str) and _SHA256.fullmatch(text) is not None


def _is_plain(part: str) -> bool:
    # Hidden names are kmint's own: locks and temporary folders. The check also covers "." and "..".
    if not part or part.startswith(".") or "/" in part or "\\" in part:
        return False
    if any(unicodedata.category(character).startswith("C") for character in part):
        return False
    return len(part.encode("utf-8")) <= MOST_BYTES
