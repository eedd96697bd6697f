"""Finds the object that a reference names in the user's file: a callable, its signature, and a
module's state as tensors.

`FILE.py:NAME` names a function, a class or an instance of `torch.nn.Module`, an
`autograd.Function`, any other callable, or a method of one of these (`Class.method`). A class may
be called with plain values, as in `RMSNorm(4096, eps=1e-6)`.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from referee.reference.unusable import UnusableReference, one_line
from referee.reference.user_torch import eager_form

_HELPERS = frozenset({"get_inputs", "get_init_inputs", "main", "benchmark", "bench"})


@dataclass(frozen=True)
class Chosen:
    """The function, module or method that the reference names.

    `call` takes the tensors of `state` and then the arguments of the signature. `timed` does the
    same for the module's own sizes only, so that torch.compile sees the user's code alone.
    `made_of` is the function or class whose text is shown.
    """

    name: str
    call: Callable[..., Any]
    signature: inspect.Signature
    made_of: Any
    state: Mapping[str, Tensor] = field(default_factory=dict)
    timed: Callable[..., Any] | None = None


def choose(
    module: ModuleType,
    expression: str | None,
    init: Callable[[], list[Any]] | None,
    notes: list[str],
) -> Chosen:
    """The object that `expression` names in the module, else its `Model`, else its only function.

    `init` has a class's arguments. Raises UnusableReference.
    """
    maker = _Maker(init)
    found, name, made_of = _named(module, expression, maker) if expression else _only(module)
    found = eager_form(found, notes)
    if isinstance(found, type):
        made_of = found
        found = maker.make(found, name)
    if isinstance(found, torch.nn.Module):
        return _of_module(found, "forward", name, made_of or type(found), notes, maker)
    owner = getattr(found, "__self__", None)
    if isinstance(owner, torch.nn.Module) and inspect.ismethod(found):
        return _of_module(owner, found.__name__, name, made_of or type(owner), notes, maker)
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        return Chosen(name, found, _signature_of_forward(owner), owner)
    if not callable(found):
        kind = type(found).__name__
        raise UnusableReference(f"{name} is a {kind}, and a reference is something to call")
    return Chosen(name, found, _signature(found, name), made_of or _of_function(found))


def _only(module: ModuleType) -> tuple[Any, str, Any]:
    if hasattr(module, "Model"):
        return module.Model, "Model", None
    own = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith(("_", "test_"))
        and name not in _HELPERS
        and getattr(value, "__module__", None) == module.__name__
    }
    functions = [name for name, value in own.items() if inspect.isfunction(value)]
    classes = [name for name, value in own.items() if isinstance(value, type)]
    found = functions or [name for name in classes if issubclass(own[name], torch.nn.Module)]
    if len(found) != 1:
        more = " and so on" if len(found) > 6 else ""
        listed = f" ({', '.join(found[:6])}{more})" if found else ""
        fault = f"the file defines {len(found)} functions{listed}"
        raise UnusableReference(f"{fault}: name the reference as FILE.py:function")
    return own[found[0]], found[0], None


def _named(module: ModuleType, expression: str, maker: _Maker) -> tuple[Any, str, Any]:
    try:
        node = ast.parse(expression, mode="eval").body
    except SyntaxError:
        raise _no_name(expression) from None
    found, made_of = _evaluated(node, module, expression, maker)
    return found, expression, made_of


def _evaluated(
    node: ast.expr, module: ModuleType, expression: str, maker: _Maker
) -> tuple[Any, Any]:
    match node:
        case ast.Name(id=name):
            if not hasattr(module, name):
                raise UnusableReference(f"the file defines no function {name!r}")
            return getattr(module, name), None
        case ast.Attribute(value=inner, attr=name):
            owner, made_of = _evaluated(inner, module, expression, maker)
            if isinstance(owner, type):
                made_of = owner
                plain = inspect.isfunction(inspect.getattr_static(owner, name, None))
                if plain and not issubclass(owner, torch.autograd.Function):
                    owner = maker.make(owner, expression)
            if not hasattr(owner, name):
                raise UnusableReference(f"{ast.unparse(inner)} has no method {name!r}")
            return getattr(owner, name), made_of
        case ast.Call(func=inner, args=args, keywords=keywords):
            owner, _ = _evaluated(inner, module, expression, maker)
            if isinstance(owner, type):
                values = [_literal(value, expression) for value in args]
                named = {str(one.arg): _literal(one.value, expression) for one in keywords}
                return maker.make(owner, expression, values, named), owner
    raise _no_name(expression)


def _no_name(expression: str) -> UnusableReference:
    forms = "FILE.py:function, Class.method or Class(64).method"
    return UnusableReference(f"{expression!r} is no name; a reference is named as {forms}")


def _literal(node: ast.expr, expression: str) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        fault = f"a class is made with plain values, not with {ast.unparse(node)}"
        raise UnusableReference(f"{expression!r}: {fault}") from None


class _Maker:
    """Makes instances of the user's classes, also with other sizes."""

    def __init__(self, init: Callable[[], list[Any]] | None) -> None:
        self._init = init
        self._made: tuple[type, Sequence[Any], Mapping[str, Any]] | None = None
        self._others: dict[tuple[tuple[int, int], ...], Any] = {}

    def make(
        self,
        cls: type,
        name: str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """An instance, by default with the values of `get_init_inputs`.

        For an `autograd.Function` it is its `apply`.
        """
        if issubclass(cls, torch.autograd.Function):
            return cls.apply
        values = args if args is not None else self._init() if self._init else []
        named = kwargs or {}
        try:
            made = cls(*values, **named)
        except (Exception, SystemExit) as error:
            count, kind = len(values) + len(named), cls.__name__
            how = f"; make it with values, as in {kind}(4096), or define get_init_inputs()"
            fault = f"{kind}({count} arguments) failed: {one_line(error)}{'' if count else how}"
            raise UnusableReference(fault) from error
        self._made = cls, values, named
        return made

    def other(self, sizes: Mapping[int, int]) -> Any:
        key = tuple(sorted(sizes.items()))
        if key not in self._others:
            cls, values, named = self._made or (None, (), {})
            usual = list(values), dict(named)
            changed = tree_map(
                lambda leaf: sizes.get(leaf, leaf) if type(leaf) is int else leaf, usual
            )
            other = cls is not None and changed != usual
            self._others[key] = cls(*changed[0], **changed[1]).eval() if cls and other else None
        return self._others[key]


class _Calling(torch.nn.Module):
    """A module whose `forward` is another module's method."""

    def __init__(self, inner: torch.nn.Module, method: str) -> None:
        super().__init__()
        self.inner, self.method = inner, method

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.inner, self.method)(*args, **kwargs)


