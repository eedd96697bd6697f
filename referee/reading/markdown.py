"""Reads code from an answer that was kept with its Markdown and its thoughts.

Nothing is repaired: the result is whole fenced blocks, as they were written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from referee.reading.source import SourceError, parse

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
    """The first block that defines `run`, or all Python blocks if the kernels stand in other
    blocks. Empty without a `run`.
    """
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
