"""Cuts kernel source out of an answer: fenced or bare, without prose, thoughts or a second block.

Nothing is repaired: the source is always an unchanged piece of the answer. The referee judges
whether it is correct.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Literal

from kmint_tui.smith.canonical import parse

Finish = Literal["stop", "length", "cancelled"]

_CODE_START = re.compile(
    r"^(?:@triton\b|import\s|from\s+\w[\w.]*\s+import\s|def\s+\w+\s*\()", re.MULTILINE
)
_STATEMENT_START = re.compile(r"^[^\s#)\]}]", re.MULTILINE)
_RUN = re.compile(r"^(?:async\s+)?def\s+run\s*\(", re.MULTILINE)
_MAX_CUTS = 200


@dataclass(frozen=True)
class Extracted:
    """Kernel source cut from one answer; it ends in a newline unless empty.

    `truncated` means that the token limit cut the kernel itself off. `notes` name the dropped parts
    for the user.
    """

    source: str
    fenced: bool
    truncated: bool
    notes: tuple[str, ...] = ()


def extract(text: str, finish: Finish, *, inside: bool = False) -> Extracted:
    """The kernel in an answer. `inside` means that the prompt had already opened the code fence."""
    notes: list[str] = []
    body, fenced = _unfenced(_without_thoughts(text, notes), inside, notes)
    tree = parse(body)
    if tree is None:
        body = _from_first_code(body, notes)
        tree = parse(body)
    if tree is None and (kept := _up_to_last_statement(body)) is not None:
        notes.append("text after the kernel dropped")
        body, tree = kept, parse(kept)
    truncated = finish == "length" and (tree is None or not _run_returns(tree))
    if tree is not None:
        body = _without_loose_expressions(body, tree, notes)
    body = body.strip("\n").rstrip()
    return Extracted(body + "\n" if body else "", fenced, truncated, tuple(notes))


def _unfenced(text: str, inside: bool, notes: list[str]) -> tuple[str, bool]:
    """The text of the block to read, and whether it was fenced."""
    from referee.reading.source import blocks_with_run, fenced_blocks, joined

    before, fence, _ = text.partition("```")
    if not fence:
        return text, inside
    if inside and before.strip():
        return before, True
    if _CODE_START.search(before):
        notes.append("text after the kernel dropped")
        return before, False
    blocks = fenced_blocks(text)
    kept = blocks_with_run(blocks) or blocks[:1]
    if len(blocks) > len(kept):
        notes.append(f"{len(blocks) - len(kept)} further fenced block(s) dropped")
    return joined(kept), True


def _without_thoughts(text: str, notes: list[str]) -> str:
    from referee.reading.source import without_thoughts

    kept = without_thoughts(text)
    if kept != text:
        notes.append("<think> text dropped")
    return kept


def _from_first_code(body: str, notes: list[str]) -> str:
    start = _CODE_START.search(body)
    if start is None:
        return body
    head = body[: start.start()].strip()
    if head and not all(line.lstrip().startswith("#") for line in head.splitlines()):
        notes.append("text before the kernel dropped")
    return body[start.start() :]


def _up_to_last_statement(body: str) -> str | None:
    """The longest Python text with a `run` that ends before a top-level statement; None without
    one.
    """
    starts = [match.start() for match in _STATEMENT_START.finditer(body)]
    for start in reversed(starts[-_MAX_CUTS:]):
        piece = body[:start]
        if _RUN.search(piece) and parse(piece) is not None:
            return piece
    return None


def _without_loose_expressions(body: str, tree: ast.Module, notes: list[str]) -> str:
    """Drop expressions before the first and after the last definition, such as example calls."""
    solid = [index for index, node in enumerate(tree.body) if not _is_loose(node)]
    if not solid or len(solid) == solid[-1] - solid[0] + 1 == len(tree.body):
        return body
    first, last = tree.body[solid[0]], tree.body[solid[-1]]
    if solid[0] > 0 or solid[-1] < len(tree.body) - 1:
        notes.append("loose expressions around the kernel dropped")
    start = (
        min([first.lineno, *(node.lineno for node in getattr(first, "decorator_list", []))])
        if solid[0]
        else 1
    )
    return "".join(body.splitlines(keepends=True)[start - 1 : last.end_lineno])


def _is_loose(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and not (
        isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


def _run_returns(tree: ast.Module) -> bool:
    """True when the last `run` holds a return statement, the sign of a complete function."""
    runs = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "run"]
    return bool(runs) and any(isinstance(node, ast.Return) for node in ast.walk(runs[-1]))
