"""Candidate source as a syntax tree, within bounds, and the code in an answer kept as Markdown.

Any text may come in. Whatever it is, the answer is a tree or a `SourceError` with one line of
advice, quickly. Of Markdown, whole fenced blocks are taken as they were written; nothing is repaired.
"""

from __future__ import annotations

import ast
import contextlib
import re
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

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
    """The tree of `text`. Raises SourceError for other text, and beyond these bounds."""
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
    """Raises SourceError where Python would read the file in another encoding (PEP 263)."""
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


_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_FENCED = re.compile(r"^[ \t]*```([^\n`]*)\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_RUN = re.compile(r"^(?:async\s+)?def\s+run\s*\(", re.MULTILINE)
_KERNEL = re.compile(r"^@triton\b", re.MULTILINE)
_PYTHON = frozenset({"", "py", "python", "python3", "triton"})


@dataclass(frozen=True)
class Block:
    """A fenced block: the first word behind its fence, in lower case, and its lines."""

    language: str
    code: str


def without_thoughts(text: str) -> str:
    """The text without `<think>` blocks, even if one of the tags is missing."""
    kept = _THOUGHT.sub("", text)
    if "</think>" in kept:
        kept = kept.rpartition("</think>")[2]
    return kept.partition("<think>")[0]


def fenced_blocks(text: str) -> list[Block]:
    """Every fenced block, in order; the last one may lack its end."""
    return [Block((info.split() or [""])[0].lower(), code) for info, code in _FENCED.findall(text)]


def blocks_with_run(blocks: Sequence[Block]) -> list[Block]:
    """The first block that defines `run`, or all Python blocks if kernels stand in others."""
    found = next((block for block in blocks if _RUN.search(block.code)), None)
    if found is None:
        return []
    python = [block for block in blocks if block is found or block.language in _PYTHON]
    elsewhere = not _KERNEL.search(found.code) and any(
        _KERNEL.search(block.code) for block in python
    )
    return python if elsewhere else [found]


def joined(blocks: Sequence[Block]) -> str:
    """The text of all blocks."""
    return "\n".join(block.code for block in blocks)


def unfenced(text: str) -> str:
    """The code of an answer that was kept with its Markdown: the block that defines `run`
    (`blocks_with_run`). Python text stays as it is.

    The function removes a byte order mark.
    """
    text = text.removeprefix("\ufeff")
    if "```" not in text or _is_python(text):
        return text
    found = blocks_with_run(fenced_blocks(without_thoughts(text)))
    return joined(found) if found else text


def _is_python(text: str) -> bool:
    try:
        parse(text)
    except SourceError as error:
        return not str(error).startswith("syntax error")
    return True
