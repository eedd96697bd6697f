"""The clean kernel module: the judge's own cut of the kernels out of a candidate's source.

Only top-level `@triton.jit` functions and the literal constants they use survive, after every node,
name and attribute has been checked against an allow-list (`kernel_body.py`). Compiling or
interpreting this text runs no other statement of the candidate. The candidate's own process has no
influence on it.
"""

from __future__ import annotations

import ast
import contextlib
import re
from dataclasses import dataclass

from referee.reading.constants import Constant, canonical_node, read_constant
from referee.reading.kernel_body import RESERVED, BodyChecker
from referee.reading.kernel_error import KernelError, constant_error, syntax_error, written_twice
from referee.reading.kernel_parameters import (
    is_constexpr,
    is_simple_literal,
    means_nothing,
    reaches,
)
from referee.reading.kernel_vocabulary import BUILTINS, TL_DTYPES
from referee.reading.module_scope import Scope, read
from referee.reading.names import ImportRefused, dotted, imported, is_known_word
from referee.reading.source import SourceError, parse

__all__ = ["KernelError", "KernelModule", "KernelSignature", "Parameter", "extract", "is_kernel"]

MAX_KERNELS = 32
MAX_PARAMETERS = 64
HEADER = "import math\nimport triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n"

_STRIPPED = frozenset({"triton.autotune", "triton.heuristics"})
_KERNEL_CLASSES = frozenset(
    {
        "triton.JITFunction",
        "triton.runtime.JITFunction",
        "triton.runtime.jit.JITFunction",
        "triton.runtime.jit.jit",
    }
)
_OF_TRITON = frozenset({"tl.constexpr", "tl.const", *(f"tl.{name}" for name in TL_DTYPES)})
_JIT_OPTIONS = frozenset({"do_not_specialize", "do_not_specialize_on_alignment", "noinline"})
# Triton calls this function only when a profiler asks.
_FOR_PROFILERS = frozenset({"launch_metadata"})
_CONSTEXPR = ("tl.constexpr", "constexpr", "triton.language.constexpr")
_TYPED_ANNOTATIONS = frozenset({"int", "float", "bool"})
# Triton reads types from texts ("*fp32", "i32"); others, such as "torch.Tensor", mean nothing to
# it. No constants in disguise.
_PLAIN_TYPE = re.compile(r"(?!.*const)[\w.*]{1,40}")


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter. A constexpr is known at compile time."""

    name: str
    constexpr: bool
    has_default: bool


@dataclass(frozen=True)
class KernelSignature:
    """A kernel's name and parameters. `atomic`: it, or a helper that it calls, uses atomics."""

    name: str
    parameters: tuple[Parameter, ...]
    atomic: bool


@dataclass(frozen=True)
class KernelModule:
    """The clean module's text and the kernels in it."""

    text: str
    kernels: tuple[str, ...]
    signatures: tuple[KernelSignature, ...]

    def signature(self, name: str) -> KernelSignature | None:
        """The signature of the kernel `name`, or None."""
        return next((signature for signature in self.signatures if signature.name == name), None)


def extract(source: str) -> KernelModule:
    """Cut the kernels out of `source`. Raises KernelError with one line of advice."""
    try:
        tree = parse(source)
        scope = read(tree)
    except SourceError as error:
        raise KernelError(str(error), guard="parse") from None
    except ImportRefused as error:
        raise KernelError(str(error), guard="imports") from None
    return _Extraction(tree, scope).module()


def is_kernel(function: ast.FunctionDef, scope: Scope) -> bool:
    """True when one of the function's decorators is `triton.jit`."""
    return any(_decorator(node, scope) == "triton.jit" for node in function.decorator_list)


def _decorator(node: ast.expr, scope: Scope) -> str | None:
    return dotted(node.func if isinstance(node, ast.Call) else node, scope.aliases)


def _with_inner_imports(tree: ast.Module, scope: Scope) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            with contextlib.suppress(ImportRefused):
                found |= imported(node)
    return found | scope.aliases


