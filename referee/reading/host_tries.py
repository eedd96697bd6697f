"""A `try` that hides nothing: whatever fails in it still ends the call, perhaps in other words.

So each handler does nothing but `raise`, and what it raises is not an error that something else takes for an answer, as `hasattr` takes
an AttributeError, and `map` a StopIteration. For the same reason `finally` does nothing: what fails in there takes the error's place.
"""

from __future__ import annotations

import ast

from referee.reading.host_vocabulary import BUILTINS, ERROR_BASES
from referee.reading.host_words import Meaning
from referee.reading.module_scope import rewords

_CAUGHT = frozenset(name for name in BUILTINS if name.endswith(("Error", "Exception")))
_RAISED = ERROR_BASES | {"Exception"}
_HIDES = "try/except hides a failing kernel behind another path; let each handler be one `raise`, with a plain message, or remove it"


def hides(statement: ast.Try, names: Meaning) -> str | None:
    """Why a `try` in a function cannot pass; None where it can."""
    if not all(isinstance(part, ast.Pass) for part in statement.finalbody):
        return "what `finally` does could take the place of an error; write it after the statement, or use a `with`"
    if statement.orelse:
        return "`else` of a `try` is not supported; write it after the statement"
    if not all(_passes_on(handler, names) for handler in statement.handlers):
        return f"{_HIDES} (a top-level one around imports may stay)"
    return None


def _passes_on(handler: ast.ExceptHandler, names: Meaning) -> bool:
    if handler.type is not None and not _is_caught(handler.type, names):
        return False
    match handler.body:
        case [ast.Raise(exc=None)]:
            return True
        case [ast.Raise(exc=ast.Name(id=name), cause=None | ast.Constant(value=None))] if name == handler.name:
            return True
        case [ast.Raise(exc=ast.expr() as error) as last] if handler.type is not None and rewords(last, handler) is not None:
            made = error.func if isinstance(error, ast.Call) else error
            return names.is_builtin(made, _RAISED) or names.is_error(made)
    return False


def _is_caught(kind: ast.expr, names: Meaning) -> bool:
    """True for errors of Python's and of the file; of others Python may have to ask what they are."""
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return all(names.is_builtin(one, _CAUGHT) or names.is_error(one) for one in kinds)
