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
        raise UnusableReference(
            f"{name} is a {type(found).__name__}, and a reference is something to call"
        )
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
    modules = [
        name
        for name, value in own.items()
        if isinstance(value, type) and issubclass(value, torch.nn.Module)
    ]
    found = functions or modules
    if len(found) != 1:
        listed = (
            f" ({', '.join(found[:6])}{' and so on' if len(found) > 6 else ''})" if found else ""
        )
        raise UnusableReference(
            f"the file defines {len(found)} functions{listed}: name the reference as FILE.py:function"
        )
    return own[found[0]], found[0], None


def _named(module: ModuleType, expression: str, maker: _Maker) -> tuple[Any, str, Any]:
    try:
        node = ast.parse(expression, mode="eval").body
    except SyntaxError:
        raise UnusableReference(
            f"{expression!r} is no name; a reference is named as FILE.py:function or FILE.py:Class.method"
        ) from None
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
                if not issubclass(owner, torch.autograd.Function) and inspect.isfunction(
                    inspect.getattr_static(owner, name, None)
                ):
                    owner = maker.make(owner, expression)
            if not hasattr(owner, name):
                raise UnusableReference(f"{ast.unparse(inner)} has no method {name!r}")
            return getattr(owner, name), made_of
        case ast.Call(func=inner, args=args, keywords=keywords):
            owner, _ = _evaluated(inner, module, expression, maker)
            if isinstance(owner, type):
                values = [_literal(value, expression) for value in args]
                named = {
                    str(keyword.arg): _literal(keyword.value, expression) for keyword in keywords
                }
                return maker.make(owner, expression, values, named), owner
    raise UnusableReference(
        f"{expression!r} is no name; a reference is named as FILE.py:function, Class.method or Class(64).method"
    )


def _literal(node: ast.expr, expression: str) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise UnusableReference(
            f"{expression!r}: a class is made with plain values, not with {ast.unparse(node)}"
        ) from None


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
            how = (
                f"; make it with values, as in {cls.__name__}(4096), or define get_init_inputs()"
                if not (values or named)
                else ""
            )
            raise UnusableReference(
                f"{cls.__name__}({len(values) + len(named)} arguments) failed: {one_line(error)}{how}"
            ) from error
        self._made = cls, values, named
        return made

    def other(self, sizes: Mapping[int, int]) -> Any:
        """An instance with these numbers replaced among its arguments; None if there are none."""
        key = tuple(sorted(sizes.items()))
        if key not in self._others:
            cls, values, named = self._made or (None, (), {})
            changed = tree_map(
                lambda leaf: sizes.get(leaf, leaf) if type(leaf) is int else leaf,
                (list(values), dict(named)),
            )
            same = cls is None or changed == (list(values), dict(named))
            self._others[key] = (
                None if same or cls is None else cls(*changed[0], **changed[1]).eval()
            )
        return self._others[key]


class _Calling(torch.nn.Module):
    """A module whose `forward` is another module's method."""

    def __init__(self, inner: torch.nn.Module, method: str) -> None:
        super().__init__()
        self.inner, self.method = inner, method

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method."""
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
        args = tensors[len(state) :]
        chosen = (
            _of_sizes(maker, shapes, [tuple(tensor.shape) for tensor in given.values()]) or model
        )
        where = next(
            (value.device for value in (*tensors, *kwargs.values()) if isinstance(value, Tensor)),
            None,
        )
        if fixed and where is not None and chosen.get_buffer(fixed[0]).device != where:
            chosen.to(where)
        of_sizes = chosen if method == "forward" else _Calling(chosen, method)
        with torch.no_grad():
            return torch.func.functional_call(of_sizes, given, args, kwargs)

    called, keys, count = (
        model if method == "forward" else _Calling(model, method),
        [prefix + key for key in state],
        len(state),
    )

    def timed(*tensors: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return torch.func.functional_call(
                called, dict(zip(keys, tensors[:count], strict=True)), tensors[count:], kwargs
            )

    return Chosen(name, call, _signature(getattr(model, method), name), made_of, state, timed)


def _of_sizes(
    maker: _Maker, own: Sequence[tuple[int, ...]], given: Sequence[tuple[int, ...]]
) -> torch.nn.Module | None:
    """A module for parameters of other sizes; None if the sizes are its own."""
    if list(own) == list(given):
        return None
    sizes: dict[int, int] = {}
    for before, now in zip(own, given, strict=True):
        sizes.update(
            (size, other) for size, other in zip(before, now, strict=True) if size != other
        )
    found: torch.nn.Module | None = maker.other(sizes)
    return found


def _signature(function: Any, name: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        raise UnusableReference(
            f"{name} does not say which arguments it takes: wrap it in a function that names them"
        ) from None


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
