"""Every text of the installed packages that a user may read, with the place it is written.

Texts are found in the syntax tree: strings of two words and more, and the help of commands. Left
out are docstrings, which only readers of the code see, and texts that are no English: lists of
names (strings that the code splits at once), SQL, styles, kernels, prompts for the smith and
generated code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("kmint_tui", "referee", "convert")

_WORDS = re.compile(r"[A-Za-z]{2,}[,;:.]? +[A-Za-z`{]")
_FOREIGN = re.compile(
    r"^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|ALTER|DROP|BEGIN|ATTACH|VACUUM)\b"
    r"|\b(WHERE|VALUES|REFERENCES|PRIMARY KEY)\b"
    r"|^\s*(from|import|def|class|@) ?\w|\bdef \w+\(|\bimport \w+\n"
    r"|<(svg|html|div|style|table)\b|^\s*[.#]?[\w-]+ \{"
)
_NOT_FOR_USERS = (
    "kmint_tui/smith/prompts.py",
    "kmint_tui/smith/exemplars.py",
    "kmint_tui/save/generated_test.py",
    "referee/ops/search.py",
)
"""Prompts for the smith, the text of generated tests, and words that users type."""
_COMMANDS = ("command", "group")
_MOST_EXPRESSION = 24
"""Characters of an expression that stands for itself in a message; longer ones become an
ellipsis."""


@dataclass(frozen=True)
class Message:
    """A text and its module, as a path from the root. Expressions stand in braces."""

    module: str
    text: str


def messages() -> list[Message]:
    """Every message, module by module, each once a module."""
    found = []
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            module = str(file.relative_to(ROOT))
            if not module.startswith(_NOT_FOR_USERS):
                found_here = dict.fromkeys(texts(ast.parse(file.read_text(encoding="utf-8"))))
                found += [Message(module, text) for text in found_here]
    return found


def texts(tree: ast.Module) -> Iterator[str]:
    """The messages of one module, with repetitions."""
    # A string that is a statement: a docstring, or the documentation of the field above it.
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    skipped = parts | documentation | _lists_of_names(tree)
    for node in ast.walk(tree):
        if _is_help(node):
            yield from _paragraphs(ast.get_docstring(node) or "")
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            text = "".join(_part(part) for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if _WORDS.search(text) and not _FOREIGN.search(text):
            yield " ".join(text.split())


def _paragraphs(help_text: str) -> Iterator[str]:
    """The paragraphs of a command's help, without its examples, which begin with a backspace."""
    for paragraph in re.split(r"\n\s*\n", help_text):
        if not paragraph.lstrip().startswith("\b"):
            yield " ".join(paragraph.split())


def _lists_of_names(tree: ast.Module) -> set[int]:
    """The identities of the strings that the code splits: those of `X` in `X.split`, and those
    that names in `X` stand for."""
    split = [
        part
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "split"
        for part in ast.walk(node.value)
    ]
    names = {part.id for part in split if isinstance(part, ast.Name)}
    bound = [
        statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        and any(isinstance(name, ast.Name) and name.id in names for name in statement.targets)
    ]
    return {id(part) for part in (*split, *bound)}


def _is_help(owner: ast.AST) -> TypeGuard[ast.FunctionDef]:
    """Whether this is the function of a command, whose docstring is the help."""
    if not isinstance(owner, ast.FunctionDef):
        return False
    calls = [one.func if isinstance(one, ast.Call) else one for one in owner.decorator_list]
    return any(isinstance(call, ast.Attribute) and call.attr in _COMMANDS for call in calls)


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    text = ast.unparse(part.value)
    return "{" + (text if len(text) <= _MOST_EXPRESSION else "…") + "}"
