"""Expressions of a kernel that the clean kernel module leaves out: assertions, messages, prints, and what a variable's annotation says.

Triton evaluates them while compiling, whether or not anything comes of their value: a helper that is called there, or a store,
would be part of the user's kernel and not of the one that is judged. So they may compare and compute, and do nothing else.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Container

from referee.reading.kernel_error import KernelError
from referee.reading.kernel_vocabulary import BUILTINS, LIBDEVICE, MATH, TL_DTYPES, TL_MATH, TRITON_HELPERS, VALUE_ATTRIBUTES
from referee.reading.module_scope import Scope
from referee.reading.names import dotted

# Words that make a value of values. Those that touch memory, tell the compiler something or take a function are not among them.
_TL = frozenset(
    """
    abs arange argmax argmin broadcast broadcast_to cast cdiv ceil clamp constexpr cos cumprod cumsum div_rn erf exp exp2 expand_dims
    fdiv flip floor fma full log log2 max maximum min minimum num_programs program_id ravel reduce_or reshape rsqrt sigmoid sin softmax
    sqrt sqrt_rn squeeze sum swizzle2d trans umulhi unsqueeze view where xor_sum zeros zeros_like
    """.split()
)
_WORDS = frozenset(
    {
        *(f"tl.{name}" for name in _TL | TL_DTYPES | {"tensor", "dtype", "pointer_type", "block_type"}),
        *(f"tl.math.{name}" for name in TL_MATH),
        *(f"libdevice.{name}" for name in LIBDEVICE),
        *(f"math.{name}" for name in MATH),
        *(f"triton.{name}" for name in TRITON_HELPERS),
    }
)
_EFFECTS = frozenset("advance associative_scan gather histogram reduce store".split())
_METHODS = frozenset(name for name in VALUE_ATTRIBUTES - _EFFECTS if not name.startswith("atomic_"))
_FUNCTIONS = (BUILTINS - {"range"}) | {"abs", "bool", "isinstance", "str", "type"}
_TYPES = frozenset({"bool", "float", "int", "str"})

_SYNTAX = (
    *(ast.Name, ast.Attribute, ast.Constant, ast.Call, ast.keyword, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp),
    *(ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.JoinedStr, ast.FormattedValue),
    *(ast.Load, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)


def check_dropped(expression: ast.expr, scope: Scope, known: Container[str], constant: Callable[[ast.Name], object]) -> None:
    """Raise KernelError unless evaluating the expression does nothing.

    `known` are the variables of the kernel, `constant` refuses a name of the file that a kernel may not read.
    """
    own = scope.functions.keys() | scope.assigned.keys() | scope.aliases.keys() | scope.rebound
    words: set[int] = set()
    for node in ast.walk(expression):
        if not isinstance(node, _SYNTAX):
            raise _refusal(f"{type(node).__name__} has no place there", node)
        full = dotted(node, scope.aliases) if isinstance(node, (ast.Name, ast.Attribute)) and id(node) not in words else None
        if full is not None and _root(node) not in known:
            # `tl.float32.primitive_bitwidth`: what follows a word is an attribute as of any value.
            if not _is_word(full):
                raise _refusal(f"`{full}` may do more than compute a value", node)
            words.update(id(part) for part in ast.walk(node))
        elif isinstance(node, ast.Attribute) and id(node) not in words and node.attr not in _METHODS:
            raise _refusal(f"`.{node.attr}` may do more than compute a value", node)
        elif isinstance(node, ast.Call):
            if not isinstance(node.func, (ast.Name, ast.Attribute)):
                raise _refusal("only named functions can be called in a kernel", node)
            if isinstance(node.func, ast.Name) and not _is_function(node.func.id, scope, own, known):
                raise _refusal(f"`{node.func.id}` may do more than compute a value", node)
        elif isinstance(node, ast.Name) and id(node) not in words and node.id not in known and node.id not in _FUNCTIONS - own:
            constant(node)


def check_annotation(annotation: ast.expr, scope: Scope, known: Container[str]) -> None:
    """Raise KernelError unless a variable's annotation is a type of a module or of Python, perhaps with others in brackets."""
    for node in _parts(annotation):
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str)):
            continue
        root = _root(node)
        plain = root in scope.aliases or (isinstance(node, ast.Name) and root in _TYPES and root not in scope.rebound)
        if root is None or not plain or root in known:
            reason = "Triton evaluates a variable's annotation: only a type's name may stand there"
            raise KernelError(f"annotation `{ast.unparse(annotation)[:60]}`: {reason}", guard="kernel_syntax", node=annotation)


def _parts(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.Subscript):
        return [node.value, *_parts(node.slice)]
    if isinstance(node, (ast.Tuple, ast.List)):
        return [part for element in node.elts for part in _parts(element)]
    return [node]


def _root(node: ast.AST) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _is_function(name: str, scope: Scope, own: Container[str], known: Container[str]) -> bool:
    """True for a word of a module, which is looked at as a name, and for a function of Python's."""
    return name not in known and (name in scope.aliases or (name in _FUNCTIONS and name not in own))


def _is_word(full: str) -> bool:
    parts = full.split(".")
    return any(".".join(parts[:end]) in _WORDS and _METHODS.issuperset(parts[end:]) for end in (2, 3))


def _refusal(reason: str, node: ast.AST) -> KernelError:
    advice = "an assertion, message or print of a kernel may only compare and compute; Triton evaluates it, and the judge leaves it out"
    return KernelError(f"{reason}: {advice}", guard="kernel_syntax", node=node)
