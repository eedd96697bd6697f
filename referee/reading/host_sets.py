"""Sets in host code: asked what they hold, never gone through.

The order of a set depends on the process, by the seed of its hashes and by addresses, so that what is made of it in this order is right
in one process and wrong in the next. What is bound to a set is told by its name, in the function where it stands, or by its attribute.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator

_SETS = ("set", "frozenset")
_TAKES = ("len", "bool", "isinstance", "issubclass", *_SETS)
_OPERATORS = (ast.BitOr, ast.BitAnd, ast.BitXor, ast.Sub)
_MAKES = frozenset({"copy", "difference", "intersection", "symmetric_difference", "union"})
_METHODS = _MAKES | {"add", "clear", "discard", "isdisjoint", "issubset", "issuperset", "remove", "update"}
_VIEWS = ("keys", "items")
REASON = "the order of a set is not fixed; use sorted(...) or a tuple"
_WITH_A_KEY = "the order of a set is not fixed, and what is equal by a `key` stays in it; sort a tuple or a list"

IsBuiltin = Callable[[ast.expr, tuple[str, ...]], bool]


class Sets:
    """What is a set below a node, as far as the text says.

    `names` are bound to sets, attributes with a dot in front; `known` are those that the rest of the file binds.
    """

    def __init__(self, root: ast.AST, is_builtin: IsBuiltin, known: frozenset[str] = frozenset()) -> None:
        self._is_builtin = is_builtin
        self._root = root
        self._called = {id(node.func) for node in ast.walk(root) if isinstance(node, ast.Call)}
        self.names = known
        bound = list(bindings(root))
        while found := {name for names, value in bound if self._is_set(value) for name in names} - self.names:
            self.names |= found

    def misused(self, harmless: Collection[int]) -> tuple[ast.AST, str] | None:
        """The first set that is used as more than a set, but for what is in messages, and why that is none; None where there is none."""
        pending: list[tuple[ast.AST, ast.AST | None]] = [(self._root, None)]
        while pending:
            node, parent = pending.pop()
            if id(node) in harmless:
                continue
            if self._is_set(node) and not self._may_stand(node, parent):
                return node, _WITH_A_KEY if isinstance(parent, ast.Call) and self._is_builtin(parent.func, ("sorted",)) else REASON
            # `make = set`, and then `make(...)`.
            if isinstance(node, ast.Name) and self._is_builtin(node, _SETS) and not _may_be_named(node, parent):
                return node, REASON
            pending.extend((child, node) for child in self._below(node))
        return None

    def _is_set(self, node: ast.AST) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Call(func=ast.Name() as called):
                return self._is_builtin(called, _SETS)
            case ast.Call(func=ast.Attribute(value=value, attr=attribute)):
                return attribute in _MAKES and self._is_set(value)
            case ast.BinOp(left=left, op=operator, right=right) if isinstance(operator, _OPERATORS):
                return any(self._is_set(side) or _is_view(side) for side in (left, right))
            case ast.IfExp(body=body, orelse=orelse):
                return self._is_set(body) or self._is_set(orelse)
            case ast.BoolOp(values=values):
                return any(map(self._is_set, values))
            case ast.NamedExpr(value=value):
                return self._is_set(value)
            case ast.Name(id=name, ctx=ast.Load()):
                return name in self.names
            case ast.Attribute(attr=name, ctx=ast.Load()):
                return "." + name in self.names
        return False

    def _may_stand(self, node: ast.AST, parent: ast.AST | None) -> bool:
        match parent:
            case ast.Compare() | ast.BoolOp() | ast.Expr() | ast.NamedExpr() | ast.UnaryOp(op=ast.Not()):
                return True
            case ast.If(test=test) | ast.While(test=test) | ast.Assert(test=test):
                return test is node
            case ast.IfExp():
                return True
            case ast.BinOp(op=operator) | ast.AugAssign(op=operator):
                return isinstance(operator, _OPERATORS)
            case ast.Call(func=called) if called is not node:
                # With a key, what is equal by it stays in the order in which it came.
                if self._is_builtin(called, ("sorted",)):
                    return not any(keyword.arg != "reverse" for keyword in parent.keywords)
                return self._is_builtin(called, _TAKES) or (isinstance(called, ast.Attribute) and self._is_set(called.value))
            case ast.Attribute(attr=attribute):
                # `make = kinds.union`, and then `make()`, of which nothing says that it is a set.
                return attribute in _METHODS and (attribute not in _MAKES or id(parent) in self._called)
            case ast.Assign() | ast.AnnAssign():
                targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
                return all(isinstance(target, (ast.Name, ast.Attribute)) for target in targets)
        return False

    def _below(self, node: ast.AST) -> Iterator[ast.AST]:
        """What may be a set below a node: not annotations, and not the kinds that `isinstance` is given."""
        if isinstance(node, ast.Call) and self._is_builtin(node.func, ("isinstance", "issubclass")):
            yield from node.args[:1]
            return
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns"):
                yield from (part for part in (value if isinstance(value, list) else [value]) if isinstance(part, ast.AST))


def of_file(tree: ast.Module, is_builtin: IsBuiltin) -> frozenset[str]:
    """The names that the top level of a file binds to sets, and the attributes that anything in it does."""
    top = ast.Module([statement for statement in tree.body if not isinstance(statement, (ast.FunctionDef, ast.ClassDef))], [])
    names = Sets(top, is_builtin).names
    return names | {name for name in Sets(tree, is_builtin, names).names if name.startswith(".")}


def _may_be_named(node: ast.AST, parent: ast.AST | None) -> bool:
    """Called, or compared as in `type(x) == set`."""
    return isinstance(parent, ast.Compare) or (isinstance(parent, ast.Call) and parent.func is node)


def _is_view(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS


def bindings(root: ast.AST) -> Iterator[tuple[list[str], ast.expr]]:
    """What is assigned below a node, and the names that it is bound to: in a class an attribute as well."""
    members = {id(part) for node in ast.walk(root) if isinstance(node, ast.ClassDef) for part in node.body}
    for node in ast.walk(root):
        match node:
            case ast.Assign(targets=targets, value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                targets = [target]
            case _:
                continue
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        attributes = [*(target.attr for target in targets if isinstance(target, ast.Attribute)), *(names if id(node) in members else [])]
        yield [*names, *(f".{name}" for name in attributes)], value
