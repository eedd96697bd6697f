"""Host code that could tell a trace from a real call: texts of objects, identity, a module's name, what a kernel object keeps.

A text such as `str(x)` or `f"{kernel}"` shows what an object is made of, `is` tells a fresh object from a kept one, and a kernel
object remembers its launches. None of it is needed to launch a kernel; texts in `raise`, `assert` and a log of the library are harmless.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from referee.reading.host_vocabulary import BUILTINS, ENUMS, ERROR_BASES, MATH, OLDEST_PYTHON
from referee.reading.module_scope import Scope, bound_names
from referee.reading.names import dotted

TEXT_OF = frozenset({"dtype", "device", "shape", "type"})
TEXTS = frozenset({"str", "repr", "format", "bytes"})
_LOGS = frozenset({"critical", "debug", "error", "exception", "info", "log", "warn", "warning"})
_LOG_WORDS = frozenset({"warnings.warn", *(f"logging.{word}" for word in _LOGS)})
_GET_LOGGER = "logging.getLogger"
LOGGER_METHODS = _LOGS | {"setLevel"}
# Of Python's own, what makes a message of its arguments and hands them to nothing else.
_PLAIN = frozenset(
    {
        *("bool", "float", "format", "int", "len", "list", "repr", "str", "tuple", "type"),
        *(name for name in BUILTINS if name.endswith(("Error", "Exception", "Warning"))),
    }
)
_IN_A_MESSAGE = (
    "compare x.dtype or x.shape themselves; write a message in the `raise` or `assert` itself, not in a variable or a function before it"
)
_FORMATTING = frozenset({"format", "format_map"})
_VERSION = "sys.version_info"
# What a subscript of these gives cannot be called, so that no text comes of a `str` in there. Not `Annotated[str, 1](x)`.
_TYPES = frozenset(
    """
    Callable ClassVar Dict Final Iterable Iterator List Mapping Optional Sequence Set Tuple Type
    """.split()
)
_OLDEST = ".".join(map(str, OLDEST_PYTHON))
_UNION = frozenset({"typing.Union", "typing_extensions.Union"})
_GENERIC = frozenset(f"typing.{word}" for word in _TYPES)

_IN_TYPES = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Tuple, ast.List, ast.BinOp, ast.BitOr, ast.expr_context)

# Attributes of Triton's kernels, autotuners and heuristics, of what a launch returns, and of cached functions; no tensor has them.
KERNEL_ATTRIBUTES = frozenset(
    """
    add_pre_run_hook arg_names asm base_fn bench_time best_config cache cache_clear cache_info cache_key cache_parameters
    cache_results configs configs_timings constexprs create_binder device_caches do_not_specialize early_config_prune fn hash
    launch_metadata metadata module n_regs n_spills nargs noinline params parse perf_model post_hook pre_hook pre_run_hooks preload
    prune_configs raw_src repr reset_to_zero restore_value signature src starting_line_number used_global_vals warmup
    """.split()
)


@dataclass(frozen=True)
class Meaning:
    """What the names of a file certainly mean where they stand; a name that a class body binds as well is never certain.

    `aliases` are imported, `variables` the name nodes that mean a function's own, `taken` what the top level binds or a class does,
    `in_classes` the latter alone. `errors` are classes of the file that do no more than Python's own errors. `unclear` are imported
    and, perhaps, something else: nothing that may be used. `shown` are nodes that only make what is shown, and hand it to nothing.
    """

    aliases: Mapping[str, str]
    variables: frozenset[int]
    taken: frozenset[str]
    in_classes: frozenset[str]
    loggers: Mapping[str, ast.Call]
    enums: frozenset[str]
    unclear: frozenset[str] = frozenset()
    errors: frozenset[str] = frozenset()
    shown: frozenset[int] = frozenset()

    def is_builtin(self, node: ast.expr, names: Collection[str]) -> bool:
        """True for one of these names of Python's."""
        known = isinstance(node, ast.Name) and node.id in names and node.id not in self.taken | self.aliases.keys() | self.unclear
        return known and id(node) not in self.variables

    def is_module(self, node: ast.expr, modules: Collection[str]) -> bool:
        """True for a name that an import binds to one of these modules, and nothing else to anything."""
        known = isinstance(node, ast.Name) and node.id not in self.taken | self.unclear and dotted(node, self.aliases) in modules
        return known and id(node) not in self.variables

    def is_logger(self, node: ast.expr) -> bool:
        """True for a name of the top level that is bound once, to `logging.getLogger(...)`."""
        return isinstance(node, ast.Name) and node.id in self.loggers and id(node) not in self.variables

    def is_error(self, node: ast.expr) -> bool:
        """True for an error class of the file that does no more than the one of Python's own that it is made of."""
        return isinstance(node, ast.Name) and node.id in self.errors and id(node) not in self.variables

    def is_log(self, called: ast.expr) -> bool:
        """`logger.info(...)`, `warnings.warn(...)` of the library: what is written there does not come back."""
        if self.word(called) in _LOG_WORDS:
            return True
        if not (isinstance(called, ast.Attribute) and called.attr in _LOGS):
            return False
        made = called.value
        return self.is_logger(made) or (isinstance(made, ast.Call) and self.word(made.func) == _GET_LOGGER)

    def word(self, node: ast.expr) -> str | None:
        """The word of a module that this certainly is."""
        root = _root(node)
        certain = not (isinstance(root, ast.Name) and root.id in self.in_classes)
        return self.perhaps(node) if certain else None

    def perhaps(self, node: ast.expr) -> str | None:
        """The word of a module that this is where no class means something else by the name."""
        return dotted(node, self.aliases) if id(_root(node)) not in self.variables else None


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node


