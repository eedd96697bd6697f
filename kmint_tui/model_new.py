"""Turns a `ModelNew` class in the form of KernelBench into the function `run` that the referee
judges.

The body of `forward` becomes the body of `run`. `self.NAME` becomes an argument if the reference
has a parameter of that name, else the plain value that `__init__` assigns. Nothing in the file is
run. A class that does more is refused, because a guess would judge another kernel.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kmint_tui.errors import UsageError

CLASS = "ModelNew"
_FIX = f"write a function `run` with the arguments of the reference in place of `{CLASS}`"


class NotWrapped(UsageError):
    """A class that cannot become a `run`, with the reason."""

    title = f"{CLASS} not usable"

    def __init__(self, message: str) -> None:
        super().__init__(message, fix=_FIX)


@dataclass(frozen=True)
class Wrapped:
    """The file with `run` in place of the class, and how `run` is called."""

    source: str
    signature: str


def is_model_new(source: str) -> bool:
    """True if the file defines `ModelNew` and no `run` at its top level."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    defined = {one.name for one in body if isinstance(one, (ast.ClassDef, ast.FunctionDef))}
    return CLASS in defined and "run" not in defined


def wrapped(source: str, arguments: Sequence[str], init: Sequence[Any] = ()) -> Wrapped:
    """`source`, which `is_model_new`, with `run` in place of its class.

    `arguments` are those of the reference: of its `forward` first, then its parameters. `init` are
    the values that the class is made with. Raises NotWrapped.
    """
    tree = ast.parse(source)
    classes = [one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == CLASS]
    if len(classes) > 1:
        raise NotWrapped(f"the file defines {CLASS} {len(classes)} times")
    found = classes[0]
    methods = {one.name: one for one in found.body if isinstance(one, ast.FunctionDef)}
    if "forward" not in methods:
        raise NotWrapped(f"{CLASS} has no method `forward`")
    own, *taken = _parameters(methods["forward"])
    if len(taken) > len(arguments):
        wanted = ", ".join(arguments)
        raise NotWrapped(f"`forward` takes {len(taken)} arguments, and the reference has {wanted}")
    state = list(arguments[len(taken) :])
    _check_names(taken, state)
    values = _values(methods.get("__init__"), init)
    body = _Body(own, state, values, set(methods)).visited(methods["forward"])
    parameters = [*taken, *state]
    run = ast.unparse(ast.fix_missing_locations(_function(parameters, body)))
    lines = source.splitlines()
    first = min([found.lineno, *(one.lineno for one in found.decorator_list)])
    made = [*lines[: first - 1], run, *lines[found.end_lineno :]]
    return Wrapped("\n".join(made) + "\n", f"run({', '.join(parameters)})")


def literal_init(reference: str) -> tuple[Any, ...]:
    """The values of `get_init_inputs()` in a reference's text; () if they are not plain."""
    try:
        tree = ast.parse(reference)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    plain: dict[str, Any] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                plain[name] = _plain(value, plain)
            case ast.FunctionDef(
                name="get_init_inputs", body=[*_, ast.Return(value=ast.List(elts=values))]
            ):
                found = [_plain(value, plain) for value in values]
                return tuple(value for value in found) if None not in found else ()
    return ()


def _function(parameters: Sequence[str], body: list[ast.stmt]) -> ast.FunctionDef:
    made = ast.parse(f"def run({', '.join(parameters)}): pass").body[0]
    assert isinstance(made, ast.FunctionDef)
    made.body = body
    return made


def _parameters(method: ast.FunctionDef) -> list[str]:
    """The names of a method's parameters, `self` first. Raises NotWrapped."""
    given = method.args
    if given.vararg or given.kwarg or method.decorator_list:
        raise NotWrapped(f"`{method.name}` has *args, **kwargs or a decorator")
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    if not names:
        raise NotWrapped(f"`{method.name}` takes no `self`")
    return names


def _check_names(taken: Sequence[str], state: Sequence[str]) -> None:
    """Raises NotWrapped if an argument would hide a parameter of the reference."""
    if same := [name for name in taken if name in state]:
        raise NotWrapped(
            f"`forward` takes {same[0]!r}, and the reference has a parameter {same[0]!r}"
        )


def _values(method: ast.FunctionDef | None, init: Sequence[Any]) -> dict[str, Any]:
    """The plain values that `__init__` assigns; names with several values are left out."""
    if method is None:
        return {}
    own, *names = _parameters(method)
    given = method.args
    known = dict(zip(reversed(names), reversed(given.defaults), strict=False))
    values = {name: _plain(node, {}) for name, node in known.items()} | dict(
        zip(names, init, strict=False)
    )
    found: dict[str, Any] = {}
    for node in ast.walk(method):
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        for target in targets:
            match target:
                case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name == own:
                    assert isinstance(node, (ast.Assign, ast.AnnAssign))
                    value = _plain(node.value, values) if node.value is not None else None
                    found[attribute] = None if attribute in found else value
    return {name: value for name, value in found.items() if value is not None}


def _plain(node: ast.expr | None, known: Mapping[str, Any]) -> Any:
    """The number, text or boolean of an expression; None for any other expression."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    try:
        value = ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, (bool, int, float, str)) else None


class _Body(ast.NodeTransformer):
    """The body of `forward` without `self`."""

    def __init__(
        self, own: str, state: Sequence[str], values: Mapping[str, Any], methods: set[str]
    ) -> None:
        self._own, self._state, self._values, self._methods = own, state, values, methods

    def visited(self, method: ast.FunctionDef) -> list[ast.stmt]:
        """Its statements. Raises NotWrapped."""
        return [self.visit(statement) for statement in method.body]

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """`self.weight` as an argument or as a value."""
        if not (isinstance(node.value, ast.Name) and node.value.id == self._own):
            path = _dotted(node, self._own)
            if path is not None and (name := path.replace(".", "_")) in self._state:
                return ast.Name(name, ast.Load())
            self.generic_visit(node)
            return node
        if not isinstance(node.ctx, ast.Load):
            raise NotWrapped(f"line {node.lineno}: `forward` changes {self._own}.{node.attr}")
        if node.attr in self._state:
            return ast.Name(node.attr, ast.Load())
        if node.attr in self._values:
            return ast.Constant(self._values[node.attr])
        if node.attr in self._methods:
            raise NotWrapped(
                f"line {node.lineno}: `forward` calls the method {node.attr!r}; write its lines "
                "into `forward`"
            )
        state = f"parameters {', '.join(self._state)}" if self._state else "no parameters"
        what = (
            f"{self._own}.{node.attr} is neither a plain value of `__init__` nor a parameter "
            "of the reference"
        )
        raise NotWrapped(f"line {node.lineno}: {what}, which has {state}")

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """`self` itself is refused: nothing takes its place."""
        if node.id == self._own:
            raise NotWrapped(f"line {node.lineno}: `forward` hands {self._own} on")
        self._check_free(node.id, node.lineno)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        """The parameter of a function inside."""
        self._check_free(node.arg, node.lineno)
        return node

    def _check_free(self, name: str, line: int) -> None:
        """Raises NotWrapped for a name that would change its meaning as an argument of `run`."""
        if name in self._state:
            where = f"line {line}: `forward` uses the name {name!r}"
            raise NotWrapped(
                f"{where}, and the reference has a parameter {name!r}: give it another name"
            )


def _dotted(node: ast.expr, own: str) -> str | None:
    """`inner.weight` for `self.inner.weight`; None for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return ".".join(parts) if isinstance(node, ast.Name) and node.id == own else None
