"""Random functions as graphs, the training material of the embedded smith.

A function is a layout and a chain of operations on it. The layout says which dimensions are rows,
which are reduced, and which other tensors are broadcast. The given generator determines everything.
No function of a user, a test or a benchmark is among them; `forge/corpus.py` adds the catalogue.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forge.beginnings import begin
from forge.chain import Chain
from forge.endings import end
from forge.layouts import Drawn
from forge.reductions import reduce
from forge.steps import steps
from kmint_tui.graph.layout import stage_of
from kmint_tui.graph.program import OutOfScope, Program, Tensor
from kmint_tui.graph.sizes import Size
from kmint_tui.graph.stages import groups_of
from kmint_tui.graph.values import Value


@dataclass(frozen=True)
class DrawnFunction:
    """A random function: its program, and the sizes and dtype of each of its tensors by name."""

    program: Program
    tensors: Mapping[str, tuple[Sequence[Size], str]]


def program(rng: random.Random) -> Program:
    """The program of one random function. Raises OutOfScope for an invalid draw."""
    return function(rng).program


def function(rng: random.Random) -> DrawnFunction:
    """One random function. Raises OutOfScope for an invalid draw."""
    drawn = Drawn(rng)
    chain = Chain(drawn)
    named = [(f"y{number}", value) for number, value in enumerate(_results(chain))]
    groups, scratch = groups_of(named)
    show = drawn.names.show
    shapes = {name: list(sizes) for name, (sizes, _) in drawn.tensors.items()}
    shapes |= {one.name: list(one.sizes) for one in scratch}
    stages = tuple(stage_of(group, shapes.__getitem__, show) for group in groups)
    made = {tensor for stage in stages for tensor in stage.writes}
    if len(made) < len(named) + len(scratch):
        raise OutOfScope("a result depends on no tensor")
    found = Program(
        name="drawn",
        arguments=(*drawn.tensors, *chain.numbers),
        tensors=tuple(drawn.tensors),
        temporaries=tuple(
            Tensor(one.name, tuple(map(show, one.sizes)), f"torch.{one.dtype}") for one in scratch
        ),
        outputs=tuple(
            Tensor(name, tuple(map(show, value.sizes)), f"torch.{value.dtype}")
            for name, value in named
        ),
        results=tuple(name for name, _ in named),
        stages=stages,
    )
    return DrawnFunction(found, dict(drawn.tensors))


def _results(chain: Chain) -> list[Value]:
    """Draw the chain, and give its results."""
    rng = chain.rng
    begin(chain)
    reductions = rng.choices((0, 1, 2, 3), (24, 34, 28, 14))[0]
    for _ in range(reductions):
        steps(chain, rng.choices((0, 1, 2, 3, 4), (2, 3, 3, 2, 1))[0])
        reduce(chain)
    steps(chain, rng.choices((0, 1, 2, 3, 5, 8, 13), (2, 3, 4, 4, 2, 1, 1))[0])
    return end(chain, reductions)
