"""Which functions, classes and methods of a file can run in a judgement: what its top level and `run` name, and so on.

The rest (tests, benchmarks, references in PyTorch) only stands in the file. A name counts however it is meant, so that too much
may be found, never too little, and a text counts as a name, but for those of `__all__` and of Triton's `Benchmark`, which call nothing;
what is reached through a made-up name is for the tracer to meet.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence

from referee.reading.module_scope import is_main_guard

# Called by Python or torch without being named.
_IMPLIED = frozenset({"forward", "setup_context"})
# What torch.nn.Module has by names without a line in front: torch calls some of it itself, `half` for one `_apply`. Spelled out because
# the screen does without torch. What Function has for gradients is not here: a gradient is no part of a judgement.
_OF_MODULES = frozenset(
    """
    add_module apply bfloat16 buffers children compile cpu cuda double eval extra_repr float get_buffer get_extra_state get_parameter
    get_submodule half ipu load_state_dict modules mtia named_buffers named_children named_modules named_parameters parameters
    register_backward_hook register_buffer register_forward_hook register_forward_pre_hook register_full_backward_hook
    register_full_backward_pre_hook register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module
    register_parameter register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state set_submodule
    share_memory state_dict to to_empty train type xpu zero_grad
    """.split()
)

# Nothing of this calls anything, but for what is asked of an object by its name, which counts as well.
_IN_A_TEXT = (ast.JoinedStr, ast.FormattedValue, ast.Constant, ast.Attribute, ast.Name, ast.Tuple, ast.BinOp, ast.Add, ast.Mod, ast.Load)

Definition = ast.FunctionDef | ast.ClassDef


def reachable(tree: ast.Module, entry: str = "run", never_run: Collection[int] = ()) -> frozenset[int]:
    """The `id` of every function, class and method of the tree that can run. Nested functions belong to the one around them.

    What is named by nodes that are `never_run` is not reached by that.
    """
    definitions = list(_definitions(tree.body))
    methods = {id(definition): _methods(definition) for definition in definitions}
    words = {entry, *(word for statement in _top(tree.body) for word in _words([statement]))}
    own = {definition.name for definition in definitions}
    library = _of_libraries([definition for definition in definitions if isinstance(definition, ast.ClassDef)])
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
                words.update(_words([definition] if isinstance(definition, ast.FunctionDef) else at_import(definition), never_run))
                grown = True
            for method in methods[id(definition)] if id(definition) in found else ():
                if method.name == "extra_repr":
                    words.update(_words([method]))
                implied = method.name.startswith("__") or (definition.name in library and _is_called(method))
                if id(method) not in found and (implied or method.name in words | _IMPLIED):
                    found.add(id(method))
                    words.update(_words([method]))
                    grown = True
    return frozenset(found)


def _of_libraries(classes: Sequence[ast.ClassDef]) -> frozenset[str]:
    """The classes of the file that may be part of one with a base from elsewhere: those made of it, and those that it is made of."""
    own = {one.name for one in classes}
    bases = [(one.name, base.id if isinstance(base, ast.Name) else "") for one in classes for base in one.bases]
    found: frozenset[str] = frozenset()
    while grown := {name for pair in bases if pair[1] not in own or found.intersection(pair) for name in pair if name in own} - found:
        found |= grown
    return found


def _is_called(method: ast.FunctionDef) -> bool:
    """True when a class from elsewhere may call the method in its own place: Enum a `_missing_`, torch a `_call_impl`."""
    # What `extra_repr` comes to shows in messages only.
    return method.name.startswith("_") or (method.name in _OF_MODULES and not (method.name == "extra_repr" and _only_tells(method)))


def _only_tells(method: ast.FunctionDef) -> bool:
    """True for a method that returns a text of what is stored."""
    parts = [part for part in method.body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))]
    match parts:
        case [ast.Return(value=ast.expr() as value)] if not method.decorator_list:
            return all(isinstance(node, _IN_A_TEXT) for node in ast.walk(value))
    return False


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


def _words(nodes: Iterable[ast.AST], never_run: Collection[int] = ()) -> Iterator[str]:
    for root in nodes:
        labels = {id(text) for node in ast.walk(root) if _labels(node) for text in ast.walk(node) if isinstance(text, ast.Constant)}
        for node in ast.walk(root):
            if id(node) in never_run:
                continue
            if isinstance(node, ast.Name):
                yield node.id
            elif isinstance(node, ast.Attribute):
                yield node.attr
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in labels:
                yield node.value


def _labels(node: ast.AST) -> bool:
    """Whether the texts in it are names to show or to export."""
    match node:
        case ast.Assign(targets=[ast.Name("__all__")]):
            return True
        case ast.Call(func=ast.Attribute(attr="Benchmark") | ast.Name("Benchmark")):
            return True
    return False
