"""The names that the top level of a candidate binds: aliases of known modules, constants,
functions.

A name counts only when the file binds it once, at the top level. A name that is assigned twice, or
declared `global` in a function, has no value that the text shows. Imports may also stand in a
top-level `try` or `if` that chooses between versions. Several of them may give a name to the same
function (`rsqrt` of libdevice or of tl.math). Then the first one counts, and libdevice counts
before `tl.math` in its place.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

from referee.reading.kernel_vocabulary import BUILTINS
from referee.reading.names import PRELUDE, dotted, imported

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

_DECORATORS = frozenset({"triton.jit", "triton.autotune", "triton.heuristics"})

# If a file binds one of these names, the name means something else there than in the judge's cut of
# the kernels.
_TAKEN = frozenset({*PRELUDE, *BUILTINS, "bool", "abs"})


@dataclass(frozen=True)
class Scope:
    """Names of the top level: `aliases` have canonical names, `rebound` several values."""

    aliases: dict[str, str]
    assigned: dict[str, ast.expr]
    functions: dict[str, ast.FunctionDef]
    rebound: frozenset[str]


def read(tree: ast.Module) -> Scope:
    """The scope of a module's top level. Raises names.ImportRefused for `from module import *`."""
    aliases = dict(PRELUDE)
    assigned: dict[str, ast.expr] = {}
    functions: dict[str, ast.FunctionDef] = {}
    times: Counter[str] = Counter()
    instead = {
        id(part): name for statement in tree.body for name, part in _instead_of_libdevice(statement)
    }
    for statement, choice in _statements(tree.body):
        if id(statement) in instead and aliases.get(instead[id(statement)]) == "libdevice":
            if _is_math(statement, instead[id(statement)], aliases):
                continue
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            for name, canonical in imported(statement).items():
                if choice and times[name] and _last(aliases.get(name, "")) == _last(canonical):
                    continue
                times[name] += aliases.get(name) != canonical
                if name in PRELUDE and canonical != PRELUDE[name]:
                    times[name] += 1
                aliases[name] = canonical
            continue
        if _decorates(statement, functions, aliases):
            for child in ast.iter_child_nodes(statement.value):
                times.update(bound_names(child))
            continue
        times.update(bound_names(statement))
        if isinstance(statement, ast.FunctionDef):
            functions[statement.name] = statement
        target, value = _single_assignment(statement)
        if target is not None and value is not None:
            assigned[target] = value
            canonical_name = dotted(value, aliases)
            # A word of the standard library in a `try` may need a later Python. It is then checked
            # like any other value.
            if canonical_name is not None and not (
                choice == "try" and canonical_name.partition(".")[0] in sys.stdlib_module_names
            ):
                aliases[target] = canonical_name
    rebound = {name for name, count in times.items() if count > 1 or (name in _TAKEN and count > 0)}
    rebound.update(
        name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names
    )
    return Scope(aliases, assigned, functions, frozenset(rebound))


def _decorates(
    statement: ast.AST, functions: dict[str, ast.FunctionDef], aliases: dict[str, str]
) -> TypeGuard[ast.Assign]:
    """True for `kernel = triton.jit(kernel)` and its like, which decorate the function."""
    match statement:
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.Call(func=decorator, args=[ast.Name(id=same)], keywords=[]),
        ):
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            known = dotted(called, aliases) in _DECORATORS
            if name == same and name in functions and known:
                above = functions[name].decorator_list
                if not any(node is decorator for node in above):
                    above.insert(0, decorator)
                return True
    return False


def is_main_guard(statement: ast.stmt) -> bool:
    """True for `if __name__ == "__main__":`, which is never true in a judgement."""
    match statement:
        case ast.If(
            test=ast.Compare(
                left=ast.Name(id="__name__"),
                ops=[ast.Eq()],
                comparators=[ast.Constant(value="__main__")],
            ),
            orelse=[],
        ):
            return True
    return False


def is_optional_import(statement: ast.stmt) -> bool:
    """True for a `try` of imports whose handlers are for imports that fail."""
    if not isinstance(statement, ast.Try) or not any(
        isinstance(node, (ast.Import, ast.ImportFrom)) for node in statement.body
    ):
        return False
    caught = [name for handler in statement.handlers for name in _caught(handler)]
    return bool(caught) and set(caught) <= {
        "ImportError",
        "ModuleNotFoundError",
        "Exception",
        "AttributeError",
    }


