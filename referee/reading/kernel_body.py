"""One kernel's body against the allow-list: known syntax, known names, known attributes, nothing else.

The checked body is rewritten to canonical names (`tl`, `libdevice`, `math`, `triton`), so that the clean kernel module
needs only those imports. Docstrings, assertions and prints are dropped, and so is what annotations say to others than Triton, after
a look at whether evaluating them does anything (`dropped.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Container

from referee.reading.constants import Constant, canonical_node, check_literal
from referee.reading.dropped import check_annotation, check_dropped
from referee.reading.kernel_error import KernelError
from referee.reading.kernel_vocabulary import (
    BUILTINS,
    DEBUGGING,
    INSTEAD_OF,
    LIBDEVICE,
    MATH,
    REORDERING,
    TL_DTYPES,
    TL_FUNCTIONS,
    TL_MATH,
    TL_REFUSED,
    TRITON_HELPERS,
    VALUE_ATTRIBUTES,
)
from referee.reading.module_scope import Scope
from referee.reading.names import dotted

RESERVED = frozenset({"tl", "triton", "libdevice", "math"})

_WORDS: dict[str, Container[str]] = {
    "tl": TL_FUNCTIONS | TL_DTYPES,
    "tl.math": TL_MATH,
    "tl.PropagateNan": frozenset({"ALL", "NONE"}),
    "libdevice": LIBDEVICE,
    "math": MATH,
    "triton": TRITON_HELPERS,
}

_SYNTAX = (
    *(ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Assert, ast.For, ast.While, ast.If, ast.Expr, ast.Pass, ast.Return),
    *(ast.Name, ast.Attribute, ast.Constant, ast.Call, ast.keyword, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp),
    *(ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)

_ADVICE = {
    "Break": "Triton has no `break`; use a mask or a loop bound",
    "Continue": "Triton has no `continue`; use a mask or `if`",
    "Lambda": "write a @triton.jit helper function",
    "FunctionDef": "move nested functions to the top level as @triton.jit helpers",
    "ListComp": "write the loop out",
    "JoinedStr": "f-strings have no place in a kernel",
    "Try": "Triton has no exceptions",
    "Raise": "Triton has no exceptions",
    "Import": "imports belong at the top of the file",
    "ImportFrom": "imports belong at the top of the file",
}


def written_twice(kernel: str, node: ast.AST | None) -> KernelError:
    """An assignment that may not be annotated."""
    reason = "Triton evaluates the value of an annotated assignment twice, and this one writes memory; remove the annotation"
    return KernelError(f"kernel `{kernel}`: {reason}", guard="kernel_syntax", node=node)


class BodyChecker(ast.NodeTransformer):
    """Checks and rewrites one function body. Raises KernelError; collects the helpers and atomics it uses."""

    def __init__(
        self, function: ast.FunctionDef, scope: Scope, kernels: Container[str], resolve: Callable[[str, ast.AST], Constant]
    ) -> None:
        self._function = function
        self._scope = scope
        self._kernels = kernels
        self._resolve = resolve
        self._locals = {argument.arg for argument in [*function.args.args, *function.args.kwonlyargs]}
        stored = [node for statement in function.body for node in ast.walk(statement) if isinstance(node, ast.Name)]
        self._locals.update(node.id for node in stored if isinstance(node.ctx, ast.Store))
        self.helpers: set[str] = set()
        # Those that an annotated assignment calls.
        self.twice: set[str] = set()
        self.atomic = False
        self.writes = False

    def body(self) -> list[ast.stmt]:
        """The rewritten statements; at least `pass`."""
        for name in self._locals & RESERVED | {name for name in self._locals if name.startswith("__")}:
            raise KernelError(f"kernel `{self._function.name}`: `{name}` may not be used as a variable name")
        checked = [self.visit(statement) for statement in self._function.body]
        return [statement for statement in checked if isinstance(statement, ast.stmt)] or [ast.Pass()]

    def visit(self, node: ast.AST) -> ast.AST | None:
        """Refuse every kind of syntax that is not listed, then check the node itself."""
        if not isinstance(node, _SYNTAX):
            advice = _ADVICE.get(type(node).__name__, "Triton kernels cannot use it")
            raise KernelError(f"kernel `{self._function.name}` uses {type(node).__name__}: {advice}", guard="kernel_syntax", node=node)
        checked: ast.AST | None = super().visit(node)
        if isinstance(checked, (ast.For, ast.While, ast.If)) and not checked.body:
            checked.body = [ast.Pass()]
        return checked

    def visit_Assert(self, node: ast.Assert) -> None:
        """Goes: without TRITON_DEBUG an assertion of a kernel does nothing, if evaluating it does nothing."""
        self._drop(node.test, *([node.msg] if node.msg is not None else []))

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Docstrings go, and what does nothing in a normal build; other calls stay."""
        if isinstance(node.value, ast.Constant):
            return None
        if isinstance(node.value, ast.Call) and dotted(node.value.func, self._scope.aliases) in DEBUGGING:
            self._drop(*node.value.args, *(keyword.value for keyword in node.value.keywords))
            return None
        if isinstance(node.value, ast.Call) and dotted(node.value.func, self._scope.aliases) == "tl.static_assert":
            # A formatted message, which may stand nowhere else in a kernel, goes; a plain one makes the reason better.
            message = node.value.args[1:] + [keyword.value for keyword in node.value.keywords if keyword.arg != "cond"]
            if not all(isinstance(text, ast.Constant) for text in message):
                self._drop(*message)
                node.value.args = node.value.args[:1]
                node.value.keywords = [keyword for keyword in node.value.keywords if keyword.arg == "cond"]
        if not isinstance(node.value, ast.Call):
            raise KernelError("an expression statement without effect", guard="kernel_syntax", node=node)
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """One target, a name or a tuple of names."""
        if len(node.targets) != 1:
            raise KernelError("Triton does not support `a = b = ...`; assign one at a time", guard="kernel_syntax", node=node)
        self._check_target(node.targets[0])
        node.type_comment = None
        return self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """The target is a name."""
        self._check_target(node.target)
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """`x: tl.constexpr = ...` stays. Of another annotation Triton reads only that it is there: it evaluates the value twice then."""
        if node.value is None:
            raise KernelError("a declaration without a value", guard="kernel_syntax", node=node)
        self._check_target(node.target)
        target = self.visit(node.target)
        before, self.helpers, self.writes = (self.helpers, self.writes), set(), False
        value = self.visit(node.value)
        assert isinstance(target, ast.Name) and isinstance(value, ast.expr)
        constant = dotted(node.annotation, self._scope.aliases) == "tl.constexpr"
        check_annotation(node.annotation, self._scope, self._locals)
        if not constant:
            self.twice |= self.helpers
            if self.writes:
                raise written_twice(self._function.name, node)
        self.helpers, self.writes = self.helpers | before[0], self.writes or before[1]
        return ast.copy_location(ast.AnnAssign(target, canonical_node("tl.constexpr" if constant else "tl.tensor", node), value, 1), node)

    def visit_For(self, node: ast.For) -> ast.AST:
        """`for name in range(...)`, without else."""
        called = dotted(node.iter.func, self._scope.aliases) if isinstance(node.iter, ast.Call) else None
        is_range = isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Name) and node.iter.func.id == "range"
        if called not in ("tl.range", "tl.static_range") and not is_range:
            raise KernelError("kernels loop over range, tl.range or tl.static_range only", guard="kernel_syntax", node=node)
        if node.orelse or not isinstance(node.target, ast.Name):
            raise KernelError("a kernel's for loop has one name as target and no else", guard="kernel_syntax", node=node)
        node.type_comment = None
        return self.generic_visit(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        """No else."""
        if node.orelse:
            raise KernelError("a kernel's while loop has no else", guard="kernel_syntax", node=node)
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Bounded literals."""
        check_literal(node)
        node.kind = None
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A local, a builtin of Triton, a helper kernel, a module constant or an alias."""
        if isinstance(node.ctx, ast.Store) or node.id in self._locals:
            return node
        if node.id in self._kernels:
            self.helpers.add(node.id)
            return node
        if node.id in self._scope.rebound:
            raise KernelError(f"`{node.id}` is assigned more than once at module level", guard="kernel_constant", node=node)
        if node.id in self._scope.aliases:
            return self._word(self._scope.aliases[node.id], node)
        if node.id in self._scope.assigned:
            return self._constant(node)
        if node.id in BUILTINS:
            return node
        hint = "; use tl.abs" if node.id == "abs" else ""
        where = _helper(self._scope.functions[node.id]) if node.id in self._scope.functions else "not defined there"
        raise KernelError(f"kernel `{self._function.name}` uses `{node.id}`, which is {where}{hint}", guard="kernel_name", node=node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """A word of a known module, or an attribute that values have."""
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and root.id not in self._locals and root.id in self._scope.aliases:
            full = dotted(node, self._scope.aliases)
            assert full is not None
            return self._word(full, node)
        if node.attr not in VALUE_ATTRIBUTES:
            if node.attr in TL_REFUSED:
                raise KernelError(f"kernel `{self._function.name}`: `.{node.attr}` is not allowed: {TL_REFUSED[node.attr]}", node=node)
            raise KernelError(f"kernel `{self._function.name}`: `.{node.attr}` is not an attribute kernels may use", node=node)
        self._note(node.attr)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Calls of Triton functions, helpers and value methods, with plain arguments."""
        if any(keyword.arg is None for keyword in node.keywords):
            raise KernelError("`**` has no place in a kernel call", guard="kernel_syntax", node=node)
        if not isinstance(node.func, (ast.Name, ast.Attribute)):
            raise KernelError("only named functions can be called in a kernel", guard="kernel_syntax", node=node)
        if isinstance(node.func, ast.Name) and node.func.id in self._locals:
            remedy = "call the helper by its name, and branch on a tl.constexpr where there are several"
            raise KernelError(f"`{node.func.id}` is a value, not a function: {remedy}", node=node)
        self._check_order(node)
        return self.generic_visit(node)

    def _check_order(self, call: ast.Call) -> None:
        """Which order elements have then, is for the compiler to choose, and differs between layouts and versions."""
        full = dotted(call.func, self._scope.aliases)
        word = (full or "").removeprefix("tl.") if full else call.func.attr if isinstance(call.func, ast.Attribute) else ""
        place = REORDERING.get(word, (None, None))[0 if full else 1]
        asked = [keyword.value for keyword in call.keywords if keyword.arg == "can_reorder"]
        asked += call.args[place : place + 1] if place is not None else []
        if any(not (isinstance(value, ast.Constant) and value.value is False) for value in asked):
            reason = f"`{word}` with `can_reorder` may put the elements in another order; leave it out, or store the parts apart"
            raise KernelError(f"kernel `{self._function.name}`: {reason}", guard="kernel_vocabulary", node=call)

    def _note(self, word: str) -> None:
        self.atomic = self.atomic or word.startswith("atomic_")
        self.writes = self.writes or word == "store" or word.startswith("atomic_")

    def _drop(self, *expressions: ast.expr) -> None:
        for expression in expressions:
            check_dropped(expression, self._scope, self._locals, self.visit_Name)

    def _check_target(self, target: ast.expr) -> None:
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        if not all(isinstance(name, ast.Name) for name in names):
            raise KernelError("kernels assign to names only; write memory with tl.store", guard="kernel_syntax", node=target)

    def _constant(self, node: ast.Name) -> ast.AST:
        constant = self._resolve(node.id, node)
        if constant.kind == "plain":
            raise KernelError(
                f"kernel `{self._function.name}` reads the global `{node.id}`, which Triton forbids; write `{node.id} = tl.constexpr(...)`"
                " or pass it as a tl.constexpr argument",
                guard="kernel_constant",
                node=node,
            )
        return node

    def _word(self, full: str, node: ast.expr) -> ast.expr:
        """The canonical node of a word of a known module, followed by value attributes (`tl.float32.primitive_bitwidth`)."""
        parts = full.split(".")
        for length in range(min(len(parts), 3), 1, -1):
            module, word = ".".join(parts[: length - 1]), parts[length - 1]
            if word in _WORDS.get(module, ()) and all(part in VALUE_ATTRIBUTES for part in parts[length:]):
                self._note(word)
                return canonical_node(full, node)
        refused = TL_REFUSED.get(parts[1]) if parts[0] == "tl" and len(parts) > 1 else None
        instead = INSTEAD_OF.get(full)
        advice = refused or (f"use {instead}" if instead else "it is not in the vocabulary of kernels")
        guard = "launch_feature" if refused and "descriptor" in refused else "kernel_vocabulary"
        raise KernelError(f"kernel `{self._function.name}`: `{full}` is not allowed: {advice}", guard=guard, node=node)


def _helper(function: ast.FunctionDef) -> str:
    """What a function is that is no kernel, and what to do instead."""
    if any(ast.unparse(one).endswith("constexpr_function") for one in function.decorator_list):
        return "a @triton.constexpr_function, which nobody may evaluate here: give its result to the kernel as a tl.constexpr"
    return "a plain function: decorate it with @triton.jit"
