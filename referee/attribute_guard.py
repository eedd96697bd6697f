"""That what a file calls its own is asked of its own objects only, looked at while the file runs.

The screen lets host code ask any object for the attributes that the file gives to its classes, and a method ask what it calls `self` for
private ones: of what type a value is the text does not say. So where the text asks for such a name, the file is compiled with a call in
between, which refuses objects that are not the file's own: a class that has an `importlib` lends that name to no module. Text that the
file would evaluate is refused, because nothing in it is looked at. Runs in the trace worker. Limit: what the file's classes inherit from
torch is theirs, too.
"""

from __future__ import annotations

import ast
import builtins
import secrets
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

from torch.autograd.function import FunctionCtx

from referee import host_attributes
from referee.kernels import is_kernel
from referee.module_scope import Scope, read
from referee.source import parse
from referee.violation import Violations

_ASKING = ("getattr", "hasattr")
# What runs text in which no name was looked at.
_TEXT = ("eval", "exec", "compile")


def guarded(source: str, path: str, module: ModuleType, violations: Violations) -> CodeType:
    """The compiled file, to be executed in `module`, whose builtins from now on hold the check that it calls."""
    word = f"_{secrets.token_hex(8)}"

    def check(value: Any, name: str) -> Any:
        if _is_own(value, name, module.__name__):
            return value
        kind = value.__name__ if isinstance(value, (type, ModuleType)) else type(value).__name__
        raise violations.add("state", f"`.{name}` is asked of `{kind}`; what the file gives to its own classes is asked of these only")

    def refused(name: str) -> Callable[..., Any]:
        def refuse(*given: Any, **options: Any) -> Any:
            raise violations.add("state", f"`{name}` runs text that is not the file's; write it out")

        return refuse

    module.__dict__["__builtins__"] = {**vars(builtins), **{name: refused(name) for name in _TEXT}, word: check}
    tree = parse(source)
    guards = _Guards(word, host_attributes.own(tree) - host_attributes.KNOWN, read(parse(source)))
    return compile(ast.fix_missing_locations(guards.visit(tree)), path, "exec", dont_inherit=True)


def _is_own(value: Any, name: str, module: str) -> bool:
    if isinstance(value, FunctionCtx):
        return name in vars(value) or not name.startswith("_")
    kind = vars(super)["__thisclass__"].__get__(value) if isinstance(value, super) else value if isinstance(value, type) else type(value)
    return bool(kind.__module__ == module)


class _Guards(ast.NodeTransformer):
    """Puts the check around every value that is asked for one of `names`, or for a private one; kernels stay as they are."""

    def __init__(self, word: str, names: frozenset[str], scope: Scope) -> None:
        self._word = word
        self._names = names
        self._scope = scope

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Of a kernel only the decorators are host code."""
        if is_kernel(node, self._scope):
            node.decorator_list = [self.visit(decorator) for decorator in node.decorator_list]
        else:
            self.generic_visit(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        """`value.name` becomes `check(value, "name").name`."""
        if self._guards(node.attr) and not self._is_word(node):
            node.value = self._checked(self.visit(node.value), node.attr)
        else:
            self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """The same for `getattr(value, "name")`."""
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id=called), args=[value, ast.Constant(value=str(name)), *rest]) if called in _ASKING:
                if self._guards(name):
                    node.args = [self._checked(value, name), node.args[1], *rest]
        return node

    def _guards(self, name: str) -> bool:
        return name in self._names or (name.startswith("_") and not name.startswith("__"))

    def _is_word(self, node: ast.expr) -> bool:
        """True for `torch.float16`: what may be asked of modules by their names is for the screen to say."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id in self._scope.aliases and node.id not in self._scope.rebound

    def _checked(self, value: ast.expr, name: str) -> ast.expr:
        call = ast.Call(ast.Name(self._word, ast.Load()), [value, ast.Constant(name)], [])
        return ast.copy_location(call, value)
