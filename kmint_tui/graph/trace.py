"""From a PyTorch function to a program: captured with symbolic sizes, read, and cut into stages.

The functions are those of the catalogue's operations, and a user's references. A function runs once
on tensors without values. A branch on a size is taken as at the example's sizes. A branch on a
value, or a random number, is out of scope. Casts between floats are dropped, because kernels
compute in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from kmint_tui.graph.capture import Argument, Mode, NotTraced, capture
from kmint_tui.graph.host_numbers import host_numbers
from kmint_tui.graph.program import OutOfScope, Program, at_shapes
from kmint_tui.graph.reading import read
from referee.ops import Op, cells
from referee.ops.reference import eager
from referee.ops.signatures import KINDS
from referee.problem import TaskName
from referee.reference.asked import Asked
from referee.reference.inputs import Sizes
from referee.reference.load import load_reference
from referee.reference.reference import Example, Reference
from referee.reference.user_torch import user_code

_MODES: tuple[Mode, ...] = ("symbolic", "fake")
_OF_THE_FILE = {"torch", "triton", "tl", "libdevice", "math", "run", "product"}
"""Names that a kernel's file uses for itself, in addition to `launch`, `launch0`, ...."""
_TRACED_AT = {"M": 6, "N": 16, "H": 8, "1": 1}
_DTYPES = {"x": torch.bfloat16, "int8": torch.int8, "int64": torch.int64}
_KEPT = 4
_known: dict[tuple[Asked, str], Program] = {}


def trace(name: str, function: Callable[..., Any], arguments: Sequence[Argument]) -> Program:
    """The program of a function of the arguments, by position. Numbers among them stay arguments.

    Its results are new tensors: what the function changes in place counts only if it is returned.
    Raises OutOfScope with the operation, and with the line of the user's code if it is known.
    """
    for one in arguments:
        if one.name in _OF_THE_FILE or one.name.startswith("launch"):
            raise OutOfScope(
                f"an argument is named `{one.name}`, as a part of the kernel's file is"
            )
    failures: list[OutOfScope] = []
    for mode in _MODES:
        try:
            graph = capture(function, arguments, mode)
            numbers = host_numbers(graph, arguments, partial(capture, function, mode=mode))
            made = read(name, graph, arguments, numbers)
        except OutOfScope as error:
            failures.append(error)
            continue
        notes = tuple(f"sizes are fixed: {error}" for error in failures)
        return replace(made, notes=notes)
    raise _telling(failures)


def _telling(failures: Sequence[OutOfScope]) -> OutOfScope:
    """The first error that says why PyTorch could not trace the function; else the last."""
    return next((one for one in failures if not isinstance(one, NotTraced)), failures[-1])


def traced_operation(op: Op) -> Program:
    """The program of an operation with a name. Its example is the timed shape.

    Raises OutOfScope for a function without a program.
    """
    function = TaskName.of(op.name).asked
    if function is not None:
        return replace(traced_reference(function), name=op.name)
    arguments = []
    for one in KINDS[op.kind].parameters:
        shape = [_TRACED_AT[symbol] for symbol in one.shape]
        arguments.append(Argument(one.name, torch.ones(shape, dtype=_DTYPES[one.dtype])))
    bench = next(cell for cell in cells(op, profile="gpu") if cell.role == "bench")
    shapes = {spec.name: spec.shape for spec in bench.inputs}
    return at_shapes(trace(op.name, eager(op), arguments), shapes)


def traced_reference(asked: Asked) -> Program:
    """The program of a user's reference, whose code runs. Its example has the timed sizes.

    The result is cached until one of its files changes. Raises OutOfScope and UnusableReference.
    """
    with user_code():
        reference = load_reference(asked)
        key = asked, reference.digest
        if key not in _known:
            while len(_known) >= _KEPT:
                del _known[next(iter(_known))]
            _known[key] = _traced(reference)
        return _known[key]


def _traced(reference: Reference) -> Program:
    example = reference.examples[0]
    tensors = dict(zip(reference.tensors, example.tensors(_unlike(example)), strict=True))
    arguments = [
        Argument(one.name, tensors[one.name] if one.kind == "tensor" else one.usual)
        for one in reference.arguments
    ]
    program = trace(reference.name, reference.function, arguments)
    timed = example.specs(reference.tensors, example.family.timed)
    return at_shapes(program, {spec.name: spec.shape for spec in timed})


def _unlike(example: Example) -> Sizes:
    """The small sizes at which the fewest dimensions have the same number by chance, or one.

    PyTorch traces equal numbers as one size, and 1 as a dimension to broadcast.
    """
    dims = {dim for tensor in example.family.tensors for dim in tensor.dims if dim.symbol}

    def alike(sizes: Sizes) -> int:
        return len(dims) - len({dim.at(sizes) for dim in dims} - {1})

    return min(example.sizes, key=alike)