def _of_module(
    model: torch.nn.Module, method: str, name: str, made_of: Any, notes: list[str], maker: _Maker
) -> Chosen:
    """Turn parameters and floating buffers into arguments; everything else stays in the module.

    For arguments of other sizes, another module is made, because some modules store sizes as
    numbers.
    """
    model = eager_form(model, notes)
    if any(part.training for part in model.modules()):
        model.eval()
        notes.append(f"{type(model).__name__} is put in eval mode")
    parameters = {key: value.detach() for key, value in model.named_parameters()}
    buffers = {key: value for key, value in model.named_buffers() if value.is_floating_point()}
    state = {**parameters, **buffers}
    fixed = [key for key, _ in model.named_buffers() if key not in state]
    shapes = [tuple(value.shape) for value in state.values()]
    prefix = "" if method == "forward" else "inner."

    def call(*tensors: Any, **kwargs: Any) -> Any:
        given = {prefix + key: tensor for key, tensor in zip(state, tensors, strict=False)}
        args, sizes = tensors[len(state) :], [tuple(tensor.shape) for tensor in given.values()]
        chosen = _of_sizes(maker, shapes, sizes) or model
        every = (value for value in (*tensors, *kwargs.values()) if isinstance(value, Tensor))
        where = next((value.device for value in every), None)
        if fixed and where is not None and chosen.get_buffer(fixed[0]).device != where:
            chosen.to(where)
        of_sizes = chosen if method == "forward" else _Calling(chosen, method)
        with torch.no_grad():
            return torch.func.functional_call(of_sizes, given, args, kwargs)

    called = model if method == "forward" else _Calling(model, method)
    keys, count = [prefix + key for key in state], len(state)

    def timed(*tensors: Any, **kwargs: Any) -> Any:
        given = dict(zip(keys, tensors[:count], strict=True))
        with torch.no_grad():
            return torch.func.functional_call(called, given, tensors[count:], kwargs)

    return Chosen(name, call, _signature(getattr(model, method), name), made_of, state, timed)


def _of_sizes(
    maker: _Maker, own: Sequence[tuple[int, ...]], given: Sequence[tuple[int, ...]]
) -> torch.nn.Module | None:
    if list(own) == list(given):
        return None
    pairs = (zip(before, now, strict=True) for before, now in zip(own, given, strict=True))
    sizes = {size: other for each in pairs for size, other in each if size != other}
    found: torch.nn.Module | None = maker.other(sizes)
    return found


def _signature(function: Any, name: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        how = "wrap it in a function that names them"
        raise UnusableReference(f"{name} does not say which arguments it takes: {how}") from None


def _signature_of_forward(function: type[torch.autograd.Function]) -> inspect.Signature:
    signature = inspect.signature(function.forward)
    own = function.setup_context is not torch.autograd.Function.setup_context
    parameters = list(signature.parameters.values())
    return signature.replace(parameters=parameters if own else parameters[1:])


def _of_function(found: Any) -> Any:
    """The function or class with a source text, behind partials and bound methods."""
    while hasattr(found, "func"):
        found = found.func
    return inspect.unwrap(found) if inspect.isroutine(found) else type(found)
