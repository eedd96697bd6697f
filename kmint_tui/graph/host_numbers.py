"""Constants of a graph that follow from the function's numbers, so that numbers stay arguments.

They are found by tracing again with each number changed, and by comparing the two graphs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.fx import GraphModule

from kmint_tui.graph.capture import Argument, NotTraced, operation
from kmint_tui.graph.program import OutOfScope

Path = tuple[Any, ...]
"""Place of a constant in a node: 0 and a position, or 1 and a keyword, and so on inwards."""
HostNumbers = Mapping[tuple[str, Path], str]
"""The host's expression for a constant, by the name of its node and its path."""

_FORMS: dict[str, Callable[[float], float]] = {
    "{0}": lambda x: x,
    "-{0}": lambda x: -x,
    "1 - {0}": lambda x: 1 - x,
    "1 + {0}": lambda x: 1 + x,
    "1 / {0}": lambda x: 1 / x,
    "1 / (1 - {0})": lambda x: 1 / (1 - x),
    "{0} - 1": lambda x: x - 1,
    "2 * {0}": lambda x: 2 * x,
    "{0} / 2": lambda x: x / 2,
    "{0} * {0}": lambda x: x * x,
    "{0} ** 0.5": lambda x: x**0.5,
    "{0} ** -0.5": lambda x: x**-0.5,
    "math.log({0})": math.log,
    "math.exp({0})": math.exp,
}
"""How code makes a constant of a number that it is given."""


def host_numbers(
    graph: GraphModule,
    arguments: Sequence[Argument],
    again: Callable[[Sequence[Argument]], GraphModule],
) -> HostNumbers:
    """The constants of `graph` that follow from numbers among the arguments.

    `again` captures the function with other arguments. Raises OutOfScope for a number that decides
    about the operations, or that the code uses in another form.
    """
    found: dict[tuple[str, Path], str] = {}
    for place, argument in enumerate(arguments):
        value = argument.value
        if isinstance(value, Tensor):
            continue
        other = value * 1.375 + 0.0625 if isinstance(value, float) else value + 1
        changed = [*arguments[:place], replace(argument, value=other), *arguments[place + 1 :]]
        fix = f"fix it with --fix {argument.name}={value}"
        try:
            twin = again(changed)
        except NotTraced as error:
            raise OutOfScope(f"`{argument.name}` decides what it does: {fix}") from error
        if _operations(graph) != _operations(twin):
            raise OutOfScope(f"`{argument.name}` decides what it does: {fix}")
        for key, one, two in _changes(graph, twin):
            form = _form(value, one, other, two)
            if form is None or key in found:
                raise OutOfScope(f"it computes with `{argument.name}` in Python: {fix}")
            found[key] = form.format(argument.name)
    return found


def _operations(graph: GraphModule) -> list[str]:
    return [operation(node) for node in graph.graph.nodes]


def _changes(
    graph: GraphModule, twin: GraphModule
) -> Iterator[tuple[tuple[str, Path], float, float]]:
    """The constants that differ between two graphs of the same operations, with both values."""
    for node, other in zip(graph.graph.nodes, twin.graph.nodes, strict=True):
        given = (tuple(node.args), dict(node.kwargs)), (tuple(other.args), dict(other.kwargs))
        for path, one, two in _differences(*given, ()):
            yield (node.name, path), one, two


def _differences(one: Any, other: Any, path: Path) -> Iterator[tuple[Path, float, float]]:
    if (
        isinstance(one, (list, tuple))
        and isinstance(other, (list, tuple))
        and len(one) == len(other)
    ):
        for place, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _differences(a, b, (*path, place))
    elif isinstance(one, dict) and isinstance(other, dict):
        for key in one:
            yield from _differences(one[key], other.get(key), (*path, key))
    elif isinstance(one, (int, float)) and isinstance(other, (int, float)) and one != other:
        yield path, one, other


def _form(value: float, one: float, other: float, two: float) -> str | None:
    """The form by which `value` makes `one` and `other` makes `two`; None if there is none."""
    for form, make in _FORMS.items():
        if _makes(make, value, one) and _makes(make, other, two):
            return form
    factor = one / value if value else 0.0
    return f"{factor!r} * {{0}}" if _makes(lambda x: factor * x, other, two) else None


def _makes(make: Callable[[float], float], given: float, wanted: float) -> bool:
    try:
        return math.isclose(make(given), wanted, rel_tol=1e-12, abs_tol=0.0)
    except (ArithmeticError, ValueError):
        return False