def meaning(tree: ast.Module, scope: Scope, variables: frozenset[int], bound: frozenset[str]) -> Meaning:
    """The names of a file: its `scope`, and what its top level `bound` other than by imports."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    in_classes = frozenset(name for statement in classes for part in statement.body for name in bound_names(part))
    uncertain = in_classes | scope.rebound
    loggers = {
        name: value
        for name, value in scope.assigned.items()
        if name not in uncertain and isinstance(value, ast.Call) and dotted(value.func, scope.aliases) == _GET_LOGGER
    }
    enums = (statement.name for statement in classes if any(dotted(base, scope.aliases) in ENUMS for base in statement.bases))
    taken = bound | scope.functions.keys() | in_classes
    errors = _errors(tree, ERROR_BASES - taken - scope.aliases.keys()) - uncertain
    return Meaning(scope.aliases, variables, taken, in_classes, loggers, frozenset(enums) - uncertain, errors=errors)


def _errors(tree: ast.Module, bases: frozenset[str]) -> frozenset[str]:
    """The classes of the top level that are made of these errors, or of one another, and hold nothing."""
    found: set[str] = set()
    for statement in tree.body:
        match statement:
            case ast.ClassDef(name=name, bases=[ast.Name(id=base)], keywords=[], decorator_list=[], body=body) if base in bases | found:
                if all(isinstance(part, ast.Pass) or _is_docstring(part) for part in body):
                    found.add(name)
    return frozenset(found)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def excused(root: ast.AST, names: Meaning) -> Iterator[int]:
    """Identities of the nodes of messages: in `raise`, in `assert`, for loggers; and of what the file's loggers are called."""
    for node in ast.walk(root):
        messages: list[ast.expr | None] = []
        if isinstance(node, ast.Raise):
            messages = [node.exc, node.cause]
        elif isinstance(node, ast.Assert):
            messages = [node.msg]
        elif isinstance(node, ast.Call) and names.is_log(node.func):
            messages = [*node.args]
            if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call):
                messages += node.func.value.args
        for message in messages:
            yield from _message(message, names)
    yield from names.shown
    yield from (id(argument) for call in names.loggers.values() for argument in call.args)


