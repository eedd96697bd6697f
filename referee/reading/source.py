"""Candidate source as a syntax tree, within bounds.

Any text may come in. Whatever it is, the answer is a tree or a `SourceError` with one line of
advice, quickly.
"""

from __future__ import annotations

import ast
import contextlib
import re
import threading
import warnings

from referee.reading import bombs

MAX_BYTES = 64 * 1024
MAX_DEPTH = 80
MAX_NODES = 10_000
OLDEST = (
    3,
    11,
)  # of the Pythons kmint runs on; what newer ones add to the grammar is read by none of the checks

_COOKIE = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_NEW_LINE = re.compile(r"\r\n|\r|\n")  # `str.splitlines` knows more of them than Python source does


# Python 3.11 counts the depth of a tree in one place for all threads (gh-106905). The filters of
# warnings are shared by all threads as well.
_ONE_AT_A_TIME = threading.RLock()
_TRIES = 3


class SourceError(ValueError):
    """The text cannot be judged; the message says what to change."""


def tree_of(text: str, feature_version: tuple[int, int] | None = None) -> ast.Module:
    """Parse as `ast.parse` does, without warnings, from any number of threads. Raises the same."""
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(_TRIES):
            # A thread that parses without the lock, inside PyTorch, disturbs the count as well.
            with contextlib.suppress(SystemError):
                return ast.parse(text, feature_version=feature_version)
        return ast.parse(text, feature_version=feature_version)


def parse(text: str) -> ast.Module:
    """The tree of `text`. Raises SourceError for text that is not Python or exceeds the bounds of
    this module.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise SourceError(
            f"the source is longer than {MAX_BYTES // 1024} KiB; keep to the kernels and `run`"
        )
    _check_encoding(text)
    try:
        tree = tree_of(text.removeprefix("\ufeff"), OLDEST)
    except SyntaxError as error:
        raise SourceError(
            f"syntax error on line {error.lineno or 1}: {_short(error.msg)}"
        ) from None
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise SourceError(
            f"the text is not Python source: {_short(str(error)) or 'nested too deeply'}"
        ) from None
    _check_size(tree)
    try:
        bombs.check(tree)
    except bombs.Bomb as error:
        raise SourceError(str(error)) from None
    return tree


def _check_encoding(text: str) -> None:
    """Raises SourceError where Python would read the file, as its first lines ask for (PEP 263), as
    something else than this text.
    """
    for number, line in enumerate(_NEW_LINE.split(text.removeprefix("\ufeff"), 2)[:2], 1):
        cookie = _COOKIE.match(line)
        if cookie and cookie[1].lower().replace("_", "-") not in ("utf-8", "utf8"):
            raise SourceError(
                f"line {number}: the encoding `{cookie[1][:40]}` is not supported; sources are UTF-8"
            )


def _check_size(tree: ast.Module) -> None:
    level: list[ast.AST] = [tree]
    nodes = depth = 0
    while level:
        nodes += len(level)
        depth += 1
        if nodes > MAX_NODES:
            raise SourceError(
                f"the source has more than {MAX_NODES} syntax nodes; keep to the kernels and `run`"
            )
        if depth > MAX_DEPTH:
            line = getattr(level[0], "lineno", 1)
            raise SourceError(
                f"line {line}: nested more than {MAX_DEPTH} levels deep; use intermediate variables"
            )
        level = [child for node in level for child in ast.iter_child_nodes(node)]


def _short(message: str) -> str:
    return " ".join(message.split())[:120]
