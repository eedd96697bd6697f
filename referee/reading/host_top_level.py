"""The top level of a file on the allow-list: imports, constants, functions and classes.

Nothing is run. Conditions and handlers around imports may only choose between versions.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from referee.reading.allowed_words import ERRORS, MATH, TORCH, TRITON
from referee.reading.constants import Constant, read_constant
from referee.reading.kernel_error import KernelError
from referee.reading.kernel_vocabulary import TL_DTYPES
from referee.reading.module_scope import Scope, is_main_guard, is_optional_import, rewords
from referee.reading.names import dotted

MOST_SHOWN = 60
COMPUTES = "host code computes sizes, allocates, views and launches"
CONTAINERS = (ast.List, ast.Dict)

WORDS = TORCH | TRITON | MATH | {f"tl.{dtype}" for dtype in TL_DTYPES}
"""Names of modules' parts that host code may use."""

_IN_CONDITIONS_OF_IMPORTS = frozenset({"hasattr", "int", "len", "tuple"})
_OF_IMPORTS = ERRORS | {"Exception", "ImportError", "ModuleNotFoundError"}


@dataclass(frozen=True)
class Finding:
    """Code that is not on the list: its line, the code in short, and what is wrong with it."""

    line: int | None
    what: str
    reason: str

    @classmethod
    def at(cls, node: ast.AST, reason: str, what: str = "") -> Finding:
        """A finding at a node; `what` is the node's own text if not given."""
        shown = what or ast.unparse(node).strip().partition("\n")[0]
        return cls(getattr(node, "lineno", None), shown[:MOST_SHOWN], reason)

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}" if self.line else self.reason


def is_plain(statement: ast.stmt, scope: Scope) -> bool:
    """True for a statement that may stand at the top level next to functions."""
    if isinstance(statement, (ast.ClassDef, ast.Pass)) or _imports(statement):
        return True
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)
    if isinstance(statement, ast.If):
        return is_main_guard(statement) or _chooses_imports(statement, scope)
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return False
    if isinstance(statement, ast.AnnAssign) and calls_something(statement.annotation):
        return False
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    if not all(
        isinstance(target, ast.Name) and not target.id.startswith("__") for target in targets
    ):
        return False
    return is_literal(statement.value, scope)


def calls_something(annotation: ast.expr | None) -> bool:
    """Return True for an annotation that runs code where it stands."""
    running = (ast.Call, ast.NamedExpr, ast.Await, ast.Yield)
    return annotation is not None and any(
        isinstance(part, running) for part in ast.walk(annotation)
    )


def _imports(statement: ast.stmt) -> bool:
    """Return True for an import, and for a `try` of imports whose handlers only bind values."""
    if not (isinstance(statement, ast.Try) and is_optional_import(statement)):
        return isinstance(statement, (ast.Import, ast.ImportFrom))
    handled = [
        part
        for handler in statement.handlers
        for part in handler.body
        if rewords(part, handler) not in _OF_IMPORTS
    ]
    parts = [*statement.body, *handled, *statement.orelse, *statement.finalbody]
    return all(_imports(part) or _binds_a_word(part) for part in parts)


def _binds_a_word(statement: ast.stmt) -> bool:
    """Return True for `x = None`, `libdevice = tl.math`, a plain `raise` and `pass`."""
    match statement:
        case ast.Pass() | ast.Raise(exc=None):
            return True
        case ast.Assign(targets=[ast.Name()], value=value):
            while isinstance(value, ast.Attribute):
                value = value.value
            return isinstance(value, (ast.Constant, ast.Name))
    return False


def _chooses_imports(statement: ast.If, scope: Scope) -> bool:
    """Return True for imports under a plain condition on versions."""
    called = [node.func for node in ast.walk(statement.test) if isinstance(node, ast.Call)]
    plain = all(_is_harmless(one, scope) for one in called)
    binds = any(isinstance(node, ast.NamedExpr) for node in ast.walk(statement.test))
    parts = (*statement.body, *statement.orelse)
    return plain and not binds and all(_imports(part) or _binds_a_word(part) for part in parts)


def _is_harmless(called: ast.expr, scope: Scope) -> bool:
    if isinstance(called, ast.Name) and called.id in _IN_CONDITIONS_OF_IMPORTS - set(
        scope.functions
    ):
        return True
    full = dotted(called, scope.aliases) or ""
    return full.startswith("packaging.") or (
        isinstance(called, ast.Attribute) and called.attr in ("split", "startswith")
    )


def is_literal(value: ast.expr, scope: Scope) -> bool:
    """True for numbers, texts, words of the list, and containers of these."""
    full = dotted(value, scope.aliases)
    if full is not None:
        return full in WORDS or (full.startswith(("tl.", "libdevice.")) and "._" not in full)
    match value:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(is_literal(part, scope) for part in parts)
        case ast.Dict(keys=keys, values=values):
            return all(key is not None and is_literal(key, scope) for key in keys) and all(
                is_literal(part, scope) for part in values
            )
    return _is_arithmetic(value, scope)


def _is_arithmetic(value: ast.expr, scope: Scope) -> bool:
    """True for arithmetic on literals and on other constants, as a kernel may use it."""

    def resolve(name: str, at: ast.AST) -> Constant:
        if name not in scope.assigned or name in scope.rebound or scope.assigned[name] is value:
            raise KernelError(f"`{name}` is no constant", node=at)
        return read_constant(scope.assigned[name], scope, resolve)

    try:
        read_constant(value, scope, resolve)
    except (KernelError, RecursionError):
        return False
    return True


def is_flat(container: ast.expr) -> bool:
    """Return True where the values of a list or dict cannot be changed themselves."""
    values = container.values if isinstance(container, ast.Dict) else [container]
    inner = (child for value in values for child in ast.walk(value) if child is not container)
    return not any(isinstance(child, CONTAINERS) for child in inner)


def is_text(node: ast.expr) -> bool:
    """Return True for a text that the file writes down or formats."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def advice(full: str) -> str:
    """The end of a reason to refuse a word of a library."""
    if full.startswith("torch."):
        return "; the answer must be computed in Triton"
    return f"; {COMPUTES}"
