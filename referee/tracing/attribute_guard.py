"""That what a file calls its own is asked of its own objects only, looked at while the file runs.

The screen lets host code ask any object for the attributes that the file gives to its classes, and a method ask what it calls `self` for
private ones: of what type a value is the text does not say. So where the text asks for such a name, the file is compiled with a call in
between, which refuses objects that are not the file's own: a class that has an `importlib` lends that name to no module. Text that the
file would evaluate is refused, because nothing in it is looked at. Where it makes a text of what is called `dtype` or `shape`, that has to
be one: the file may give its own objects such names, and the text of a function tells whose it is. What its classes inherit from torch or
Python is not theirs, but for what the screen knows. Whatever the name, it is set and deleted on objects of the file and autograd's contexts
only, for `self` may be anything that a method is called with. Of operators `operator_guard.py` sees what they are given. Runs in the trace
worker.
"""

from __future__ import annotations

import ast
import builtins
import secrets
from collections.abc import Callable
from enum import Enum
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import torch
from torch.autograd.function import FunctionCtx

from referee.reading import host_attributes
from referee.reading.host_words import TEXT_OF, TEXTS
from referee.reading.kernels import is_kernel
from referee.reading.module_scope import Scope, read
from referee.reading.source import parse
from referee.tracing.operator_guard import OperatorChecks, augmented, called, messages
from referee.tracing.violation import Violations

_ASKING = ("getattr", "hasattr")
# Of what torch gives to modules, what a kernel's wrapper needs.
_INHERITED = frozenset({"register_buffer", "register_parameter", "parameters"})
_OF_A_MODULE = frozenset(vars(torch.nn.Module()))
# What the screen lets host code ask of other things than tensors: a user's tensors may carry it, those of a trace never do.
_NOT_OF_TENSORS = host_attributes.KNOWN - frozenset(dir(torch.Tensor))
# What runs text in which no name was looked at.
_TEXT = ("eval", "exec", "compile")
_SHOWN = (torch.dtype, torch.device, torch.Size, bool, int, float, str, type(None))


def guarded(source: str, path: str, module: ModuleType, violations: Violations, *, asserts: bool = True) -> CodeType:
    """The compiled file, to be executed in `module`, whose builtins from now on hold the checks that it calls.

    Without `asserts` it is compiled as under `python -OO`, which leaves out docstrings too.
    """
    optimize = 0 if asserts else 2
    words = _Words(*(f"_{secrets.token_hex(8)}" for _ in range(5)))
    tree = parse(source)
    names = host_attributes.own(tree) - host_attributes.KNOWN

    def check(value: Any, name: str) -> Any:
        wanted = name in names or name.startswith("_")
        if _is_own(value, name, module.__name__) if wanted else not _is_inherited(value, name, module.__name__):
            return value
        reason = f"`.{name}` is asked of `{_shown_kind(value)}`"
        raise violations.add("state", f"{reason}; what the file gives to its own classes is asked of these only")

    def settable(value: Any, name: str) -> Any:
        kind = type(value)
        if kind.__module__ == module.__name__ or issubclass(kind, FunctionCtx):
            return check(value, name) if _guards(name) else value
        reason = f"`.{name}` of `{_shown_kind(value)}` is set or deleted, which outlives the call"
        raise violations.add("state", f"{reason}; a method may change the objects of the file's own classes only")

    def no_tensor(value: Any, name: str) -> Any:
        if not issubclass(type(value), torch.Tensor):
            return value
        raise violations.add("state", f"`.{name}` is asked of a tensor, which has it only where somebody put it there; do not ask for it")

    def shown(value: Any) -> Any:
        if _is_plain(value):
            return value
        raise violations.add(
            "state", f"a text is made of a `{type(value).__name__}`; it may be made of dtypes, devices, shapes and numbers"
        )

    def refused(name: str) -> Callable[..., Any]:
        def refuse(*given: Any, **options: Any) -> Any:
            raise violations.add("state", f"`{name}` runs text that is not the file's; write it out")

        return refuse

    checks = dict(zip(words, (check, settable, no_tensor, shown, OperatorChecks(violations, shown)), strict=True))
    module.__dict__["__builtins__"] = {**vars(builtins), **{name: refused(name) for name in _TEXT}, **checks}
    # Read from another tree, because reading moves decorators.
    scope = read(parse(source))
    guards = _Guards(words, scope, messages(tree, scope))
    return compile(ast.fix_missing_locations(guards.visit(tree)), path, "exec", dont_inherit=True, optimize=optimize)


