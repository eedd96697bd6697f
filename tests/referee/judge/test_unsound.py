"""What rejects a kernel though only a case that shows capabilities found it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from referee import ops
from referee.checks.capabilities import unsound
from referee.ops.cell_spec import CellSpec
from referee.ops.cells import cell_of
from referee.ops.spec import Cell
from referee.verdict import CellResult

MANY = cell_of(ops.get("rmsnorm"), CellSpec(300, 17, "float32", "nonfinite", role="capability"))
PADDED = cell_of(
    ops.get("rmsnorm"),
    CellSpec(3, 17, "float32", "normal", role="capability", layout="padded-offset"),
)
LARGE = cell_of(
    ops.get("rmsnorm"),
    CellSpec(524_417, 4096, "float16", "normal", role="capability", label="large"),
)
BITS, INPUTS, WRITES, READS = "not_deterministic", "input_mutated", "guard_band", "out_of_bounds"


def rejects(cell: Cell, guard: str, *, addresses_seen: bool = True) -> bool:
    result = CellResult(cell.name, cell.role, "fail", detail="so it is", guard=guard)
    found = unsound(
        [cell], [CellResult("other", "capability", "pass"), result], addresses_seen=addresses_seen
    )
    assert found is None or (
        found.guard == guard and cell.name in found.reason and "so it is" in found.reason
    )
    return found is not None


@pytest.mark.parametrize("guard", [BITS, INPUTS, WRITES, READS])
def test_where_the_contract_reaches_every_fault_counts(guard: str) -> None:
    assert rejects(MANY, guard) and rejects(MANY, guard, addresses_seen=False)


def test_wrong_values_cost_the_capability_only() -> None:
    assert (
        not rejects(MANY, "wrong_answer")
        and not rejects(MANY, "kernel_error")
        and not rejects(MANY, "")
    )


@pytest.mark.parametrize("cell", [PADDED, LARGE])
def test_beyond_the_contract_addresses_do_not_count(cell: Cell) -> None:
    assert not rejects(cell, WRITES) and not rejects(cell, READS)
    assert rejects(cell, BITS) and rejects(cell, BITS, addresses_seen=False)
    assert rejects(cell, INPUTS) and not rejects(cell, INPUTS, addresses_seen=False)


def test_required_cases_are_not_looked_at_again() -> None:
    assert not rejects(replace(MANY, role="required"), BITS)
