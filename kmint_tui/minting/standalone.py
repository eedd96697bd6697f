"""A draft's text as a file that runs alone.

Models often leave out imports, because the referee adds them.
"""

from __future__ import annotations

import ast

IMPORTS = {
    "math": "import math",
    "torch": "import torch",
    "F": "import torch.nn.functional as F",
    "triton": "import triton",
    "tl": "import triton.language as tl",
    "libdevice": "from triton.language.extra import libdevice",
}
"""Import statements by the usual name that each one binds."""


def standalone(source: str) -> str:
    """The source with the imports that it uses and lacks.

    The source stays unchanged where it lacks none or is not Python.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    used = {node.id for node in names}
    bound = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
    lines = [line for name, line in IMPORTS.items() if name in used - bound]
    if not lines:
        return source
    head = "\n".join(lines) + "\n\n\n"
    # A __future__ import stays the first statement.
    future = [
        node
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
    ]
    if not future:
        return head + source.lstrip("\n")
    rows = source.splitlines(keepends=True)
    at = future[-1].end_lineno or 0
    return "".join(rows[:at]) + "\n" + head + "".join(rows[at:]).lstrip("\n")