class _Extraction:
    def __init__(self, tree: ast.Module, scope: Scope) -> None:
        self._scope = scope
        named = scope.functions.items()
        self._kernels = {name: function for name, function in named if is_kernel(function, scope)}
        self._constants: dict[str, Constant] = {}
        self._resolving: set[str] = set()
        self._check_places(tree)

    def _check_places(self, tree: ast.Module) -> None:
        for name in sorted(self._scope.rebound & self._scope.aliases.keys()):
            if not is_known_word(self._scope.aliases[name]):
                # `function = None` where a package is missing: neither kernels nor `run` may use
                # it.
                continue
            raise constant_error(f"`{name}` is assigned more than once at module level")
        top = {id(function) for function in self._kernels.values()}
        for node in ast.walk(tree):
            inner = isinstance(node, ast.FunctionDef) and id(node) not in top
            if isinstance(node, ast.FunctionDef) and inner and is_kernel(node, self._scope):
                where = "must be defined at the top level of the file"
                reason = "is defined twice" if node.name in self._kernels else where
                raise syntax_error(f"kernel `{node.name}` {reason}", node)
        self._check_makers(tree)
        if not self._kernels:
            reason = "there is no @triton.jit function; write the computation as a Triton kernel"
            raise KernelError(reason, guard="no_kernel")
        if len(self._kernels) > MAX_KERNELS:
            raise syntax_error(f"more than {MAX_KERNELS} kernels")

    def _check_makers(self, tree: ast.Module) -> None:
        """Check that kernels are made at the top level only, where the judge can find them."""
        decorators = [
            node for function in self._kernels.values() for node in function.decorator_list
        ]
        known = {id(node.func if isinstance(node, ast.Call) else node) for node in decorators}
        # `jit = triton.jit` is permitted, because its uses are checked.
        known |= {id(value) for value in self._scope.assigned.values()}
        bound = _with_inner_imports(tree, self._scope)
        for node in ast.walk(tree):
            called = node.func if isinstance(node, ast.Call) else node
            if isinstance(called, (ast.Name, ast.Attribute)) and id(called) not in known:
                full = dotted(called, bound)
                # A class may be named in a check of a type.
                if full == "triton.jit" or (called is not node and full in _KERNEL_CLASSES):
                    reason = "a kernel must be made by @triton.jit above a function at the top level of the file"
                    raise syntax_error(f"`{ast.unparse(called)[:60]}`: {reason}", node)
            elif isinstance(node, (ast.FunctionDef, ast.Lambda)):
                others = (inner for inner in ast.walk(node) if inner is not node)
                for inner in others:
                    if isinstance(inner, ast.FunctionDef) and inner.name in self._kernels:
                        reason = "is also the name of a kernel; rename the inner function"
                        raise syntax_error(f"`{inner.name}` {reason}", inner)

    def module(self) -> KernelModule:
        functions: list[str] = []
        parameters: dict[str, tuple[Parameter, ...]] = {}
        calls: dict[str, set[str]] = {}
        twice: dict[str, set[str]] = {}
        atomic: set[str] = set()
        writes: set[str] = set()
        for name, function in self._kernels.items():
            if name in self._scope.rebound or name in RESERVED | BUILTINS or name.startswith("__"):
                raise syntax_error(
                    f"kernel `{name}`: the name is bound more than once or reserved", function
                )
            checker = BodyChecker(function, self._scope, self._kernels, self._resolve)
            decorator, function.args = self._jit(function), self._arguments(function)
            function.body, function.decorator_list = checker.body(), [decorator]
            function.returns = function.type_comment = None
            functions.append(ast.unparse(ast.fix_missing_locations(function)))
            parameters[name] = _parameters(function.args)
            calls[name], twice[name] = checker.helpers, checker.twice
            if checker.atomic:
                atomic.add(name)
            if checker.writes:
                writes.add(name)
        for name, helpers in twice.items():
            if any(reaches(helper, calls, writes) for helper in helpers):
                raise written_twice(name, self._kernels[name])
        signatures = tuple(
            KernelSignature(name, parameters[name], reaches(name, calls, atomic))
            for name in self._kernels
        )
        lines = [
            f"{name} = {ast.unparse(constant.value)}" for name, constant in self._constants.items()
        ]
        text = "\n".join([HEADER, *lines, "", *(f"\n{function}\n" for function in functions)])
        return KernelModule(text, tuple(self._kernels), signatures)

    def _resolve(self, name: str, at: ast.AST) -> Constant:
        """The constant `name`, and before it in the text every constant it mentions."""
        if name in self._constants:
            return self._constants[name]
        if name in self._scope.rebound or name in self._resolving:
            raise constant_error(f"`{name}` is assigned more than once at module level", at)
        expression = self._scope.assigned.get(name)
        if expression is None:
            raise KernelError(
                f"`{name}` is not a constant of the file", guard="kernel_name", node=at
            )
        if name in RESERVED or name.startswith("__"):
            raise constant_error(f"`{name}` may not be used as a constant's name", at)
        self._resolving.add(name)
        constant = read_constant(expression, self._scope, self._resolve)
        self._resolving.discard(name)
        self._constants[name] = constant
        return constant

    def _jit(self, function: ast.FunctionDef) -> ast.expr:
        """The decorator to write: triton.jit with its harmless options alone."""
        *above, last = function.decorator_list
        if _decorator(last, self._scope) != "triton.jit":
            raise syntax_error("@triton.jit must be the decorator next to the function", function)
        for node in above:
            if _decorator(node, self._scope) not in _STRIPPED:
                raise syntax_error(f"decorator `{ast.unparse(node)[:60]}` is not supported", node)
        jit = canonical_node("triton.jit", function)
        if not isinstance(last, ast.Call) or not (last.args or last.keywords):
            return jit
        keywords = [keyword for keyword in last.keywords if keyword.arg not in _FOR_PROFILERS]
        for keyword in keywords:
            if keyword.arg not in _JIT_OPTIONS or not is_simple_literal(keyword.value):
                reason = f"triton.jit option `{keyword.arg}` is not supported"
                raise KernelError(reason, guard="launch_feature", node=last)
        if last.args:
            raise syntax_error("triton.jit takes keyword options only", last)
        return ast.Call(jit, [], keywords) if keywords else jit

    def _arguments(self, function: ast.FunctionDef) -> ast.arguments:
        given = function.args
        starred = given.vararg or given.kwarg or given.posonlyargs or given.kwonlyargs
        if starred or getattr(function, "type_params", []):
            raise syntax_error(
                f"kernel `{function.name}` takes plain parameters only (no *, / or **)", function
            )
        if len(given.args) > MAX_PARAMETERS:
            raise syntax_error(
                f"kernel `{function.name}` has more than {MAX_PARAMETERS} parameters", function
            )
        arguments = [ast.arg(argument.arg, self._annotation(argument)) for argument in given.args]
        read = (read_constant(one, self._scope, self._resolve) for one in given.defaults)
        return ast.arguments([], arguments, None, [], [], None, [one.value for one in read])

    def _annotation(self, argument: ast.arg) -> ast.expr | None:
        node = argument.annotation
        if node is None:
            return None
        text = node.value if isinstance(node, ast.Constant) else None
        if text in _CONSTEXPR:
            return canonical_node("tl.constexpr", node)
        if isinstance(text, str) and _PLAIN_TYPE.fullmatch(text):
            return ast.Constant(text)
        full = dotted(node, self._scope.aliases)
        if full is None and isinstance(node, ast.Name) and node.id in _TYPED_ANNOTATIONS:
            return ast.Name(node.id, ast.Load())
        if full is not None and full in _OF_TRITON:
            return canonical_node(full, node)
        if means_nothing(node):
            return None
        reason = f"annotation of `{argument.arg}`: only tl.constexpr and Triton dtypes mean something here"
        raise syntax_error(reason, node)


def _parameters(arguments: ast.arguments) -> tuple[Parameter, ...]:
    required = len(arguments.args) - len(arguments.defaults)
    return tuple(
        Parameter(argument.arg, is_constexpr(argument.annotation), position >= required)
        for position, argument in enumerate(arguments.args)
    )
