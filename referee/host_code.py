"""Host code under the screen's eye: what stands at the top level and in functions that are not kernels.

For early feedback only. What slips past is met again by the tracer, which sees what the code does, and by the judge, who
executes nothing but the plan.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from referee.host_vocabulary import (
    BUILTINS,
    CONTEXTS,
    DECORATORS,
    MUTATORS,
    REFUSED_NAMES,
    TENSOR_COMPUTE,
    TORCH,
    TORCH_REFUSED,
    TRITON,
    TRITON_QUERIES,
    VALUE_READERS,
)
from referee.kernel_vocabulary import TL_DTYPES
from referee.kernels import is_kernel
from referee.module_scope import Scope
from referee.names import dotted

IN_TRITON = "the answer must be computed in Triton"

_REFUSED_SYNTAX: dict[type[ast.AST], tuple[str, str]] = {
    ast.Try: ("try_except", "try/except hides a failing kernel behind another path; remove it"),
    ast.ClassDef: ("statement", "classes are not needed; write `run` and its helpers as functions"),
    ast.Global: ("state", "`global` keeps state between calls; use local variables"),
    ast.Nonlocal: ("state", "`nonlocal` keeps state between calls; use local variables"),
    ast.AsyncFunctionDef: ("statement", "asynchronous code is not supported"),
    ast.Await: ("statement", "asynchronous code is not supported"),
    ast.AsyncFor: ("statement", "asynchronous code is not supported"),
    ast.AsyncWith: ("statement", "asynchronous code is not supported"),
    ast.Yield: ("statement", "generators are not supported; return the output"),
    ast.YieldFrom: ("statement", "generators are not supported; return the output"),
    ast.Import: ("imports", "imports belong at the top of the file"),
    ast.ImportFrom: ("imports", "imports belong at the top of the file"),
    ast.Match: ("statement", "use if instead of match"),
}
if hasattr(ast, "TryStar"):
    _REFUSED_SYNTAX[ast.TryStar] = _REFUSED_SYNTAX[ast.Try]


class HostRefused(ValueError):
    """Host code that would fail later: the guard, and one line of advice."""

    def __init__(self, guard: str, reason: str, node: ast.AST) -> None:
        line = getattr(node, "lineno", None)
        super().__init__(f"line {line}: {reason}" if line else reason)
        self.guard = guard


def check_host(tree: ast.Module, scope: Scope) -> None:
    """Raise HostRefused for the first thing in the module's host code that cannot pass."""
    for statement in tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)) or _is_main_guard(statement) or _is_docstring(statement):
            continue
        if isinstance(statement, ast.FunctionDef):
            _check_function(statement, scope)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            if not _is_alias(statement, scope):
                _Checker(scope, frozenset(_stored(statement))).check(statement)
        else:
            guard, reason = _REFUSED_SYNTAX.get(type(statement), ("module_level", ""))
            raise HostRefused(guard, reason or "only imports, constants and functions may stand at the top level", statement)


def _is_main_guard(statement: ast.stmt) -> bool:
    # Never true in a judgement: the file is imported under another name.
    return isinstance(statement, ast.If) and any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test))


def _is_alias(statement: ast.Assign | ast.AnnAssign, scope: Scope) -> bool:
    # `exp = tl.exp` is for kernels; whether they may use it is checked there, and here wherever the name is used.
    return statement.value is not None and dotted(statement.value, scope.aliases) is not None


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))


def _check_function(function: ast.FunctionDef, scope: Scope) -> None:
    if is_kernel(function, scope):
        for node in function.decorator_list:
            _Checker(scope, frozenset(_stored(node))).check(node)
        return
    for node in function.decorator_list:
        if dotted(node.func if isinstance(node, ast.Call) else node, scope.aliases) not in DECORATORS:
            raise HostRefused("state", f"decorator `{ast.unparse(node)[:60]}` is not supported on host functions", node)
    for default in [*function.args.defaults, *(default for default in function.args.kw_defaults if default is not None)]:
        if isinstance(default, (ast.List, ast.Dict, ast.Set, ast.Call)):
            raise HostRefused("state", "a mutable default argument keeps state between calls", default)
    names = {argument.arg for node in ast.walk(function) if isinstance(node, ast.arguments) for argument in _arguments(node)}
    names.update(name for statement in function.body for name in _stored(statement))
    checker = _Checker(scope, frozenset(names))
    for statement in function.body:
        checker.check(statement)


def _arguments(node: ast.arguments) -> Iterator[ast.arg]:
    yield from (*node.posonlyargs, *node.args, *node.kwonlyargs)
    yield from (argument for argument in (node.vararg, node.kwarg) if argument is not None)


def _stored(root: ast.AST) -> Iterator[str]:
    for node in ast.walk(root):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg


