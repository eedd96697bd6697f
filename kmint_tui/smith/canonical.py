"""A fingerprint of a draft that ignores names, comments, docstrings and layout.

Numbers count: a different block size is a different kernel. Names are compared per scope, so a
kernel's parameter may share its name with a variable of `run`. Keyword arguments, and the strings
that autotuning and grid functions use, follow the parameter they name.

Limits: nested functions share their parent's scope.
"""

from __future__ import annotations

import ast
import hashlib

ENTRY = "run"


def canonical(source: str) -> str:
    """A 32-digit fingerprint of Python source. Text that does not parse is compared by words."""
    tree = parse(source)
    if tree is None:
        return _digest("text " + " ".join(source.split()))
    try:
        return _digest("tree " + ast.dump(_Renamer(tree).visit(tree), annotate_fields=False))
    except RecursionError:
        return _digest("text " + " ".join(source.split()))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class _Renamer(ast.NodeTransformer):
    """Replaces every bound name by its position: functions ·f0…, module names ·g0…, variables ·v0….

    No Python name begins with the dot, so a new name never equals an existing one.
    """

    def __init__(self, tree: ast.Module) -> None:
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        named = [node.name for node in functions if node.name != ENTRY]
        self._module = {name: f"·f{index}" for index, name in enumerate(dict.fromkeys(named))}
        assigned = [
            name
            for node in tree.body
            if not isinstance(node, ast.FunctionDef)
            for name in _stored(node)
        ]
        self._module |= {
            name: f"·g{index}"
            for index, name in enumerate(dict.fromkeys(assigned))
            if name not in self._module
        }
        self._parameters = {node.name: _scope(node) for node in functions}
        self._any_parameter: dict[str, str] = {}
        for node in functions:
            if node.name != ENTRY:
                for argument in _arguments(node):
                    self._any_parameter.setdefault(
                        argument.arg, self._parameters[node.name][argument.arg]
                    )
        self._inside = False
        self._local: dict[str, str] = {}
        self._words: dict[str, str] = {}

    def visit_Module(self, node: ast.Module) -> ast.AST:
        node.body = _without_docstring(node.body)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if self._inside:
            node.name = self._rename(node.name)
            return self.generic_visit(node)
        self._inside = True
        self._local = self._parameters.get(node.name) or _scope(node)
        self._words = self._any_parameter if node.name == ENTRY else self._local
        node.name = self._module.get(node.name, node.name)
        node.body = _without_docstring(node.body)
        node.returns = None
        self.generic_visit(node)
        self._inside, self._local, self._words = False, {}, {}
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self._rename(node.arg)
        if node.annotation is not None and "constexpr" not in ast.dump(node.annotation):
            node.annotation = None
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._rename(node.id)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            node.value = self._words.get(node.value, node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        callee = node.func.value if isinstance(node.func, ast.Subscript) else node.func
        known = self._parameters.get(callee.id, {}) if isinstance(callee, ast.Name) else {}
        for keyword in node.keywords:
            if keyword.arg is not None:
                keyword.arg = known.get(keyword.arg, keyword.arg)
        return self.generic_visit(node)

    def _rename(self, name: str) -> str:
        return self._local.get(name) or self._module.get(name, name)


def _arguments(node: ast.FunctionDef) -> list[ast.arg]:
    arguments = node.args
    rest = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest]


def _scope(node: ast.FunctionDef) -> dict[str, str]:
    """New names of a function's parameters and locals, in order of appearance."""
    names = [argument.arg for argument in _arguments(node)]
    names += [name for statement in node.body for name in _stored(statement)]
    return {name: f"·v{index}" for index, name in enumerate(dict.fromkeys(names))}


def _stored(node: ast.AST) -> list[str]:
    """Names bound anywhere inside a statement, in source order."""
    found: list[str] = []
    for child in ast.iter_child_nodes(node):
        found += _stored(child)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        found.append(node.id)
    elif isinstance(node, ast.arg):
        found.append(node.arg)
    elif isinstance(node, ast.FunctionDef):
        found.append(node.name)
    return found


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        return body[1:] or [ast.Pass()]
    return body


def parse(source: str) -> ast.Module | None:
    """The syntax tree, or None for text that Python's parser refuses."""
    from referee.reading.source import tree_of

    try:
        return tree_of(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