def rewords(statement: ast.stmt, handler: ast.ExceptHandler) -> str | None:
    """The error's name in `raise ImportError("needs Triton") from e`, which reports a failed
    import.

    The text must be plain, or show only the caught exception. None for every other statement.
    """
    match statement:
        case ast.Raise(
            exc=ast.Name(id=name)
            | ast.Call(func=ast.Name(id=name), args=[] | [_], keywords=[]) as exc,
            cause=cause,
        ):
            texts = exc.args if isinstance(exc, ast.Call) else ()
            shown = [part for text in texts for part in _parts(text)]
            given = [*shown, *([] if cause is None else [cause])]
            if all(
                isinstance(part, ast.Constant)
                or (isinstance(part, ast.Name) and part.id == handler.name)
                for part in given
            ):
                return name
    return None


def _parts(text: ast.expr) -> list[ast.expr]:
    """The values that a formatted string shows. Any other text is its own only part."""
    values = text.values if isinstance(text, ast.JoinedStr) else [text]
    return [
        value.value
        if isinstance(value, ast.FormattedValue) and value.format_spec is None
        else value
        for value in values
    ]


def _instead_of_libdevice(statement: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the name of libdevice and each handler's statement, for a `try` that only imports
    libdevice. Each handler must have one statement.
    """
    match statement:
        case ast.Try(
            body=[ast.Import(names=[alias]) | ast.ImportFrom(names=[alias]) as first],
            handlers=handlers,
            orelse=[],
            finalbody=[],
        ):
            plain = is_optional_import(statement) and all(
                len(handler.body) == 1 and handler.name is None for handler in handlers
            )
            name = alias.asname or alias.name
            if plain and imported(first) == {name: "libdevice"}:
                yield from ((name, handler.body[0]) for handler in handlers)


def _is_math(statement: ast.AST, name: str, aliases: dict[str, str]) -> bool:
    """True for `libdevice = tl.math`, whose functions mean the same in both."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=bound)], value=value):
            return bound == name and dotted(value, aliases) == "tl.math"
        case ast.Import() | ast.ImportFrom():
            return imported(statement) == {name: "tl.math"}
    return False


def _caught(handler: ast.ExceptHandler) -> Iterator[str]:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    for kind in kinds:
        yield kind.id if isinstance(kind, ast.Name) else "" if kind else "Exception"


def _statements(body: list[ast.stmt], choice: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Yield the statements of the top level and those inside a choice between versions, with the
    kind of choice.

    The conditions of such choices and the names of caught exceptions are included, because they may
    bind names too.
    """
    for statement in body:
        if is_main_guard(statement):
            continue
        if isinstance(statement, ast.If):
            yield statement.test, choice
            yield from _statements([*statement.body, *statement.orelse], choice or "if")
        elif is_optional_import(statement) and isinstance(statement, ast.Try):
            parts = list(statement.body)
            for handler in statement.handlers:
                parts += handler.body
                if handler.name:
                    yield ast.Name(handler.name, ast.Store()), choice
            yield from _statements([*parts, *statement.orelse, *statement.finalbody], "try")
        else:
            yield statement, choice


def _last(canonical: str) -> str:
    return canonical.rpartition(".")[2]


def _single_assignment(statement: ast.AST) -> tuple[str | None, ast.expr | None]:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, value
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id, statement.value
    return None, None


def bound_names(statement: ast.AST) -> Iterator[str]:
    """The module's names that a statement binds or deletes, at any depth."""
    # Each node comes with True if it is in a comprehension, whose targets stay inside. `:=` in a
    # comprehension binds a name around it.
    pending: list[tuple[ast.AST, bool]] = [(statement, False)]
    while pending:
        node, inside = pending.pop()
        if isinstance(node, _FUNCTIONS):
            yield from _named(node)
            pending.extend((part, inside) for part in _evaluated_outside(node))
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif (
            isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)) and not inside
        ):
            yield node.id
        elif isinstance(node, ast.NamedExpr):
            yield node.target.id
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest
        inside = inside or isinstance(node, _COMPREHENSIONS)
        pending.extend((child, inside) for child in ast.iter_child_nodes(node))


def _named(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name


def _evaluated_outside(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a function or class that Python evaluates around it: all but the body."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield from node.decorator_list
    if isinstance(node, ast.ClassDef):
        yield from (*node.bases, *node.keywords)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        # Defaults and annotations; the names of parameters are no `ast.Name` nodes.
        yield node.args
        if not isinstance(node, ast.Lambda) and node.returns is not None:
            yield node.returns
