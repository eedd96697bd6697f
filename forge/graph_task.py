"""Random functions as a task of the referee: several in one file, on small inputs.

The evaluator of graphs is their oracle.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import torch
from torch import Tensor

from forge.graphs import function
from kmint_tui.graph.evaluate import evaluate
from kmint_tui.graph.program import Program
from kmint_tui.graph.sizes import Size
from kmint_tui.template.write import program_source
from referee.ops.spec import Cell, Dtype, Op, TensorSpec
from referee.ops.task import PUBLIC, Task

SMALL = {"m": 5, "n": 150, "b": 2, "s": 3, "h": 4, "w": 3, "c": 6, "o": 5, "k": 3, "t": 9}
LONG = {**SMALL, "m": 3, "n": 1300}
"""Sizes by symbol. Rows are longer than a block of 1,024, for kernels that loop over blocks."""
NUMBER = 0.75
"""The constant in place of a number from the host."""
STEADY = 1e-3
"""Largest error of float32 against float64, relative to one more than the value."""
_NUMBER, _RUN, _LAUNCH, _PRODUCT = (
    re.compile(text) for text in (r"\bp\d+\b", r"\brun\b", r"\blaunch(\d*)\b", r"\bproduct(\d*)\b")
)


@dataclass(frozen=True)
class Sample:
    """A drawn function, a kernel for its main stage, and inputs."""

    program: Program
    kernel: str
    inputs: tuple[Tensor, ...]

    def outputs(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """The function's results in a float dtype."""
        return evaluate(
            self.program, dict(zip(self.program.tensors, self.inputs, strict=True)), dtype
        )


def sample(seed: int, kernel: str) -> Sample:
    """A kernel of the seed's function, with inputs drawn from the seed.

    Numbers from the host become a constant. Raises OutOfScope where the seed has no function.
    """
    drawn = function(random.Random(seed))
    program = drawn.program
    generator = torch.Generator().manual_seed(seed)
    sizes = LONG if "for start in" in kernel else SMALL
    inputs = tuple(
        _input(shape, dtype, sizes, generator) for shape, dtype in drawn.tensors.values()
    )
    stages = tuple(
        replace(stage, numbers=tuple(_NUMBER.sub(str(NUMBER), text) for text in stage.numbers))
        for stage in program.stages
    )
    return Sample(replace(program, arguments=program.tensors, stages=stages), kernel, inputs)


def is_steady(one: Sample) -> bool:
    """True when float32 nearly gives the results of float64, all of them finite.

    Other functions have no right answer.
    """
    for exact, fast in zip(one.outputs(torch.float64), one.outputs(torch.float32), strict=True):
        wanted = exact.double()
        near = (wanted - fast.double()).abs() <= STEADY * (1 + wanted.abs())
        if not bool(wanted.isfinite().all()) or not bool(near.all()):
            return False
    return True


def file_of(samples: Sequence[Sample]) -> str:
    """One file whose `run` runs every sample and returns all their results."""
    parts, calls, arguments, results = [], [], [], []
    for number, one in enumerate(samples):
        text = program_source(
            replace(one.program, name=f"drawn{number}"), {one.program.main: one.kernel}
        )
        text = _LAUNCH.sub(rf"launch\1_{number}", _RUN.sub(f"run{number}", text))
        parts.append(_PRODUCT.sub(rf"product\1_{number}", text))
        given = [f"i{number}_{place}" for place in range(len(one.inputs))]
        names = [f"o{number}_{place}" for place in range(len(one.program.results))]
        calls.append(f"    {', '.join(names)} = run{number}({', '.join(given)})\n")
        arguments += given
        results += names
    head = f"\n\ndef run({', '.join(arguments)}):\n"
    return "\n\n".join(parts) + head + "".join(calls) + f"    return {', '.join(results)}\n"


def task(samples: Sequence[Sample]) -> Task:
    """The task of the file that `file_of` writes."""
    inputs = tuple(tensor for one in samples for tensor in one.inputs)
    specs = tuple(
        _spec(f"i{number}", tensor, str(tensor.dtype).removeprefix("torch."))
        for number, tensor in enumerate(inputs)
    )
    dtypes = [
        output.dtype.removeprefix("torch.") for one in samples for output in one.program.outputs
    ]
    outputs = [tensor for one in samples for tensor in one.outputs(torch.float32)]
    made = tuple(
        _spec(f"out{place}", tensor, dtype)
        for place, (tensor, dtype) in enumerate(zip(outputs, dtypes, strict=True))
    )
    cell = Cell("small", specs, made, "own|" * len(inputs), (1.0,) * len(inputs), "required")
    op = Op(
        name="drawn",
        kind="function",
        family="user",
        title="drawn",
        formula="drawn",
        difficulty="hard",
        origin="user",
        arguments=tuple(spec.name for spec in specs),
    )
    return Task(
        op,
        (cell,),
        _at(samples, torch.float32, dtypes),
        _at(samples, torch.float64, None),
        dict(PUBLIC),
        given={"small": inputs},
    )


def _at(
    samples: Sequence[Sample], dtype: torch.dtype, cast: Sequence[str] | None
) -> Callable[..., Any]:
    def function(*inputs: Tensor) -> Any:
        pending = iter(inputs)
        found = [
            out
            for one in samples
            for out in replace(one, inputs=tuple(next(pending) for _ in one.inputs)).outputs(dtype)
        ]
        if cast is not None:
            found = [out.to(getattr(torch, name)) for out, name in zip(found, cast, strict=True)]
        return found[0] if len(found) == 1 else tuple(found)

    return function


def _spec(name: str, tensor: Tensor, dtype: str) -> TensorSpec:
    known: Dtype = next(one for one in get_args(Dtype) if one == dtype)
    return TensorSpec(name, tuple(tensor.shape), known, tuple(tensor.stride()))


def _input(
    shape: Sequence[Size], dtype: str, sizes: Mapping[str, int], generator: torch.Generator
) -> Tensor:
    dims = [
        int(
            one.expression.subs(
                {symbol: sizes[str(symbol)] for symbol in one.expression.free_symbols}
            )
        )
        for one in shape
    ]
    kind = getattr(torch, dtype)
    if kind == torch.bool:
        return torch.rand(dims, generator=generator) < 0.5
    if kind.is_floating_point:
        return torch.randn(dims, generator=generator).to(kind)
    return torch.randint(0, 3, dims, generator=generator).to(kind)
