"""The model of a variant's cost on real kernels, compiled for a card that is not here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kmint_tui.graph.operations import catalogue_program
from kmint_tui.template.frame import Settings
from kmint_tui.template.structures import Structure, kernel_source
from kmint_tui.template.write import program_source
from referee.gpu.compile_candidate import compile_candidate
from referee.gpu.jobs import CompiledCandidate
from referee.ops import get
from referee.ops.cell_spec import CellSpec
from referee.ops.cells import cell_of
from referee.problem import TaskName
from referee.sandbox.zygote import Workers
from referee.target import Target
from referee.variant_cost import cost, too_costly

H200 = Target(
    device=replace(Target().properties, memory_clock_rate=3_201_000, memory_bus_width=6144)
)


def compiled(workers: Workers, structure: Structure, rows: int, columns: int) -> CompiledCandidate:
    program = catalogue_program("softmax")
    assert program is not None
    settings = Settings(block=2048, splits=columns // 2048, warps="8")
    source = program_source(program, {0: kernel_source(program.stages[0], structure, settings)})
    cell = cell_of(get("softmax"), CellSpec(rows, columns, "bfloat16", "normal"))
    found = compile_candidate(workers, source, TaskName("softmax"), [cell], H200)
    assert isinstance(found, CompiledCandidate)
    return found


@pytest.mark.parametrize(("rows", "columns", "is_raced"), [(1, 8192, True), (2, 262144, False)])
def test_one_program_a_row_competes_on_short_rows_alone(
    workers: Workers, rows: int, columns: int, is_raced: bool
) -> None:
    split, loop = (
        cost(compiled(workers, structure, rows, columns), H200) for structure in ("split", "loop")
    )
    assert (1 not in too_costly([split, loop])) == is_raced, (split, loop)
