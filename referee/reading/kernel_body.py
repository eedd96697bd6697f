"""Checks one kernel's body against the allow-list of syntax, names and attributes.

The checked body is rewritten to canonical names (`tl`, `libdevice`, `math`, `triton`), so that the
clean kernel module needs only those imports. Docstrings, assertions, prints, and annotations that
Triton does not read are dropped. Triton evaluates them while compiling, even if nothing uses their
value. A helper call or a store in them would be part of the user's kernel, but not of the judged
one. So they may compare and compute, and do nothing else.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Container

from referee.reading.constants import Constant, canonical_node, check_literal
from referee.reading.kernel_error import KernelError, constant_error, syntax_error, written_twice
from referee.reading.kernel_parameters import check_annotation
from referee.reading.kernel_vocabulary import (
    ADVICE,
    BUILTINS,
    DEBUGGING,
    EFFECTS,
    IN_MESSAGES,
    INSTEAD_OF,
    OF_MESSAGES,
    REORDERING,
    SYNTAX,
    TL_REFUSED,
    TYPES,
    VALUE_ATTRIBUTES,
    WORDS_OF,
    guard_of,
    lacking_argument,
    lacking_word,
)
from referee.reading.module_scope import Scope
from referee.reading.names import dotted

RESERVED = frozenset({"tl", "triton", "libdevice", "math"})


class BodyChecker(ast.NodeTransformer):
    """Checks and rewrites one function body, and notes its helpers. Raises KernelError."""

    def __init__(
        self,
        function: ast.FunctionDef,
        scope: Scope,
        kernels: Container[str],
        resolve: Callable[[str, ast.AST], Constant],
    ) -> None:
        self._function = function
        self._scope = scope
        self._kernels = kernels
        self._resolve = resolve
        self._locals = {
            argument.arg for argument in [*function.args.args, *function.args.kwonlyargs]
        }
        for node in (part for statement in function.body for part in ast.walk(statement)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self._locals.add(node.id)
        self.helpers: set[str] = set()
        # The helpers that an annotated assignment calls.
        self.twice: set[str] = set()
        self.atomic = False
        self.writes = False
        # True in an expression that the clean kernel leaves out.
        self._dropping = False

    def body(self) -> list[ast.stmt]:
        """The rewritten statements; at least `pass`."""
        for name in self._locals & RESERVED | {
            name for name in self._locals if name.startswith("__")
        }:
            raise KernelError(
                f"kernel `{self._function.name}`: `{name}` may not be used as a variable name"
            )
        checked = map(self.visit, self._function.body)
        return [one for one in checked if isinstance(one, ast.stmt)] or [ast.Pass()]

    def visit(self, node: ast.AST) -> ast.AST | None:
        """Refuse every kind of syntax that is not listed, then check the node itself."""
        if not isinstance(node, SYNTAX + IN_MESSAGES if self._dropping else SYNTAX):
            advice = ADVICE.get(type(node).__name__, "Triton kernels cannot use it")
            raise syntax_error(
                f"kernel `{self._function.name}` uses {type(node).__name__}: {advice}", node
            )
        checked: ast.AST | None = super().visit(node)
        if isinstance(checked, (ast.For, ast.While, ast.If)) and not checked.body:
            checked.body = [ast.Pass()]
        return checked

    def visit_Assert(self, node: ast.Assert) -> None:
        """Drop an assertion whose evaluation does nothing: it acts only under TRITON_DEBUG."""
        self._drop(node.test, *([node.msg] if node.msg is not None else []))

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Drop docstrings and calls that do nothing in a normal build; other calls stay."""
        call = node.value
        if isinstance(call, ast.Constant):
            return None
        if not isinstance(call, ast.Call):
            raise syntax_error("an expression statement without effect", node)
        called = dotted(call.func, self._scope.aliases)
        if called in DEBUGGING:
            self._drop(*call.args, *(keyword.value for keyword in call.keywords))
            return None
        if called == "tl.static_assert":
            # A formatted message is dropped, because the rest of a kernel may hold none. A plain
            # one improves the reason.
            message = call.args[1:] + [one.value for one in call.keywords if one.arg != "cond"]
            if not all(isinstance(text, ast.Constant) for text in message):
                self._drop(*message)
                call.args = call.args[:1]
                call.keywords = [keyword for keyword in call.keywords if keyword.arg == "cond"]
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if len(node.targets) != 1:
            raise syntax_error("Triton does not support `a = b = ...`; assign one at a time", node)
        self._check_target(node.targets[0])
        node.type_comment = None
        return self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self._check_target(node.target)
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """`x: tl.constexpr = ...` stays. With any other annotation, Triton evaluates twice."""
        if node.value is None:
            raise syntax_error("a declaration without a value", node)
        self._check_target(node.target)
        target = self.visit(node.target)
        helpers, writes, self.helpers, self.writes = self.helpers, self.writes, set(), False
        value = self.visit(node.value)
        assert isinstance(target, ast.Name) and isinstance(value, ast.expr)
        constant = dotted(node.annotation, self._scope.aliases) == "tl.constexpr"
        check_annotation(node.annotation, self._scope, self._locals)
        if not constant:
            self.twice |= self.helpers
            if self.writes:
                raise written_twice(self._function.name, node)
        self.helpers, self.writes = self.helpers | helpers, self.writes or writes
        kind = canonical_node("tl.constexpr" if constant else "tl.tensor", node)
        return ast.copy_location(ast.AnnAssign(target, kind, value, 1), node)

    def visit_For(self, node: ast.For) -> ast.AST:
        """`for name in range(...)`, without else."""
        called = node.iter.func if isinstance(node.iter, ast.Call) else node.iter
        is_range = called is not node.iter and (
            (isinstance(called, ast.Name) and called.id == "range")
            or dotted(called, self._scope.aliases) in ("tl.range", "tl.static_range")
        )
        if not is_range:
            raise syntax_error("kernels loop over range, tl.range or tl.static_range only", node)
        if node.orelse or not isinstance(node.target, ast.Name):
            raise syntax_error("a kernel's for loop has one name as target and no else", node)
        node.type_comment = None
        return self.generic_visit(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        if node.orelse:
            raise syntax_error("a kernel's while loop has no else", node)
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if not self._dropping:
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
            raise constant_error(f"`{node.id}` is assigned more than once at module level", node)
        if node.id in self._scope.aliases:
            return self._word(self._scope.aliases[node.id], node)
        if node.id in self._scope.assigned:
            return self._constant(node)
        if node.id in BUILTINS or (
            self._dropping and node.id in OF_MESSAGES - self._scope.functions.keys()
        ):
            return node
        hint = "; use tl.abs" if node.id == "abs" else ""
        function = self._scope.functions.get(node.id)
        where = _helper(function) if function else "not defined there"
        raise KernelError(
            f"kernel `{self._function.name}` uses `{node.id}`, which is {where}{hint}",
            guard="kernel_name",
            node=node,
        )

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """A word of a known module, or an attribute that values have."""
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if (
            isinstance(root, ast.Name)
            and root.id not in self._locals
            and root.id in self._scope.aliases
        ):
            full = dotted(node, self._scope.aliases)
            assert full is not None
            return self._word(full, node)
        if node.attr not in VALUE_ATTRIBUTES:
            refused = TL_REFUSED.get(node.attr)
            why = f"is not allowed: {refused}" if refused else "is not an attribute kernels may use"
            raise self._unknown(f"`.{node.attr}` {why}", node)
        self._note(node.attr, node)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Calls of Triton functions, helpers and value methods, with plain arguments."""
        if any(keyword.arg is None for keyword in node.keywords):
            raise syntax_error("`**` has no place in a kernel call", node)
        if not isinstance(node.func, (ast.Name, ast.Attribute)):
            raise syntax_error("only named functions can be called in a kernel", node)
        if isinstance(node.func, ast.Name) and node.func.id in self._locals:
            remedy = (
                "call the helper by its name, and branch on a tl.constexpr where there are several"
            )
            raise KernelError(f"`{node.func.id}` is a value, not a function: {remedy}", node=node)
        self._check_arguments(node)
        return self.generic_visit(node)

    def _check_arguments(self, call: ast.Call) -> None:
        """Refuse `can_reorder`, and arguments that the installed Triton lacks.

        With `can_reorder`, the compiler chooses the order of the elements, which differs between
        layouts and versions.
        """
        full = dotted(call.func, self._scope.aliases)
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        word = full.removeprefix("tl.") if full else method
        self._refuse_lacking(lacking_argument(word, call, full), call)
        place = REORDERING.get(word, (None, None))[0 if full else 1]
        asked = [keyword.value for keyword in call.keywords if keyword.arg == "can_reorder"]
        asked += call.args[place : place + 1] if place is not None else []
        if any(not (isinstance(value, ast.Constant) and value.value is False) for value in asked):
            reason = f"`{word}` with `can_reorder` may put the elements in another order; leave it out, or store the parts apart"
            raise self._unknown(reason, call)

    def _note(self, word: str, node: ast.AST) -> None:
        if self._dropping and (word in EFFECTS or word.startswith("atomic_")):
            raise _not_silent(f"`{word}` does more than compute a value", node)
        self.atomic = self.atomic or word.startswith("atomic_")
        self.writes = self.writes or word == "store" or word.startswith("atomic_")

    def _drop(self, *expressions: ast.expr) -> None:
        """Refuse an expression that may do more than compute a value."""
        helpers, self.helpers, self._dropping = self.helpers, set(), True
        for expression in expressions:
            self.visit(expression)
            if self.helpers:
                raise _not_silent(f"`{min(self.helpers)}` is a kernel", expression)
        self.helpers, self._dropping = helpers, False

    def _check_target(self, target: ast.expr) -> None:
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        if not all(isinstance(name, ast.Name) for name in names):
            raise syntax_error("kernels assign to names only; write memory with tl.store", target)

    def _constant(self, node: ast.Name) -> ast.AST:
        if self._resolve(node.id, node).kind == "plain":
            reason = f"kernel `{self._function.name}` reads the global `{node.id}`"
            instead = f"write `{node.id} = tl.constexpr(...)` or pass it as a tl.constexpr argument"
            raise constant_error(f"{reason}, which Triton forbids; {instead}", node)
        return node

    def _word(self, full: str, node: ast.expr) -> ast.expr:
        """The canonical node of a module's word, perhaps followed by value attributes."""
        if self._dropping and full in TYPES:
            return node
        parts = full.split(".")
        for length in range(min(len(parts), 3), 1, -1):
            module, word = ".".join(parts[: length - 1]), parts[length - 1]
            if word in WORDS_OF.get(module, ()) and all(
                part in VALUE_ATTRIBUTES for part in parts[length:]
            ):
                self._refuse_lacking(lacking_word(full, word), node)
                self._note(word, node)
                return canonical_node(full, node)
        refused = TL_REFUSED.get(parts[1]) if parts[0] == "tl" and len(parts) > 1 else None
        instead = INSTEAD_OF.get(full)
        advice = refused or (
            f"use {instead}" if instead else "it is not in the vocabulary of kernels"
        )
        raise self._unknown(f"`{full}` is not allowed: {advice}", node, guard_of(full))

    def _refuse_lacking(self, reason: str, node: ast.AST) -> None:
        """Refuse a word that the installed Triton lacks, before Triton's compiler does."""
        if reason:
            raise self._unknown(reason, node)

    def _unknown(self, reason: str, node: ast.AST, guard: str = "kernel_vocabulary") -> KernelError:
        return KernelError(f"kernel `{self._function.name}`: {reason}", guard=guard, node=node)


def _helper(function: ast.FunctionDef) -> str:
    if any(ast.unparse(one).endswith("constexpr_function") for one in function.decorator_list):
        return "a @triton.constexpr_function, which is never run here: give its result to the kernel as a tl.constexpr"
    return "a plain function: decorate it with @triton.jit"


def _not_silent(reason: str, node: ast.AST) -> KernelError:
    advice = "an assertion, message or print of a kernel may only compare and compute; Triton evaluates it, and the judge leaves it out"
    return syntax_error(f"{reason}: {advice}", node)
