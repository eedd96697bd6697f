"""Which functions, classes and methods of a file can run in a judgement: what its top level and `run` name, and so on.

The rest (tests, benchmarks, references in PyTorch) only stands in the file. A name counts however it is meant, so that too much
may be found, never too little; what is reached through a made-up name is for the tracer to meet.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from referee.module_scope import is_main_guard

# Called by Python or torch without being named.
_IMPLIED = frozenset({"forward", "setup_context"})

Definition = ast.FunctionDef | ast.ClassDef


def reachable(tree: ast.Module, entry: str = "run") -> frozenset[int]:
    """The `id` of every function, class and method of the tree that can run. Nested functions belong to the one around them."""
    definitions = list(_definitions(tree.body))
    methods = {id(definition): _methods(definition) for definition in definitions}
    words = {entry, *(word for statement in _top(tree.body) for word in _words([statement]))}
    own = {definition.name for definition in definitions}
    for definition in definitions:
        words.update(_words(at_import(definition)))
        # A decorator of the file's may call what it is given.
        for function in (definition, *methods[id(definition)]):
            if any(own.intersection(_words([decorator])) for decorator in function.decorator_list):
                words.update((definition.name, function.name))
    found: set[int] = set()
    grown = True
    while grown:
        grown = False
        for definition in definitions:
            if definition.name in words and id(definition) not in found:
                found.add(id(definition))
                words.update(_words([definition] if isinstance(definition, ast.FunctionDef) else at_import(definition)))
                grown = True
            for method in methods[id(definition)] if id(definition) in found else ():
                if id(method) not in found and (method.name in words | _IMPLIED or method.name.startswith("__")):
                    found.add(id(method))
                    words.update(_words([method]))
                    grown = True
    return frozenset(found)


def _definitions(body: Iterable[ast.stmt]) -> Iterator[Definition]:
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield statement
        elif isinstance(statement, (ast.If, ast.For, ast.Try)) and not is_main_guard(statement):
            yield from _definitions(part for part in ast.iter_child_nodes(statement) if isinstance(part, ast.stmt))


def _top(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """Statements and expressions that run when the file is imported, without the bodies of definitions."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) or is_main_guard(statement):
            continue
        if isinstance(statement, (ast.If, ast.For, ast.Try)):
            children = list(ast.iter_child_nodes(statement))
            yield from (child for child in children if not isinstance(child, ast.stmt))
            yield from _top(child for child in children if isinstance(child, ast.stmt))
        else:
            yield statement


def at_import(definition: Definition) -> list[ast.AST]:
    """What of a definition runs when the file is imported: of a class all but its methods' bodies."""
    if isinstance(definition, ast.ClassDef):
        inside = [part for part in definition.body if not isinstance(part, ast.FunctionDef)]
        methods = (part for method in _methods(definition) for part in at_import(method))
        return [*definition.decorator_list, *definition.bases, *definition.keywords, *inside, *methods]
    given = definition.args
    return [*definition.decorator_list, *given.defaults, *(default for default in given.kw_defaults if default is not None)]


def _methods(definition: Definition) -> list[ast.FunctionDef]:
    if not isinstance(definition, ast.ClassDef):
        return []
    return [statement for statement in definition.body if isinstance(statement, ast.FunctionDef)]


def _words(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for root in nodes:
        for node in ast.walk(root):
            if isinstance(node, ast.Name):
                yield node.id
            elif isinstance(node, ast.Attribute):
                yield node.attr
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
