"""What only some processes run: asserts, which are gone under `python -O`, and the texts of logs, which depend on the log's level.

Neither may change what a launch is given. The text says so of names, of the file's own functions, and of what is gone through by looking.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator

from referee.reading.host_sets import bindings
from referee.reading.host_vocabulary import MUTATORS
from referee.reading.host_words import LOGGER_METHODS
from referee.reading.kernels import is_kernel
from referee.reading.module_scope import Scope
from referee.reading.names import dotted

_CHANGES = MUTATORS | {
    *("appendleft", "apply", "backward", "discard", "forward", "mark_dirty", "mark_non_differentiable", "move_to_end", "popleft"),
    *("register_buffer", "reverse", "run", "save_for_backward", "set_device", "set_materialize_grads", "sort"),
}
# What they give is used up, or filled, by looking.
_ITERATORS = ("enumerate", "filter", "iter", "map", "reversed", "zip")
_FILLED = "collections.defaultdict"
REASON = "an assert is gone under `python -O`, a log's text below its level: neither may change anything, so do this before it"

_IsBuiltin = Callable[[ast.expr, tuple[str, ...]], bool]


class Unsteady:
    """What of a file changes something when it is called, and which names hold what changes when it is looked at."""

    def __init__(self, tree: ast.Module, scope: Scope, is_builtin: _IsBuiltin, attributes: Collection[str]) -> None:
        self._is_builtin = is_builtin
        self._scope = scope
        self._attributes = attributes
        nodes = list(ast.walk(tree))
        functions = list(_functions(nodes))
        self._own = {name for name, _ in functions}
        classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
        made = ("__init__", "__post_init__")
        self._changing = {one.name for one in classes if any(isinstance(part, ast.FunctionDef) and part.name in made for part in one.body)}
        self._classes = frozenset(one.name for one in classes)
        self._changing |= {name for name, function in functions if self._is_changing(function)}
        while grown := {name for name, function in functions if self._names_in(function) & self._changing} - self._changing:
            self._changing |= grown
        self._aliases = {**scope.aliases, **{name: word for node in nodes for name, word in _imports(node)}}
        bound = list(bindings(tree))
        self._held: set[str] = set()
        while found := {name for names, value in bound if self._is_held(value) for name in names} - self._held:
            self._held |= found

    def changes(self, root: ast.AST) -> ast.AST | None:
        """The first part of an assert or of what a log is given that may change something; None where there is none."""
        for node in ast.walk(root):
            if isinstance(node, ast.Assert):
                for part in ast.walk(node):
                    if self._may_change(part):
                        return part
            elif isinstance(node, ast.Call) and self._is_log(_asked(node.func)):
                for part in node.args:
                    if isinstance(part, ast.Name) and part.id in self._held:
                        return part
                if (mapping := self._looked_into(node)) is not None:
                    return mapping
        return None

    def _looked_into(self, call: ast.Call) -> ast.expr | None:
        """What a log may ask for a key, as in `log.info("%(rows)s", kept)`: in a dict that is written out nothing is changed by that."""
        called = _asked(call.func)
        word = dotted(called, self._aliases) or "logging."
        if not word.startswith("logging."):
            return None
        name = called.attr if isinstance(called, ast.Attribute) else word.rpartition(".")[2]
        given = call.args[1:] if name == "log" else call.args
        if not given or isinstance(given[0], ast.Starred):
            return given[0] if given else None
        text, given = _written(given[0]), given[1:]
        # Only what is given alone is taken for a mapping.
        alone = len(given) == 1 or any(isinstance(part, ast.Starred) for part in given)
        return given[0] if alone and not isinstance(given[0], ast.Dict) and (text is None or "%(" in text) else None

    def _is_log(self, called: ast.expr) -> bool:
        """`anything.info`, because no name has to be certain for this."""
        word = dotted(called, self._aliases) or ""
        return word.startswith("logging.") or (isinstance(called, ast.Attribute) and called.attr in LOGGER_METHODS)

    def _may_change(self, node: ast.AST) -> bool:
        match node:
            case ast.NamedExpr():
                return True
            case ast.Attribute(attr=attribute):
                return attribute in self._changing or f".{attribute}" in self._held or _is_change(attribute)
            case ast.Name(id=name):
                return name in self._held or name in self._changing - self._classes or self._is_builtin(node, ("next",))
            case ast.Call(func=ast.Name(id=name)):
                return name in self._changing
            case ast.Call(func=ast.Attribute(attr=attribute)):
                return attribute in self._attributes and attribute not in self._own
            case ast.Call():
                return True
        return False

    def _is_changing(self, function: ast.FunctionDef | ast.Lambda) -> bool:
        """True for a kernel, and for a function that stores into something, or calls what does."""
        if isinstance(function, ast.FunctionDef) and is_kernel(function, self._scope):
            return True
        parameters = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
        for node in ast.walk(function):
            match node:
                case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                    return True
                case ast.Attribute(attr=attribute) if _is_change(attribute):
                    return True
                case ast.AugAssign(target=ast.Name(id=name)) if name in parameters:
                    return True
                case ast.Name() if self._is_builtin(node, ("next",)):
                    return True
        return False

    def _names_in(self, function: ast.AST) -> set[str]:
        words = (node for node in ast.walk(function) if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load))
        return {node.id if isinstance(node, ast.Name) else node.attr for node in words}

    def _is_held(self, value: ast.expr) -> bool:
        match value:
            case ast.GeneratorExp():
                return True
            case ast.Name(id=name):
                return name in self._held
            case ast.Attribute(attr=name):
                return f".{name}" in self._held
            case ast.Call(func=called):
                word = dotted(called, self._aliases) or ""
                return self._is_builtin(called, _ITERATORS) or word == _FILLED or word.startswith("itertools.")
        return False


def _asked(called: ast.expr) -> ast.expr:
    """`getattr(x, "info")` as `x.info`."""
    match called:
        case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(name)), *_]):
            return ast.Attribute(value, name, ast.Load())
    return called


def _written(text: ast.expr) -> str | None:
    """A text that is written out, else None."""
    match text:
        case ast.Constant(value=str(value)):
            return value
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = (_written(left), _written(right))
            return None if None in parts else "".join(part or "" for part in parts)
    return None


def _functions(nodes: Collection[ast.AST]) -> Iterator[tuple[str, ast.FunctionDef | ast.Lambda]]:
    """The functions of a file by name, lambdas by what they are bound to."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))


def _is_change(attribute: str) -> bool:
    """`append`, `copy_`."""
    return attribute in _CHANGES or (attribute.endswith("_") and not attribute.startswith("_"))


def _imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that an import binds, wherever it stands, and what they mean."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        above = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        yield from ((alias.asname or alias.name, above + alias.name) for alias in node.names)