class _Checker:
    """Walks one statement or decorator. Annotations are not checked: they are never used."""

    def __init__(self, scope: Scope, local_names: frozenset[str]) -> None:
        self._scope = scope
        self._locals = local_names

    def check(self, root: ast.AST) -> None:
        pending = [root]
        while pending:
            node = pending.pop()
            if type(node) in _REFUSED_SYNTAX:
                guard, reason = _REFUSED_SYNTAX[type(node)]
                raise HostRefused(guard, reason, node)
            pending.extend(reversed(list(self._below(node))))

    def _below(self, node: ast.AST) -> Iterator[ast.AST]:
        """Check one node; yield the nodes below it that are still to be checked."""
        if isinstance(node, ast.Attribute):
            yield from self._attribute(node)
            return
        if isinstance(node, ast.Name):
            self._name(node)
        elif isinstance(node, ast.Lambda):
            if len(node.args.args) > 1 or node.args.defaults or node.args.vararg or node.args.kwonlyargs or node.args.kwarg:
                raise HostRefused("statement", "only lambdas of one argument, such as `lambda META: (...)`, are supported", node)
        elif isinstance(node, ast.With):
            for item in node.items:
                called = item.context_expr.func if isinstance(item.context_expr, ast.Call) else item.context_expr
                if dotted(called, self._scope.aliases) not in CONTEXTS:
                    raise HostRefused("vocabulary", f"`with {ast.unparse(item.context_expr)[:60]}` is not supported", node)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
            self._no_global(node.value, node)
        elif isinstance(node, ast.AnnAssign):
            yield from (child for child in (node.target, node.value) if child is not None)
            return
        elif isinstance(node, ast.arg):
            return
        elif isinstance(node, ast.FunctionDef):
            yield from (*node.decorator_list, *node.args.defaults, *node.body)
            return
        yield from ast.iter_child_nodes(node)

    def _name(self, node: ast.Name) -> None:
        name = node.id
        if not isinstance(node.ctx, ast.Load) or name in self._locals:
            return
        if name in REFUSED_NAMES:
            raise HostRefused("vocabulary", f"`{name}` is not allowed: {REFUSED_NAMES[name]}", node)
        if name in self._scope.aliases:
            self._word(self._scope.aliases[name], node)
        elif name not in self._scope.assigned and name not in self._scope.functions and name not in BUILTINS:
            raise HostRefused("vocabulary", f"`{name}` is neither defined in the file nor allowed in host code", node)

    def _attribute(self, node: ast.Attribute) -> Iterator[ast.AST]:
        if node.attr.startswith("_"):
            raise HostRefused("vocabulary", f"`.{node.attr}` is private; use public attributes of tensors", node)
        if not isinstance(node.ctx, ast.Load):
            raise HostRefused("state", f"setting `.{node.attr}` keeps state between calls", node)
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and root.id not in self._locals:
            full = dotted(node, self._scope.aliases)
            if full is not None:
                self._word(full, node)
                return
            if root.id in self._scope.functions:
                raise HostRefused("state", f"attributes of the function `{root.id}` keep state between calls", node)
            if node.attr in MUTATORS:
                self._no_global(root, node)
        if node.attr in VALUE_READERS:
            raise HostRefused("needs_value", f"`.{node.attr}` reads a tensor's values; launches may depend on shapes and dtypes only", node)
        if node.attr in TENSOR_COMPUTE:
            raise HostRefused("torch_compute", f"`.{node.attr}`: {IN_TRITON}", node)
        yield node.value

    def _no_global(self, container: ast.expr, node: ast.AST) -> None:
        while isinstance(container, (ast.Subscript, ast.Attribute)):
            container = container.value
        if isinstance(container, ast.Name) and container.id not in self._locals:
            raise HostRefused("state", f"`{container.id}` is changed by a call; keep nothing between calls", node)

    def _word(self, full: str, node: ast.expr) -> None:
        module, _, rest = full.partition(".")
        if any(part.startswith("_") for part in rest.split(".")):
            raise HostRefused("vocabulary", f"`{full}` is private", node)
        if module == "torch":
            self._torch_word(full, rest, node)
        elif module == "triton" and rest and rest not in TRITON and not full.startswith(TRITON_QUERIES):
            raise HostRefused("vocabulary", f"`{full}` is not supported in host code", node)
        elif module == "tl" and rest and rest.partition(".")[0] not in TL_DTYPES and rest != "constexpr":
            raise HostRefused("vocabulary", f"`{full}` belongs in kernels", node)
        elif module == "libdevice" and not isinstance(node, ast.Name):
            raise HostRefused("vocabulary", f"`{full}` belongs in kernels", node)

    def _torch_word(self, full: str, rest: str, node: ast.expr) -> None:
        parts = rest.split(".")
        # `torch.float16.itemsize`: whatever follows a dtype or class is checked as on any value.
        if not rest or rest in TORCH or ".".join(parts[:2]) in TORCH or (parts[0] in TORCH and parts[0] != "cuda"):
            return
        if parts[0] in TORCH_REFUSED:
            if parts[0] == "cuda":
                raise HostRefused("launch_feature", f"`{full}` is not supported: a plan's launches run on one stream, in order", node)
            raise HostRefused("vocabulary", f"`{full}` is not supported in host code", node)
        if parts[0] in ("tensor", "as_tensor", "from_numpy"):
            raise HostRefused("torch_compute", f"`{full}` builds data on the host; use torch.full or pass the number to the kernel", node)
        raise HostRefused("torch_compute", f"`{full}`: {IN_TRITON}", node)
