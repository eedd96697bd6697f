"""`with ctx:` where a function binds `ctx` to contexts of torch and nothing else, as `ctx = torch.cuda.device(i) if i else nullcontext()`.

Any other object could run code of its own there, or hide what went wrong. And one that is entered while it is entered forgets what to go
back to, so that such a name may be named in one `with` of its function, and nowhere else.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from referee.reading.host_vocabulary import CONTEXTS
from referee.reading.names import dotted

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# By being called it takes effect, in a `with` or not.
_HELD = CONTEXTS - {"torch.set_grad_enabled"}


def held(root: ast.AST, aliases: Mapping[str, str], variables: Collection[int]) -> Iterator[int]:
    """The identities of such names where they stand in a `with`, in the functions below a node. `variables` are names of functions' own."""
    for function in ast.walk(root):
        if not isinstance(function, ast.FunctionDef):
            continue
        own = list(_own(function))
        bound = [node.targets[0] for node in own if isinstance(node, ast.Assign) and _is_context(node.value, aliases, variables)]
        names = [target.id for target in bound if isinstance(target, ast.Name)]
        entered = (item.context_expr for node in own if isinstance(node, ast.With) for item in node.items)
        for name in entered:
            if isinstance(name, ast.Name) and name.id in names and _mentions(function, name.id) == names.count(name.id) + 1:
                yield id(name)


def _is_context(value: ast.expr, aliases: Mapping[str, str], variables: Collection[int]) -> bool:
    match value:
        case ast.IfExp(body=body, orelse=orelse):
            return _is_context(body, aliases, variables) and _is_context(orelse, aliases, variables)
        case ast.Call(func=called):
            is_word = not any(isinstance(node, ast.Name) and id(node) in variables for node in ast.walk(called))
            return is_word and dotted(called, aliases) in _HELD
    return False


def _own(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function's body that stand in no function, class or comprehension in it."""
    pending: list[ast.AST] = [*function.body]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, _SCOPES):
            pending.extend(ast.iter_child_nodes(node))


def _mentions(root: ast.AST, name: str) -> int:
    """How often a name stands below a node, however it is meant there."""
    nodes = [node for node in ast.walk(root) if not isinstance(node, (ast.Constant, ast.Attribute))]
    fields = [value for node in nodes for _, value in ast.iter_fields(node)]
    return sum((value if isinstance(value, list) else [value]).count(name) for value in fields)
