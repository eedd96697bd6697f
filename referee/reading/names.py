"""Canonical names for the names of a candidate's modules: torch, triton, the Triton language,
libdevice and math.

Candidates import the same modules under many spellings. Each one gets a canonical dotted name here
("tl.math.exp", "libdevice.tanh", "torch.cuda.device").
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

# Spellings of a module, longest first where one starts with another, and the canonical name of
# each.
_CANONICAL = (
    ("triton.language.extra.cuda.libdevice", "libdevice"),
    ("triton.language.extra.libdevice", "libdevice"),
    ("tl.extra.cuda.libdevice", "libdevice"),
    ("tl.extra.libdevice", "libdevice"),
    ("triton.language", "tl"),
    ("tl.core", "tl"),
    ("tl.standard", "tl"),
)

_ROOTS = frozenset({"torch", "triton", "tl", "libdevice", "math"})

PRELUDE: Mapping[str, str] = {"torch": "torch", "triton": "triton", "tl": "tl"}


class ImportRefused(ValueError):
    """An import that candidates may not make; the message names it."""


def canonical(dotted: str) -> str:
    """One spelling for each thing: "triton.language.exp" and "tl.exp" are both "tl.exp"."""
    for spelling, name in _CANONICAL:
        if dotted == spelling or dotted.startswith(spelling + "."):
            dotted = name + dotted[len(spelling) :]
    return dotted


def is_known_word(full: str) -> bool:
    """True for a canonical name in torch, Triton or math."""
    return full.partition(".")[0] in _ROOTS


def imported(statement: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """Local name -> canonical name of everything one import statement binds. Any module may be
    named, because unknown words are refused where they are used.

    Raises ImportRefused for `*`, because the text does not show the names that it binds.
    """
    if isinstance(statement, ast.Import):
        return {
            alias.asname or alias.name.partition(".")[0]: canonical(alias.name)
            if alias.asname
            else alias.name.partition(".")[0]
            for alias in statement.names
        }
    module = "." * statement.level + (statement.module or "")
    if any(alias.name == "*" for alias in statement.names):
        raise ImportRefused(
            f"line {statement.lineno}: `{module}.*` may not be imported; name each thing that is used"
        )
    if module == "__future__":
        return {}
    return {
        alias.asname or alias.name: canonical(f"{module}.{alias.name}") for alias in statement.names
    }


def dotted(node: ast.expr, bound: Mapping[str, str]) -> str | None:
    """The canonical name of `a.b.c` where `a` is a bound module or function, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in bound:
        return None
    return canonical(".".join([bound[node.id], *reversed(parts)]))
