"""Reads a captured graph node by node into values, and cuts these into the stages of a program."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy
import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from kmint_tui.graph import values as v
from kmint_tui.graph.aten import TABLE
from kmint_tui.graph.axes import SameSize
from kmint_tui.graph.capture import Argument, operation, place
from kmint_tui.graph.expressions import exact
from kmint_tui.graph.host_numbers import HostNumbers, Path
from kmint_tui.graph.layout import stage_of
from kmint_tui.graph.program import OutOfScope, Program
from kmint_tui.graph.program import Tensor as Allocated
from kmint_tui.graph.sizes import NotDivisible, Size, SizeNames, symbol_value
from kmint_tui.graph.stages import groups_of
from kmint_tui.graph.values import Value

_PRODUCTS = {
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "mv",
    "dot",
    "convolution",
    "convolution_overrideable",
}
_SIZES = {"sym_size", "sym_numel", "sym_stride"}
_OF_NO_VALUE = ("layout", "device", "pin_memory", "memory_format", "requires_grad", "implicit")
"""Options of ATen operations that change no value."""


def read(
    name: str,
    graph: GraphModule,
    arguments: Sequence[Argument],
    numbers: HostNumbers,
) -> Program:
    """The program of a graph. Raises OutOfScope.

    Sizes that turn out to be equal are known to be so when the graph is read again.
    """
    equal: dict[sympy.Symbol, int] = {}
    while True:
        try:
            return _Reader(arguments, equal, numbers).program(name, graph)
        except SameSize as found:
            for one, other in ((found.first, found.second), (found.second, found.first)):
                if isinstance(one.expression, sympy.Symbol) and one.expression not in equal:
                    equal[one.expression] = other.value
                    break
            else:
                raise


class _Reader:
    """Reads a graph once. Sizes are expressions in the symbols of the inputs' dimensions."""

    def __init__(
        self,
        arguments: Sequence[Argument],
        equal: Mapping[sympy.Symbol, int],
        numbers: HostNumbers,
    ) -> None:
        self._arguments, self._equal, self._numbers = arguments, equal, numbers
        self._tensors = {one.name: one.value for one in arguments if isinstance(one.value, Tensor)}
        self._examples: dict[sympy.Symbol, int] = {}
        self._values: dict[sympy.Symbol, int] = {}
        self._names = SizeNames()
        self._known: dict[str, Any] = {}
        self._shapes: dict[str, list[Size]] = {}

    def program(self, name: str, graph: GraphModule) -> Program:
        """The program, whose results are new tensors."""
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        for argument, node in zip(self._tensors, placeholders, strict=True):
            self._bind(node, argument)
        returned: list[Any] = []
        for node in graph.graph.nodes:
            match node.op:
                case "call_function":
                    self._known[node.name] = self._read(node)
                case "get_attr":
                    self._known[node.name] = self._constant(graph, node)
                case "output":
                    given = node.args[0]
                    returned = list(given) if isinstance(given, (list, tuple)) else [given]
        return self._cut(name, self._outputs(returned))

    def _outputs(self, returned: Sequence[Any]) -> list[tuple[str, Value]]:
        """The returned values with the names of their tensors."""
        outputs: list[tuple[str, Value]] = []
        for node in returned:
            if node is None:
                continue
            if not isinstance(node, Node):
                raise OutOfScope("it returns a number, not a tensor")
            outputs.append((self._unused(f"y{len(outputs)}"), self._known[node.name]))
        if not outputs:
            raise OutOfScope("it returns no tensor, and no argument is changed in place")
        return outputs

    def _unused(self, name: str) -> str:
        """The name, unless an argument has it already."""
        while any(one.name == name for one in self._arguments):
            name += "_"
        return name

    def _cut(self, name: str, outputs: Sequence[tuple[str, Value]]) -> Program:
        """The stages that write the outputs."""
        written = [(name, _exact(value)) for name, value in outputs]
        groups, scratch = groups_of(written, self._unused)
        shapes = {**self._shapes, **{one.name: list(one.sizes) for one in scratch}}
        stages = tuple(stage_of(group, shapes.__getitem__, self._names.show) for group in groups)
        made = {tensor for stage in stages for tensor in stage.writes}
        if len(made) < len(outputs) + len(scratch):
            raise OutOfScope("one of its results depends on no tensor")
        return Program(
            name=name,
            arguments=tuple(argument.name for argument in self._arguments),
            tensors=tuple(self._tensors),
            temporaries=tuple(
                self._allocated(one.name, one.sizes, f"torch.{one.dtype}") for one in scratch
            ),
            outputs=tuple(
                self._allocated(one, value.sizes, self._dtype(value)) for one, value in outputs
            ),
            results=tuple(one for one, _ in outputs),
            stages=stages,
        )

    def _allocated(self, name: str, sizes: Sequence[Size], dtype: str) -> Allocated:
        return Allocated(name, tuple(map(self._names.show, sizes)), dtype)

    def _dtype(self, value: Value) -> str:
        """The dtype of the first tensor with this dtype, which it then follows; else its name."""
        for name, tensor in self._tensors.items():
            same = str(tensor.dtype) == f"torch.{value.dtype}"
            if same and value.kind == "f" and value.dtype != "float32":
                return f"{name}.dtype"
        return f"torch.{value.dtype}"

    def _bind(self, node: Node, argument: str) -> None:
        """Let a placeholder be an argument's tensor, and its dimensions spell their sizes."""
        shown = node.meta["val"]
        sizes = [self._size(dim) for dim in shown.shape]
        for place_, size in enumerate(sizes):
            self._names.bind(size, f"{argument}.shape[{place_}]")
        self._shapes[argument] = sizes
        self._known[node.name] = v.tensor(argument, sizes, _dtype_name(shown.dtype))

    def _size(self, dim: Any) -> Size:
        if isinstance(dim, (int, sympy.Integer)):
            return Size.of(int(dim))
        environment = dim.node.shape_env
        expression = environment.replace(dim.node.expr)
        for symbol in sorted(expression.free_symbols, key=str):
            if symbol not in self._examples:
                example = _example(environment, symbol)
                free = symbol_value(example, len(self._values))
                self._examples[symbol] = example
                self._values[symbol] = self._equal.get(symbol, free)
        value, example = expression.subs(self._values), expression.subs(self._examples)
        return Size(expression, int(value), int(example))

    def _read(self, node: Node) -> Any:
        try:
            return self._called(node)
        except SameSize:
            raise
        except (OutOfScope, NotDivisible) as error:
            raise OutOfScope(f"{error}{place(node)}") from None

    def _called(self, node: Node) -> Any:
        given = [self._argument(one, node.name, (0, at)) for at, one in enumerate(node.args)]
        options = {
            key: self._argument(one, node.name, (1, key)) for key, one in dict(node.kwargs).items()
        }
        name = operation(node)
        in_place = name.endswith("_") and not name.startswith("__") and name not in TABLE
        name = name.removesuffix("_") if in_place else name
        shown = node.meta.get("val")
        is_number = isinstance(shown, (torch.SymInt, torch.SymFloat))
        if is_number or (name in _SIZES and isinstance(shown, int)):
            return self._number(shown)
        if node.target is operator.getitem:
            return given[0][given[1]]
        made = _entered(name, given, options)
        if isinstance(made, Value) and isinstance(shown, Tensor):
            made = replace(made, dtype=_dtype_name(shown.dtype))
            expected = [self._size(dim).example for dim in shown.shape]
            if [size.example for size in made.sizes] != expected:
                raise OutOfScope(f"{name} has a form that is not read")
        first = node.args[0] if node.args else None
        if isinstance(first, Node) and (in_place or name == "copy_"):
            # A decomposition changes its own tensor, and later nodes read the changed one.
            self._known[first.name] = made
        return made

    def _number(self, shown: Any) -> Any:
        """A size, or a number that is computed from sizes."""
        if not isinstance(shown, torch.SymFloat):
            return self._size(shown)
        expression = shown.node.shape_env.replace(shown.node.expr)
        if not expression.free_symbols:
            return float(expression)
        return v.scalar(self._names.show_number(expression))

    def _argument(self, given: Any, node: str, path: Path) -> Any:
        if (node, path) in self._numbers:
            return v.scalar(self._numbers[node, path])
        if isinstance(given, Node):
            return self._known[given.name]
        if isinstance(given, (list, tuple)):
            return [self._argument(one, node, (*path, at)) for at, one in enumerate(given)]
        if isinstance(given, torch.dtype):
            return _dtype_name(given)
        return given

    def _constant(self, graph: GraphModule, node: Node) -> Value:
        """A tensor that the function holds: one element becomes a number."""
        held = getattr(graph, str(node.target))
        if isinstance(held, Tensor) and held.numel() == 1:
            made = v.constant(held.item(), _dtype_name(held.dtype))
            return replace(made, dims=((),) * held.dim())
        raise OutOfScope("it holds a tensor that is no argument: make it one")


def _entered(name: str, given: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """The result of the table's entry for the arguments."""
    if name not in TABLE:
        if name in _PRODUCTS:
            raise OutOfScope(f"`{name}` multiplies matrices, and kmint writes no such kernel")
        raise OutOfScope(f"`{name}` is not among the operations that kmint fuses")
    kept = {key: value for key, value in options.items() if key not in _OF_NO_VALUE}
    try:
        return TABLE[name](*given, **kept)
    except TypeError as error:
        raise OutOfScope(f"{name} has a form that is not read ({error})") from error


def _exact(value: Value) -> Value:
    return replace(value, expression=exact(value.expression)) if value.dtype == "float32" else value


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _example(environment: Any, symbol: sympy.Symbol) -> int:
    """The symbol's size at the given inputs. torch 2.13 renamed this field."""
    ask = getattr(environment, "guarding_hint_or_throw", None) or environment.size_hint
    return int(ask(symbol))
