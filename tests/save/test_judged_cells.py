"""The domain of a verdict by a user's own reference: the cells that passed and that a saved kernel
can take.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kmint_tui.save.host_code import NotSaveable
from kmint_tui.save.own_reference import Argument, Signature, judged
from referee.ops import Cell, TensorSpec
from referee.ops.cells import Profile
from referee.verdict import CellResult, Status
from tests.save.test_own_reference import cell, made_up, of_cells


def test_the_verdicts_mode_says_which_examples_were_judged() -> None:
    small, large = Argument((2, 3), "float32"), Argument((64, 64), "float32")
    cells: dict[Profile, list[Cell]] = {
        "cpu": [cell("example0-given", small)],
        "gpu": [
            cell("example0-given", small),
            cell("example1-given", large),
            cell("example1-large", large),
        ],
    }
    own = of_cells(lambda profile: cells[profile])
    results = [CellResult(one.name, one.role, "pass") for one in cells["gpu"]]
    assert judged(("x",), own, made_up(*results)).signatures == (Signature((small,)),)
    assert judged(("x",), own, made_up(*results, mode="replay")).signatures == (
        Signature((small,)),
        Signature((large,)),
    )


@pytest.mark.parametrize(("role", "status"), [("required", "skipped"), ("capability", "pass")])
def test_only_required_cells_that_passed_count(role: str, status: Status) -> None:
    own = of_cells(lambda profile: [cell("example0-given", Argument((2, 3), "float32"))])
    with pytest.raises(NotSaveable, match="no example"):
        judged(("x",), own, made_up(CellResult("example0-given", role, status)))


def test_a_saved_kernel_takes_only_what_was_judged_contiguous() -> None:
    small = cell("example0-given", Argument((2, 3), "float32"))
    turned = replace(
        small, name="example1-given", inputs=(TensorSpec("a0", (3, 4), "float32", (1, 3)),)
    )
    results = [CellResult(one.name, one.role, "pass") for one in (small, turned)]
    both = judged(("x",), of_cells(lambda profile: [small, turned]), made_up(*results))
    assert both.signatures == (Signature((Argument((2, 3), "float32"),)),)
    with pytest.raises(NotSaveable, match="not contiguous"):
        judged(("x",), of_cells(lambda profile: [turned]), made_up(*results))
