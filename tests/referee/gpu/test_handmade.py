"""The cells that scripts and tests on a GPU choose by what they are, so that a change of cells is
noticed where there is none.
"""

from __future__ import annotations

import pytest

from bench import handmade


@pytest.mark.parametrize("op", ["rmsnorm", "softmax", "relu2"])
def test_the_small_cell_is_required_and_its_rows_fit_a_block(op: str) -> None:
    cell = handmade.small_cell(op)
    rows, columns = cell.inputs[0].shape
    assert cell in handmade.usable_cells(op) and cell.role != "capability"
    assert 100 <= rows <= 1100 and 1000 <= columns <= 8192
