"""Which names in a candidate's text are variables of a function, a lambda or a comprehension, by Python's own rules of scope.

A name that is bound somewhere else in the file is none: where `eval` is bound by a comprehension, `eval` beside it is still Python's.
Names bound in a class body or at the top level are none either, because there a name that is not bound yet is looked up further out.
Imports inside functions are left to those who know what they import.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from referee.reading.module_scope import bound_names

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_IMPORTS = (ast.Import, ast.ImportFrom)


def local_names(tree: ast.AST) -> frozenset[int]:
    """The identities of the `ast.Name` nodes below `tree` that are such variables."""
    resolver = _Resolver()
    resolver.visit(tree)
    return frozenset(resolver.found)


class _Resolver(ast.NodeVisitor):
    def __init__(self) -> None:
        self.found: set[int] = set()
        self._scopes: list[frozenset[str]] = []

    def visit_Name(self, node: ast.Name) -> None:
        if any(node.id in names for names in self._scopes):
            self.found.add(id(node))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node, node.body)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node, node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._function(node, [node.body])

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._comprehension(node.generators, [node.elt])

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self._comprehension(node.generators, [node.elt])

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._comprehension(node.generators, [node.elt])

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._comprehension(node.generators, [node.key, node.value])

    def _function(self, node: Function, body: Sequence[ast.AST]) -> None:
        outside: list[ast.AST] = [node.args]
        if not isinstance(node, ast.Lambda):
            outside += [*node.decorator_list, *([node.returns] if node.returns else [])]
        for part in outside:
            self.visit(part)
        parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        names = {parameter.arg for parameter in parameters if parameter is not None}
        names.update(name for statement in body for name in bound_names(statement))
        imports = (part for statement in body for part in ast.walk(statement) if isinstance(part, _IMPORTS))
        names.difference_update(alias.asname or alias.name.partition(".")[0] for part in imports for alias in part.names)
        self._inside(names, body)

    def _comprehension(self, generators: Sequence[ast.comprehension], results: Sequence[ast.AST]) -> None:
        # The first iterable alone is evaluated outside.
        self.visit(generators[0].iter)
        targets = (part for generator in generators for part in ast.walk(generator.target) if isinstance(part, ast.Name))
        inside = [part for number, one in enumerate(generators) for part in (one.target, *one.ifs, *([one.iter] if number else []))]
        self._inside({part.id for part in targets if isinstance(part.ctx, ast.Store)}, [*inside, *results])

    def _inside(self, names: set[str], parts: Sequence[ast.AST]) -> None:
        self._scopes.append(frozenset(names))
        for part in parts:
            self.visit(part)
        self._scopes.pop()
