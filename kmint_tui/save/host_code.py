"""Whether a kernel file may be saved: its kernels must be clean, and its host code must keep to a short list of words.

Refuses by default: every statement, expression, name and attribute that is not on a list is refused with its line. The
kernels are taken from the referee's own clean cut (`referee.reading.kernels`). Nothing is run; what is written is made of the parts
in `judged_part.py`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kmint_tui.errors import UsageError
from kmint_tui.save.vocabulary import BUILTINS, ERRORS, MATH, NO_GRAD, RESERVED, TENSOR, TORCH, TRITON
from referee.reading import kernels
from referee.reading.constants import Constant, read_constant
from referee.reading.kernel_vocabulary import TL_DTYPES
from referee.reading.module_scope import Scope, is_main_guard, is_optional_import, read
from referee.reading.names import dotted
from referee.reading.source import SourceError, parse

ENTRY = "run"

_WORDS = TORCH | TRITON | MATH | {f"tl.{dtype}" for dtype in TL_DTYPES}

_ALLOWED = (
    ast.arg, ast.arguments, ast.keyword, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.Load, ast.Store,
    ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.If, ast.For, ast.Pass, ast.Assert, ast.Expr,
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Constant, ast.Tuple, ast.List, ast.Slice, ast.Starred,
    ast.JoinedStr, ast.FormattedValue,
)  # fmt: skip


class NotSaveable(UsageError):
    """A kernel that may be judged, and may even win, but not be saved; says which line and why."""

    title = "this kernel cannot be saved"


@dataclass(frozen=True)
class HostCode:
    """A source that may be saved: its clean kernels, its parsed text, what its top level binds, and its entry."""

    kernels: kernels.KernelModule
    tree: ast.Module
    scope: Scope
    run: ast.FunctionDef


def check(source: str) -> HostCode:
    """The parts of a source, every one of them on the lists. Raises NotSaveable."""
    try:
        module = kernels.extract(source)
        tree = parse(source)
        scope = read(tree)
    except (kernels.KernelError, SourceError) as error:
        raise NotSaveable(str(error)) from error
    run: ast.FunctionDef | None = None
    needed = _needed(scope)
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            if statement.name in needed or kernels.is_kernel(statement, scope):
                _check_function(statement, scope)
            run = statement if statement.name == ENTRY else run
        elif not _is_plain(statement, scope):
            raise _refusal(statement, "at the top level only imports, constants and functions can be saved")
    if run is None or kernels.is_kernel(run, scope):
        raise NotSaveable(f"the file defines no function `{ENTRY}`")
    return HostCode(module, tree, scope, run)


def _needed(scope: Scope) -> set[str]:
    """The names of `run` and of the functions it comes to; the others (tests, references) are not written, and may hold anything."""
    names, pending = {ENTRY}, [ENTRY]
    while pending:
        function = scope.functions.get(pending.pop())
        # Kernels name host functions in decorators only, none of which is written.
        host = function is not None and not kernels.is_kernel(function, scope)
        mentioned = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)} if function and host else set()
        pending += sorted(mentioned & scope.functions.keys() - names)
        names |= mentioned
    return names


def _check_function(function: ast.FunctionDef, scope: Scope) -> None:
    if kernels.is_kernel(function, scope):
        if len(function.decorator_list) > 1:
            fix = "give the launch its values and drop the decorator"
            raise _refusal(function, "kernels with triton.heuristics are not saved: their launches do not say all values", fix)
        return
    if not all(_is_no_grad(decorator, scope) for decorator in function.decorator_list):
        raise _refusal(function, "host functions with decorators cannot be saved")
    if function.args.vararg or function.args.kwarg or function.args.kwonlyargs:
        raise _refusal(function, "host functions with *args, **kwargs or keyword-only arguments cannot be saved")
    if not all(_is_value(default) for default in function.args.defaults):
        raise _refusal(function, "defaults must be plain values")
    for annotation in (*(argument.annotation for argument in function.args.args), function.returns):
        if not _is_type(annotation, scope):
            raise _refusal(function, "annotations must be torch.Tensor, int, float or bool")
    _Checker(function, scope).check()


def _is_value(default: ast.expr) -> bool:
    if isinstance(default, ast.UnaryOp) and isinstance(default.op, ast.USub):
        default = default.operand
    return isinstance(default, ast.Constant)


def _is_no_grad(decorator: ast.expr, scope: Scope) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) and not decorator.args + decorator.keywords else decorator
    return dotted(called, scope.aliases) in NO_GRAD


def _is_type(annotation: ast.expr | None, scope: Scope) -> bool:
    match annotation:
        case None | ast.Constant(value=None):
            return True
        case ast.Name(id=name) if name in ("int", "float", "bool"):
            return True
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=parts)):
            return all(_is_type(part, scope) for part in parts)
    return dotted(annotation, scope.aliases) == "torch.Tensor"


def _is_plain(statement: ast.stmt, scope: Scope) -> bool:
    """True for what may stand at the top level beside functions; of it only constants that are used are kept."""
    if isinstance(statement, (ast.Import, ast.ImportFrom, ast.ClassDef, ast.Pass)) or is_optional_import(statement):
        return True
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)
    if isinstance(statement, ast.If):
        return is_main_guard(statement) or all(_imports(part) for part in (*statement.body, *statement.orelse))
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return False
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    if not all(isinstance(target, ast.Name) and not target.id.startswith("__") for target in targets):
        return False
    return _is_literal(statement.value, scope)


def _imports(statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.Import, ast.ImportFrom)) or is_optional_import(statement)


def _is_literal(value: ast.expr, scope: Scope) -> bool:
    full = dotted(value, scope.aliases)
    if full is not None:
        return full in _WORDS or (full.startswith(("tl.", "libdevice.")) and "._" not in full)
    match value:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(_is_literal(part, scope) for part in parts)
        case ast.Dict(keys=keys, values=values):
            return all(key is not None and _is_literal(key, scope) for key in keys) and all(_is_literal(part, scope) for part in values)
    return _is_arithmetic(value, scope)


def _is_arithmetic(value: ast.expr, scope: Scope) -> bool:
    """True for what the referee takes as a constant of a kernel: arithmetic on literals and on other such constants."""

    def resolve(name: str, at: ast.AST) -> Constant:
        if name not in scope.assigned or name in scope.rebound or scope.assigned[name] is value:
            raise kernels.KernelError(f"`{name}` is no constant", node=at)
        return read_constant(scope.assigned[name], scope, resolve)

    try:
        read_constant(value, scope, resolve)
    except (kernels.KernelError, RecursionError):
        return False
    return True


class _Checker:
    """Walks one host function."""

    def __init__(self, function: ast.FunctionDef, scope: Scope) -> None:
        self._function = function
        self._scope = scope
        self._kernels = {name for name, known in scope.functions.items() if kernels.is_kernel(known, scope)}
        self._hosts = set(scope.functions) - self._kernels
        arguments = {argument.arg for argument in (*function.args.posonlyargs, *function.args.args)}
        stored = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        self._locals = arguments | stored
        taken = self._locals & (set(scope.functions) | set(scope.aliases) | BUILTINS | ERRORS | RESERVED)
        if taken:
            raise _refusal(function, f"`{min(taken)}` is the name of something else")

    def check(self) -> None:
        for statement in self._function.body:
            self._visit(statement)

    def _visit(self, node: ast.AST) -> None:
        match node:
            case ast.Name():
                self._name(node)
            case ast.Attribute():
                self._attribute(node)
            case ast.Call():
                self._call(node)
            case ast.Subscript(value=ast.Name(id=name)) if name in self._kernels:
                raise _refusal(node, f"a launch of `{name}` must be called at once")
            case ast.Subscript():
                self._all(node)
            case ast.Lambda(args=arguments):
                self._lambda(node, {argument.arg for argument in arguments.args})
            case ast.With(items=items, body=body):
                self._device_guard(node, items)
                for statement in body:
                    self._visit(statement)
            case ast.Raise(exc=ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]), cause=None) if name in ERRORS:
                for argument in arguments:
                    self._visit(argument)
            case _ if isinstance(node, _ALLOWED):
                self._all(node)
            case _:
                raise _refusal(node, f"{type(node).__name__.lower()} cannot be saved; host code computes shapes, allocates and launches")

    def _all(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            self._visit(child)

    def _name(self, node: ast.Name) -> None:
        if node.id in self._locals or node.id in BUILTINS or node.id in self._scope.assigned:
            return
        raise _refusal(node, f"the name `{node.id}` cannot be used here")

    def _attribute(self, node: ast.Attribute) -> None:
        full = dotted(node, self._scope.aliases)
        if full is not None:
            if full not in _WORDS:
                raise _refusal(node, f"`{full}` is not on the list of what a saved kernel may use")
        elif node.attr not in TENSOR:
            raise _refusal(node, f"the attribute `.{node.attr}` is not on the list of what a saved kernel may use")
        else:
            self._visit(node.value)

    def _call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Subscript(value=ast.Name(id=name), slice=grid) if name in self._kernels:
                self._visit(grid)
            case ast.Name(id=name) if name in self._hosts or name in BUILTINS:
                pass
            case ast.Name() as name_node if (full := dotted(name_node, self._scope.aliases)) is not None and full in _WORDS:
                pass
            case ast.Attribute() as attribute:
                self._attribute(attribute)
            case _:
                raise _refusal(node, "this call is not on the list of what a saved kernel may do")
        for argument in node.args:
            self._visit(argument)
        for keyword in node.keywords:
            self._visit(keyword.value)

    def _lambda(self, node: ast.Lambda, arguments: set[str]) -> None:
        before, self._locals = self._locals, self._locals | arguments
        self._visit(node.body)
        self._locals = before

    def _device_guard(self, node: ast.With, items: list[ast.withitem]) -> None:
        for item in items:
            call = item.context_expr
            guards = isinstance(call, ast.Call) and dotted(call.func, self._scope.aliases) == "torch.cuda.device"
            if not guards or item.optional_vars is not None:
                raise _refusal(node, "only `with torch.cuda.device(...)` can be saved")
            self._visit(call)


def _refusal(node: ast.AST, reason: str, fix: str = "") -> NotSaveable:
    line = getattr(node, "lineno", None)
    return NotSaveable(f"line {line}: {reason}" if line else reason, fix=fix)