def _message(node: ast.expr | None, names: Meaning) -> Iterator[int]:
    """Identities of a message's nodes, as far as their values become its text and nothing else.

    What `:=` keeps, or a function of the file is given, could come back: what stands in there is no message.
    """
    inside: list[ast.expr] = []
    match node:
        case None | ast.NamedExpr():
            return
        case ast.Call(func=called) if names.is_builtin(called, _PLAIN) or names.is_error(called) or _of_text(called):
            inside = [called, *node.args, *(keyword.value for keyword in node.keywords)]
        # By a `key` a function would be given what stands in there.
        case ast.Call(func=called, args=values, keywords=[]) if names.is_builtin(called, ("sorted",)):
            inside = [called, *values]
        case ast.Call(func=called, args=[kind, *values]) if names.is_builtin(called, ("map",)) and names.is_builtin(kind, TEXTS):
            inside = [kind, *values]
        case ast.JoinedStr(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
            inside = parts
        case ast.FormattedValue(value=part) | ast.Attribute(value=part) | ast.Subscript(value=part) | ast.Starred(value=part):
            inside = [part]
        case ast.GeneratorExp(elt=part) | ast.ListComp(elt=part):
            inside = [part]
        case ast.BinOp(left=left, op=ast.Add() | ast.Mod(), right=right):
            inside = [left, right]
        case ast.IfExp(body=body, orelse=orelse):
            inside = [body, orelse]
    yield id(node)
    for part in inside:
        yield from _message(part, names)


def _of_text(called: ast.expr) -> bool:
    """`"...".format`, `", ".join`."""
    return isinstance(called, ast.Attribute) and called.attr in ("format", "join") and _is_text(called.value)


def allowed_names(node: ast.AST, names: Meaning) -> Iterator[int]:
    """Identities of names such as `str` and `type` that may stand below this node: for a harmless text, for `isinstance`, compared."""
    types: list[ast.expr] = []
    if isinstance(node, ast.Call):
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        if called in TEXTS and len(node.args) == 1 and _harmless(node.args[0]):
            yield id(node.func)
        elif names.is_builtin(node.func, ("isinstance", "issubclass")):
            types = node.args
            yield from (id(part) for argument in node.args[1:] for part in _alternatives(argument))
    elif isinstance(node, ast.Compare):
        types = [node.left, *node.comparators]
        if _same_everywhere(node, names):
            yield id(node.left)
    elif isinstance(node, ast.Subscript):
        yield from _in_a_type(node, names)
    elif isinstance(node, ast.Attribute):
        types = [node.value]
    for side in types:
        match side:
            case ast.Call(func=ast.Name(id="type") as name, args=[given], keywords=[]) if not isinstance(given, ast.Starred):
                yield id(name)


def _same_everywhere(node: ast.Compare, names: Meaning) -> bool:
    """`sys.version_info >= (3, 9)`, which is so for every Python that there may be."""
    match node:
        case ast.Compare(left=left, ops=[ast.GtE() | ast.Lt()], comparators=[ast.Tuple(elts=elements)]) if names.word(left) == _VERSION:
            numbers = tuple(part.value for part in elements if isinstance(part, ast.Constant) and isinstance(part.value, int))
            return len(numbers) == len(elements) and numbers <= OLDEST_PYTHON
    return False


def _in_a_type(node: ast.Subscript, names: Meaning) -> Iterator[int]:
    """Identities of `str` and `bytes` in `Union[int, str]`, from which neither comes back."""
    module, _, word = (names.word(node.value) or "").rpartition(".")
    if module not in ("typing", "typing_extensions") or not (word in _TYPES or _is_union(node, names)):
        return
    inside = list(ast.walk(node.slice))
    if all(isinstance(part, _IN_TYPES) for part in inside):
        yield from (id(part) for part in inside if isinstance(part, ast.Name) and part.id in ("str", "bytes"))


def _is_union(node: ast.expr, names: Meaning) -> bool:
    """True for a union of two kinds that differ: of one kind it would be this kind itself."""
    if not (isinstance(node, ast.Subscript) and names.word(node.value) in _UNION and isinstance(node.slice, ast.Tuple)):
        return False
    # Not what is a union itself, perhaps of one kind, under whatever name.
    plain = [part for part in node.slice.elts if isinstance(part, (ast.Name, ast.Constant, ast.Attribute))]
    generic = [part for part in node.slice.elts if isinstance(part, ast.Subscript) and names.word(part.value) in _GENERIC]
    return len({ast.dump(part) for part in (*plain, *generic)}) > 1


def _alternatives(kind: ast.expr) -> Iterator[ast.expr]:
    """The kinds in `(int, str)` and `int | str`."""
    if isinstance(kind, ast.BinOp):
        yield from (*_alternatives(kind.left), *_alternatives(kind.right))
    else:
        yield from kind.elts if isinstance(kind, ast.Tuple) else [kind]


def telling(node: ast.AST, names: Meaning) -> str | None:
    """Why this node, which is not excused, could tell a trace from a real call; None when it could not."""
    if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
        full = f"{names.perhaps(node)}."
        if full.startswith(f"{_VERSION}."):
            reason = "which differs between users, and launches may not depend on it: write what runs in all of them"
            return f"`{_VERSION}` says which Python runs, {reason}, from {_OLDEST} on, without asking"
        if full.startswith("math.") and full != "math." and full.split(".")[1] not in MATH:
            return f"`{full[:-1]}` is not in every Python from {_OLDEST} on, so that `run` would fail for some users; write it out"
    if isinstance(node, ast.JoinedStr) and not all(_harmless(value) for value in _formatted(node)):
        return f"a formatted string shows what an object is; {_IN_A_MESSAGE}"
    if isinstance(node, ast.Name) and node.id in TEXTS and isinstance(node.ctx, ast.Load):
        return f"`{node.id}` shows what an object is; {_IN_A_MESSAGE}"
    if isinstance(node, ast.Name) and node.id == "type" and isinstance(node.ctx, ast.Load):
        return "`type` may only be asked what one thing is, where that is compared: `type(x) == ...`, or isinstance"
    if isinstance(node, ast.Name) and names.is_builtin(node, ("classmethod",)):
        return "what `classmethod` makes of a property depends on the version of Python; write `@classmethod` above the method"
    if isinstance(node, ast.Name) and node.id == "__name__":
        return '`__name__` is for `if __name__ == "__main__":` and for `logger = logging.getLogger(__name__)` at the top level only'
    if isinstance(node, ast.Attribute) and node.attr == "__name__":
        return f"`.__name__` shows what an object is; {_IN_A_MESSAGE}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _is_text(node.left):
        return f"`%` on a text shows what an object is; {_IN_A_MESSAGE}"
    if isinstance(node, ast.Attribute) and node.attr in _FORMATTING:
        return f"`.{node.attr}` shows what an object is; {_IN_A_MESSAGE}"
    if isinstance(node, ast.Compare) and any(isinstance(operator, (ast.Is, ast.IsNot)) for operator in node.ops):
        sides = [node.left, *node.comparators]
        if not any(_settled(side, names) for side in sides) and not all(_is_dtype(side) for side in sides):
            return "`is` tells objects apart that are equal; compare with =="
    return None


def _formatted(node: ast.JoinedStr) -> Iterator[ast.expr]:
    return (value.value if isinstance(value, ast.FormattedValue) else value for value in node.values)


def _harmless(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) or (isinstance(value, ast.Attribute) and value.attr in TEXT_OF)


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, (str, bytes)))


def _is_dtype(side: ast.expr) -> bool:
    return isinstance(side, ast.Attribute) and side.attr == "dtype"


def _settled(side: ast.expr, names: Meaning) -> bool:
    """A constant, a word such as `torch.float16`, or a member of an enumeration of the file."""
    if isinstance(side, ast.Constant):
        return True
    if not (isinstance(side, ast.Attribute) and isinstance(side.value, ast.Name)):
        return False
    return side.value.id in ("torch", "tl") or (side.value.id in names.enums and id(side.value) not in names.variables)
