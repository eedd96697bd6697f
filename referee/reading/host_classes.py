"""Names with a meaning of their own in Python, such as `__eq__`, in the classes of a file.

With most of them Python calls, or leaves out, what nobody wrote: a log calls `__str__` only where it is switched on, torch hands a
`__torch_function__` its own arguments, and what `__dict__` or `__module__` say of an object is what a check of it would look at.
"""

from __future__ import annotations

import ast

# What `__exit__` returns, and what may be in a class where the last two are called, is looked at in `host_module.py`.
_HARMLESS = frozenset(
    """
    __annotations__ __call__ __doc__ __enter__ __exit__ __init__ __match_args__ __post_init__ __slots__ __init_subclass__ __set_name__
    """.split()
)


def special_name(statement: ast.ClassDef) -> tuple[str, ast.AST] | None:
    """The first such name that a class binds and may not, wherever in it, and where; None for an ordinary class."""
    for node in ast.walk(statement):
        bound = node.name if isinstance(node, ast.FunctionDef) else node.id if isinstance(node, ast.Name) else ""
        stores = isinstance(node, ast.FunctionDef) or isinstance(getattr(node, "ctx", None), ast.Store)
        if stores and bound.startswith("__") and bound.endswith("__") and bound not in _HARMLESS:
            return bound, node
    return None
