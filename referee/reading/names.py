"""What a module-level name of a candidate stands for: torch, triton, the Triton language, libdevice or math.

Candidates import the same modules under many spellings; here each gets one canonical dotted name ("tl.math.exp",
"libdevice.tanh", "torch.cuda.device"). Only these modules may be imported at all, and a few more of the standard library and
of torch, which are loaded anyway once torch is: to import them does nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

# Spellings of a module, longest first where one starts with another, and the canonical name of each.
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

_MODULES = frozenset(
    {
        "torch",
        "torch.amp",
        "torch.autograd",
        "torch.autograd.function",
        "torch.compiler",
        "torch.cuda",
        "torch.cuda.amp",
        "torch.nn",
        "torch.nn.functional",
        "torch.nn.init",
        "torch.nn.parameter",
        "torch.optim",
        "torch.profiler",
        "torch.testing",
        "torch.types",
        "torch.utils",
        "torch.utils.checkpoint",
        "torch.utils.data",
        "triton",
        "triton.language",
        "triton.language.core",
        "triton.language.math",
        "triton.language.standard",
        "triton.language.extra",
        "triton.language.extra.cuda",
        "triton.language.extra.libdevice",
        "triton.language.extra.cuda.libdevice",
        "triton.runtime",
        "triton.runtime.driver",
        "triton.testing",
        "math",
        "typing",
        "__future__",
    }
)

# Of the standard library, and numpy: real files import these for their tests and type hints. What host code may use of them
# is in `host_vocabulary.py`: of a module that has no words there nothing may be used, but where no judgement comes to it.
STANDARD = frozenset(
    """
    abc argparse collections collections.abc contextlib copy dataclasses datetime enum functools glob inspect itertools json logging
    numbers numpy operator os pathlib platform pprint random re shutil string sys tempfile textwrap time timeit traceback
    types typing_extensions unittest warnings
    """.split()
)

_GUARDED = 'below `if __name__ == "__main__":`'
_ALLOWED = (
    f"take it out, or put it and what uses it {_GUARDED}; `run` may use torch, triton, triton.language, libdevice, math, numpy and some"
    " of the standard library"
)
_INSTEAD = {
    "pytest": f"take the tests out, or put them and this import {_GUARDED}",
    "torch.library": "let `run` call the function itself, without registering an operator",
    "triton.tools": "tensor descriptors are not supported; pass the tensor and use tl.load and tl.store",
}

PRELUDE: Mapping[str, str] = {"torch": "torch", "triton": "triton", "tl": "tl"}


class ImportRefused(ValueError):
    """An import that candidates may not make; the message names it."""


def canonical(dotted: str) -> str:
    """One spelling for each thing: "triton.language.exp" and "tl.exp" are both "tl.exp"."""
    for spelling, name in _CANONICAL:
        if dotted == spelling or dotted.startswith(spelling + "."):
            dotted = name + dotted[len(spelling) :]
    return dotted


def is_known_module(name: str) -> bool:
    """True for a module that comes with Python, torch or Triton, or is needed by torch, and may be imported."""
    return name in _MODULES or name in STANDARD


def is_known_word(full: str) -> bool:
    """True for a canonical name in one of these modules."""
    root = full.partition(".")[0]
    return root in _ROOTS or root in STANDARD


def imported(statement: ast.Import | ast.ImportFrom, *, optional: bool = False) -> dict[str, str]:
    """Local name -> canonical name of everything one import statement binds. Raises ImportRefused.

    An `optional` one stands in a `try` that does without it: any module may be named there, for its words are refused where
    they are used.
    """
    if isinstance(statement, ast.Import):
        return dict(_plain(alias, statement.lineno, optional) for alias in statement.names)
    module = statement.module or ""
    if statement.level or not (optional or is_known_module(module)):
        raise _refusal("." * statement.level + module, statement.lineno)
    bound: dict[str, str] = {}
    for alias in statement.names:
        full = f"{module}.{alias.name}"
        if alias.name == "*":
            raise ImportRefused(f"line {statement.lineno}: `{full}` may not be imported; name each thing that is used")
        if alias.name.startswith("_"):
            raise _refusal(full, statement.lineno)
        if module == "__future__":
            if alias.name != "annotations":
                raise _refusal(full, statement.lineno)
            continue
        bound[alias.asname or alias.name] = canonical(full)
    return bound


def _plain(alias: ast.alias, line: int, optional: bool) -> tuple[str, str]:
    if not (optional or is_known_module(alias.name)) or alias.name == "__future__":
        raise _refusal(alias.name, line)
    if alias.asname is None:
        root = alias.name.partition(".")[0]
        return root, root
    return alias.asname, canonical(alias.name)


def _refusal(name: str, line: int) -> ImportRefused:
    instead = next((text for start, text in _INSTEAD.items() if name.startswith(start)), _ALLOWED)
    return ImportRefused(f"line {line}: `{name}` may not be imported; {instead}")


def dotted(node: ast.expr, bound: Mapping[str, str]) -> str | None:
    """The canonical name of `a.b.c` where `a` is a bound module or function, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in bound:
        return None
    return canonical(".".join([bound[node.id], *reversed(parts)]))
