"""The allow-list of host code: the code that a verdict vouches for, and that `kmint save` writes.

Every statement, expression, name and attribute outside the lists is a finding with its line. Only
functions that `run` reaches count. Nothing is run.

Code on the list computes sizes, allocates, views and launches. It cannot keep anything between
calls, compare tensors by identity, or see an address, a class, a text or the state of torch. The
trace relies on this: it looks for none of these in the candidate's process. Limits: the text does
not say which branches a call takes, so all of them count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from referee.reading.allowed_words import (
    BUILTINS,
    ERRORS,
    METHODS,
    NO_GRAD,
    PROPERTIES,
    RESERVED,
    TENSOR,
    WRITING,
)
from referee.reading.host_top_level import (
    COMPUTES,
    CONTAINERS,
    WORDS,
    Finding,
    advice,
    calls_something,
    is_flat,
    is_literal,
    is_plain,
    is_text,
)  # fmt: skip
from referee.reading.kernels import is_kernel
from referee.reading.module_scope import Scope
from referee.reading.names import dotted

__all__ = [
    "ENTRY", "Finding", "calls_something", "in_expression", "in_function", "is_literal", "is_plain", "needed",
]  # fmt: skip

ENTRY = "run"
_ALLOWED = (
    ast.arg, ast.arguments, ast.keyword, ast.expr_context, ast.operator, ast.unaryop, ast.boolop,
    ast.cmpop, ast.Load, ast.Store, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.If,
    ast.For, ast.Pass, ast.Expr, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.IfExp, ast.Constant,
    ast.Tuple, ast.List, ast.Slice, ast.Starred, ast.Subscript,
)  # fmt: skip
_READING = frozenset({"len", "list", "max", "min", "sum", "tuple"})


def needed(scope: Scope) -> set[str]:
    """The names of `run`, of the functions that it reaches, and of everything that these mention.
    Other functions, such as tests, may hold anything.
    """
    names, pending = {ENTRY}, [ENTRY]
    while pending:
        function = scope.functions.get(pending.pop())
        # Kernels name host functions in decorators only.
        host = function is not None and not is_kernel(function, scope)
        mentioned = (
            {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
            if function and host
            else set()
        )
        pending += sorted(mentioned & scope.functions.keys() - names)
        names |= mentioned
    return names


def in_function(function: ast.FunctionDef, scope: Scope) -> Iterator[Finding]:
    """Findings in a host function, including its decorators, arguments and annotations."""
    for decorator in function.decorator_list:
        if not _is_no_grad(decorator, scope):
            reason = "host functions with decorators cannot be saved"
            yield Finding.at(function, reason, f"@{ast.unparse(decorator)}")
    if function.args.vararg or function.args.kwarg or function.args.kwonlyargs:
        reason = "host functions with *args, **kwargs or keyword-only arguments cannot be saved"
        yield Finding.at(function, reason, f"def {function.name}")
    for default in function.args.defaults:
        if not _is_value(default):
            yield Finding.at(function, "defaults must be plain values", ast.unparse(default))
    for annotation in (*(argument.annotation for argument in function.args.args), function.returns):
        if not _is_type(annotation, scope):
            reason = "annotations must be torch.Tensor, int, float or bool"
            yield Finding.at(function, reason, ast.unparse(annotation) if annotation else "")
    yield from _Walk(function, scope).findings()


def in_expression(value: ast.expr, scope: Scope) -> Iterator[Finding]:
    """Findings in an expression outside of functions, such as a value of `triton.heuristics`."""
    holder = ast.FunctionDef(
        "",
        ast.arguments([], [], None, [], [], None, []),
        [ast.Expr(value)],
        [],
        lineno=value.lineno,
    )
    yield from _Walk(holder, scope).findings()


def _is_value(default: ast.expr) -> bool:
    if isinstance(default, ast.UnaryOp) and isinstance(default.op, ast.USub):
        default = default.operand
    return isinstance(default, ast.Constant)


def _is_no_grad(decorator: ast.expr, scope: Scope) -> bool:
    called = (
        decorator.func
        if isinstance(decorator, ast.Call) and not decorator.args + decorator.keywords
        else decorator
    )
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


class _Walk:
    """Walks one host function."""

    def __init__(self, function: ast.FunctionDef, scope: Scope) -> None:
        self._function = function
        self._scope = scope
        self._kernels = {name for name, known in scope.functions.items() if is_kernel(known, scope)}
        self._hosts = set(scope.functions) - self._kernels
        arguments = {argument.arg for argument in (*function.args.posonlyargs, *function.args.args)}
        stored = {
            node.id
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        self._locals = arguments | stored
        self._kept = {
            name
            for name, value in scope.assigned.items()
            if name not in self._locals
            and any(isinstance(part, CONTAINERS) for part in ast.walk(value))
        }
        self._grids = _grids(function, self._kernels)
        self._found: list[Finding] = []

    def findings(self) -> list[Finding]:
        taken = self._locals & (
            set(self._scope.functions) | set(self._scope.aliases) | BUILTINS | ERRORS | RESERVED
        )
        if taken:
            self._refuse(
                self._function, f"`{min(taken)}` is the name of something else", min(taken)
            )
        for statement in self._function.body:
            self._visit(statement)
        return self._found

    def _refuse(self, node: ast.AST, reason: str, what: str = "") -> None:
        self._found.append(Finding.at(node, reason, what))

    def _visit(self, node: ast.AST) -> None:
        match node:
            case ast.Name():
                self._name(node)
            case ast.Attribute(attr=name) if name in METHODS and not dotted(
                node, self._scope.aliases
            ):
                self._refuse(node, f"the method `.{name}` must be called at once", f".{name}")
            case ast.Attribute():
                self._attribute(node)
            case ast.JoinedStr():
                self._refuse(node, "texts may be made in error messages only")
            case ast.Assert(test=test):
                # Python makes the message only if the assertion fails.
                self._assert(node)
                self._visit(test)
            case ast.Compare():
                self._compare(node)
            case ast.Subscript(ctx=ast.Store()):
                self._stored(node)
            case (
                ast.For(iter=ast.Name(id=name))
                | ast.Subscript(value=ast.Name(id=name), ctx=ast.Load())
            ) if name in self._kept and is_flat(self._scope.assigned[name]):
                for child in ast.iter_child_nodes(node):
                    if not (isinstance(child, ast.Name) and child.id == name):
                        self._visit(child)
            case ast.BinOp(left=left) if is_text(left):
                self._refuse(node, "texts may be made in error messages only")
            case ast.Call():
                self._call(node)
            case ast.Subscript(value=ast.Name(id=name)) if name in self._kernels:
                self._refuse(node, f"a launch of `{name}` must be called at once")
            case ast.Dict(keys=keys, values=values) if not self._function.name and all(
                isinstance(key, ast.Constant) for key in keys
            ):
                # A dict of heuristics.
                for value in values:
                    self._visit(value)
            case ast.Lambda() if self._function.name and id(node) not in self._grids:
                self._refuse(node, "a lambda may only be the grid of a launch")
            case ast.Lambda(args=arguments):
                for default in arguments.defaults:
                    self._visit(default)
                self._lambda(node, {argument.arg for argument in arguments.args})
            case ast.With(items=items, body=body):
                self._device_guard(node, items)
                for statement in body:
                    self._visit(statement)
            case ast.Raise(
                exc=ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]), cause=None
            ) if name in ERRORS:
                for argument in arguments:
                    self._message(argument)
            case _ if isinstance(node, _ALLOWED):
                self._all(node)
            case _:
                self._refuse(node, f"{type(node).__name__.lower()} is not on the list; {COMPUTES}")

    def _all(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            self._visit(child)

    def _name(self, node: ast.Name) -> None:
        if node.id in self._locals:
            return
        if node.id in self._kept:
            reason = f"`{node.id}` is a list or dict that a call could change"
            self._refuse(node, f"{reason}; index it, loop over it, or write a tuple", node.id)
        elif node.id in self._scope.rebound:
            self._refuse(node, f"`{node.id}` is assigned more than once", node.id)
        elif node.id not in BUILTINS and node.id not in self._scope.assigned:
            if self._function.name or node.id not in self._hosts:
                self._refuse(node, f"the name `{node.id}` cannot be used here")

    def _message(self, node: ast.expr) -> None:
        match node:
            case ast.JoinedStr(values=parts):
                pass
            case ast.FormattedValue(value=value, format_spec=form):
                parts = [value, *([form] if form is not None else [])]
            case ast.BinOp(left=left, right=right):
                parts = [left, right]
            case _:
                self._visit(node)
                return
        for part in parts:
            self._message(part)

    def _assert(self, node: ast.Assert) -> None:
        """Refuse assertions that change or launch anything, because `python -O` leaves them out."""
        for call in (part for part in ast.walk(node.test) if isinstance(part, ast.Call)):
            called = call.func
            name = called.attr if isinstance(called, ast.Attribute) else ""
            if isinstance(called, ast.Subscript) or name in WRITING:
                self._refuse(call, "an assertion may only look; write the call before it")
            elif isinstance(called, ast.Name) and called.id in self._hosts:
                self._refuse(call, "an assertion may call no function of the file", called.id)
        if node.msg is not None:
            self._message(node.msg)

    def _compare(self, node: ast.Compare) -> None:
        for operator, value in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, (ast.Is, ast.IsNot)) and not isinstance(value, ast.Constant):
                self._refuse(node, "`is` may compare with None, True and False only")
            if isinstance(operator, (ast.In, ast.NotIn)):
                known = isinstance(value, ast.Name) and value.id in self._scope.assigned
                if not known and not is_literal(value, self._scope):
                    self._refuse(node, "`in` needs a tuple or list of constants")
                elif isinstance(value, ast.Name) and value.id in self._scope.rebound:
                    self._name(value)
        operands = [node.left, *node.comparators]
        known_in = {
            id(value)
            for operator, value in zip(node.ops, node.comparators, strict=True)
            if isinstance(operator, (ast.In, ast.NotIn))
        }
        for operand in operands:
            if id(operand) not in known_in:
                self._visit(operand)

    def _stored(self, node: ast.Subscript) -> None:
        root: ast.expr = node
        while isinstance(root, ast.Subscript):
            root = root.value
        if not (isinstance(root, ast.Name) and root.id in self._locals):
            self._refuse(node, "only what the call made may be changed")
        self._all(node)

    def _attribute(self, node: ast.Attribute) -> None:
        full = dotted(node, self._scope.aliases)
        if full is not None:
            if full not in WORDS:
                self._refuse(node, f"`{full}` is not on the list{advice(full)}", full)
        elif node.attr not in TENSOR:
            reason = f"`.{node.attr}` is not on the list; {COMPUTES}"
            self._refuse(node, reason, f".{node.attr}")
        else:
            self._visit(node.value)

    def _call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Subscript(value=ast.Name(id=name), slice=grid) if name in self._kernels:
                self._visit(grid)
            case ast.Name(id=name) if name in self._hosts or name in BUILTINS:
                pass
            case ast.Name() as name_node if (
                full := dotted(name_node, self._scope.aliases)
            ) is not None and full in WORDS:
                pass
            case ast.Attribute(attr=name) as attribute if name in PROPERTIES and not dotted(
                attribute, self._scope.aliases
            ):
                self._refuse(node, f"`.{name}` is not called", f".{name}")
            case ast.Attribute() as attribute:
                self._attribute(attribute)
                if ast.unparse(node).startswith(("torch.device('cuda:", "torch.device('cuda',")):
                    self._refuse(node, "no answer may depend on the GPU's number")
            case called:
                word = dotted(called, self._scope.aliases) or ast.unparse(called)
                self._refuse(node, f"this call is not on the list; {COMPUTES}", word)
        for argument in node.args:
            if not (isinstance(argument, ast.Name) and self._is_only_read(node.func, argument.id)):
                self._visit(argument)
        for keyword in node.keywords:
            self._visit(keyword.value)

    def _is_only_read(self, called: ast.expr, name: str) -> bool:
        """Return True for `len(SIZES)`, where SIZES is a flat list of the top level."""
        reads = isinstance(called, ast.Name) and called.id in _READING
        return reads and name in self._kept and is_flat(self._scope.assigned[name])

    def _lambda(self, node: ast.Lambda, arguments: set[str]) -> None:
        before, self._locals = self._locals, self._locals | arguments
        self._visit(node.body)
        self._locals = before

    def _device_guard(self, node: ast.With, items: list[ast.withitem]) -> None:
        for item in items:
            call = item.context_expr
            match call:
                # The number of the GPU may choose the GPU, and nothing else.
                case ast.Call(func=func, args=[ast.Attribute(attr="index", value=of)]):
                    call = ast.copy_location(ast.Call(func, [of], []), call)
            guards = (
                isinstance(call, ast.Call)
                and dotted(call.func, self._scope.aliases) == "torch.cuda.device"
            )
            if guards and item.optional_vars is None:
                self._visit(call)
            else:
                reason = "only `with torch.cuda.device(...)` can be saved"
                self._refuse(node, reason, f"with {ast.unparse(item)}")


def _grids(function: ast.FunctionDef, kernels: set[str]) -> set[int]:
    """The lambdas that are grids: in a launch, or bound to a name that only launches use."""
    launched = [
        node.slice
        for node in ast.walk(function)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id in kernels
    ]
    found = {id(grid) for grid in launched}
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as grid):
                uses = [
                    use
                    for use in ast.walk(function)
                    if isinstance(use, ast.Name)
                    and use.id == name
                    and isinstance(use.ctx, ast.Load)
                ]
                if all(id(use) in found for use in uses):
                    found.add(id(grid))
    return found