def _is_own(value: Any, name: str, module: str) -> bool:
    """True when the file's own code gave the value this attribute."""
    if isinstance(value, FunctionCtx):
        return name in vars(value) or not name.startswith("_")
    return _kind(value).__module__ == module and not _is_inherited(value, name, module)


def _is_inherited(value: Any, name: str, module: str) -> bool:
    """True when the value is of a class of the file, and has this attribute from a class that is not the file's."""
    kind = _kind(value)
    if kind.__module__ != module or name in _INHERITED:
        return False
    for cls in kind.__mro__:
        if name in vars(cls):
            return bool(cls.__module__ != module)
    # The instance has it itself, where torch may have put it.
    return issubclass(kind, torch.nn.Module) and name in _OF_A_MODULE


def _is_plain(value: Any) -> bool:
    """True for what has the same text in every process."""
    if isinstance(value, Enum):
        return _is_plain(value.value)
    if type(value) in (tuple, list):
        return all(map(_is_plain, value))
    from triton.language import dtype

    return type(value) in (*_SHOWN, dtype)


def _kind(value: Any) -> type:
    if isinstance(value, super):
        of: type = vars(super)["__thisclass__"].__get__(value)
        return of
    return value if isinstance(value, type) else type(value)


def _shown_kind(value: Any) -> str:
    kind: str = value.__name__ if isinstance(value, (type, ModuleType)) else type(value).__name__
    return kind


class _Words(NamedTuple):
    """What the checks are called in the guarded file."""

    own: str
    settable: str
    no_tensor: str
    text: str
    operators: str


class _Guards(ast.NodeTransformer):
    """Puts the check around every value that is asked for a name that not everything has; kernels stay as they are."""

    def __init__(self, words: _Words, scope: Scope, messages: frozenset[int]) -> None:
        self._words = words
        self._scope = scope
        self._messages = messages

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Of a kernel only the decorators are host code."""
        if is_kernel(node, self._scope):
            node.decorator_list = [self.visit(decorator) for decorator in node.decorator_list]
        else:
            self.generic_visit(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        """`value.name` becomes `check(value, "name").name`."""
        if not isinstance(node.ctx, ast.Load):
            node.value = _checked(self._words.settable, self.visit(node.value), node.attr)
        elif self._is_word(node):
            self.generic_visit(node)
        else:
            node.value = self._asked(self.visit(node.value), node.attr)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """The same for `getattr(value, "name")`; `str(value.dtype)` becomes `str(shown(value.dtype))`."""
        of = node.args[0] if len(node.args) == 1 else None
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id=called)) if called in TEXTS and _may_be_shown(of):
                node.args = [self._shown(node.args[0])]
            case ast.Call(func=ast.Name(id=called), args=[value, ast.Constant(value=str(name)), *rest]) if called in _ASKING:
                node.args = [self._asked(value, name), node.args[1], *rest]
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.FormattedValue:
        """The same for `f"{value.dtype}"`."""
        of = node.value
        self.generic_visit(node)
        if _may_be_shown(of):
            node.value = self._shown(node.value)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """`text % value` becomes a call of the check, outside messages."""
        self.generic_visit(node)
        return node if id(node) in self._messages else called(node, self._words.operators)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AugAssign:
        """The same for `text %= value`."""
        self.generic_visit(node)
        augmented(node, self._words.operators)
        return node

    def _is_word(self, node: ast.expr) -> bool:
        """True for `torch.float16`: what may be asked of modules by their names is for the screen to say."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id in self._scope.aliases and node.id not in self._scope.rebound

    def _shown(self, value: ast.expr) -> ast.expr:
        return ast.copy_location(ast.Call(ast.Name(self._words.text, ast.Load()), [value], []), value)

    def _asked(self, value: ast.expr, name: str) -> ast.expr:
        if _guards(name):
            return _checked(self._words.own, value, name)
        return _checked(self._words.no_tensor, value, name) if name in _NOT_OF_TENSORS else value


def _checked(check: str, value: ast.expr, name: str) -> ast.expr:
    return ast.copy_location(ast.Call(ast.Name(check, ast.Load()), [value, ast.Constant(name)], []), value)


def _may_be_shown(value: ast.expr | None) -> bool:
    """True for what the screen takes for a dtype, device, or shape."""
    return isinstance(value, ast.Attribute) and value.attr in TEXT_OF


def _guards(name: str) -> bool:
    return name not in host_attributes.KNOWN and not name.startswith("__")
