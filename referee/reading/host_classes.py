"""The classes of a file: what may stand in them, and names with a meaning of their own in Python, such as `__eq__`.

Most such names make Python call, or leave out, what nobody wrote: a log calls `__str__` only where it is switched on, torch hands a
`__torch_function__` its own arguments, and what `__dict__` or `__module__` say of an object is what a check of it would look at.
"""

from __future__ import annotations

import ast

from referee.reading.host_refused import HostRefused
from referee.reading.module_scope import Scope
from referee.reading.names import dotted

# What may be in a class where the last two are called is looked at in `host_module.py`.
_HARMLESS = frozenset(
    """
    __annotations__ __call__ __doc__ __enter__ __exit__ __init__ __match_args__ __post_init__ __slots__ __init_subclass__ __set_name__
    """.split()
)

# Python hands these what stands beside an object, as in `"text" + a` or `type(x) == a`, and it need not be spelled as an argument.
_GIVEN = frozenset(
    """
    __add__ __contains__ __eq__ __format__ __ge__ __gt__ __le__ __lt__ __mod__ __ne__ __radd__ __rmod__ __subclasshook__
    """.split()
)
NOT_ASSIGNED = _GIVEN | {"__del__", "__exit__", "_ignore_"}


def special_name(statement: ast.ClassDef) -> tuple[str, ast.AST] | None:
    """The first such name that a class binds and may not, wherever in it, and where; None for an ordinary class."""
    for node in ast.walk(statement):
        bound = node.name if isinstance(node, ast.FunctionDef) else node.id if isinstance(node, ast.Name) else ""
        stores = isinstance(node, ast.FunctionDef) or isinstance(getattr(node, "ctx", None), ast.Store)
        if stores and bound.startswith("__") and bound.endswith("__") and bound not in _HARMLESS:
            return bound, node
    return None


def check_method(method: ast.FunctionDef) -> None:
    """Raise HostRefused for a method that Python calls when nobody asked, or that hides what went wrong."""
    if method.name == "__del__":
        raise HostRefused("state", "`__del__` runs whenever Python likes; remove it", method)
    if method.name in ("__repr__", "__str__"):
        raise HostRefused("statement", f"`{method.name}` has a meaning of its own in a class, which no launch needs; remove it", method)
    if method.name in _GIVEN:
        raise HostRefused("statement", f"`{method.name}` is given what nobody handed over; give the method a name of its own", method)
    if len(method.decorator_list) > 1 and any(isinstance(node, ast.Name) and node.id == "classmethod" for node in method.decorator_list):
        # What it makes of a property, here or in a decorator of the file, differs between versions of Python.
        if not all(ast.unparse(node) in ("classmethod", "abstractmethod", "abc.abstractmethod") for node in method.decorator_list):
            reason = "with another decorator it is something else in another version of Python; take one of them off"
            raise HostRefused("statement", f"`{method.name}` is a @classmethod: {reason}", method)
    if method.name == "__exit__":
        returned = (node.value for node in ast.walk(method) if isinstance(node, ast.Return))
        hides = any(not (value is None or (isinstance(value, ast.Constant) and value.value in (None, False))) for value in returned)
        if hides or method.decorator_list:
            raise HostRefused("try_except", "`__exit__` could hide a failing kernel; let it return nothing", method)


def is_member(part: ast.stmt, scope: Scope) -> bool:
    """True for `ONE_PASS = "one"` in an enumeration: not for what is none there, such as a property."""
    match part:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(target=ast.Name(id=name), value=value):
            plain = isinstance(value, (ast.Constant, ast.Tuple, ast.UnaryOp))
            called = value.func if isinstance(value, ast.Call) else None
            auto = called is not None and dotted(called, scope.aliases) == "enum.auto"
            dtype = isinstance(value, ast.Attribute) and value.attr.startswith(("bfloat", "bool", "float", "int", "uint"))
            return not name.startswith("_") and (plain or auto or dtype)
    return False


def is_plain_data(statement: ast.ClassDef, scope: Scope) -> bool:
    """True for a data class of which Python runs nothing of the file's until it is made: no bases, descriptors or objects."""
    above = [node.func if isinstance(node, ast.Call) else node for node in statement.decorator_list]
    if statement.bases or not any(dotted(node, scope.aliases) == "dataclasses.dataclass" for node in above):
        return False
    for part in statement.body:
        values: list[ast.expr] = []
        if isinstance(part, ast.FunctionDef):
            if len(part.decorator_list) > 1:
                return False
        elif isinstance(part, (ast.Assign, ast.AnnAssign)) and part.value is not None:
            values = [part.value]
            if isinstance(part.value, ast.Call) and dotted(part.value.func, scope.aliases) == "dataclasses.field":
                # What makes a default is not called before an object is made.
                values = [keyword.value for keyword in part.value.keywords if keyword.arg != "default_factory"]
        if not all(_is_inert(value, scope) for value in values):
            return False
    return True


def _is_inert(value: ast.expr, scope: Scope) -> bool:
    """True for a constant, or a word such as `torch.float16`."""
    inert = (ast.Constant, ast.Tuple, ast.UnaryOp, ast.unaryop, ast.Attribute, ast.expr_context)
    nodes = list(ast.walk(value))
    return all(isinstance(node, inert) or (isinstance(node, ast.Name) and node.id in scope.aliases) for node in nodes)
