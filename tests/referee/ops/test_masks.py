"""Rows of masks: what they hold in each dtype, and which of it counts as a mask."""

from __future__ import annotations

import pytest
import torch

from referee import ops
from referee.ops.cell_spec import CellSpec
from referee.ops.cells import cell_of
from referee.ops.recipes import FILLERS, is_a_mask
from referee.ops.spec import Dtype
from referee.ops.values import draw

LOGITS = ("softmax", "log_softmax", "cross_entropy", "entropy", "kl_div")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_masks_fill_three_quarters_of_a_row_and_a_whole_one(
    dtype: Dtype,
) -> None:
    """Each filler and the least number fill three quarters of a row and a whole one."""
    (x,) = draw(cell_of(ops.get("softmax"), CellSpec(9, 400, dtype, "masks")), 3)
    least = torch.finfo(x.dtype).min
    assert bool(x.isfinite().all()) and not bool((x[0] < -100.0).any())
    for number, filler in enumerate((*FILLERS, least)):
        value = torch.tensor(max(filler, least)).to(x.dtype)
        some, whole = x[2 * number + 1], x[2 * number + 2]
        assert int((some == value).sum()) == 300 and bool((whole == value).all())
    # Masks stand in front as well as behind.
    assert bool(x[1, 0] < x[1, -1]) and bool(x[3, 0] > x[3, -1])


def test_masks_of_multiplied_logits_have_room() -> None:
    x, scale = draw(
        cell_of(ops.get("softmax_scale"), CellSpec(9, 400, "float32", "masks_in_range")), 3
    )
    assert bool((x * scale).isfinite().all())
    assert bool((x < -1.0e8).any()) and not bool((x < -1.0e8).all(-1).any())


def test_a_row_of_nothing_but_masks_is_one_of_logits() -> None:
    (x,) = draw(cell_of(ops.get("softmax"), CellSpec(9, 400, "float32", "masks")), 3)
    found = is_a_mask(x, "masks")
    assert found.sum(-1).tolist() == [0, 300, 0, 300, 0, 300, 0, 300, 0]
    assert not bool(is_a_mask(torch.zeros(4, dtype=torch.int64), "masks").any())


@pytest.mark.parametrize("name", LOGITS)
@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_operations_on_logits_pass_rows_of_masks_in_every_dtype(name: str, profile: str) -> None:
    made = ops.cells(ops.get(name), profile="gpu" if profile == "gpu" else "cpu")
    found = {
        cell.outputs[0].dtype for cell in made if cell.values == "masks" and cell.role == "required"
    }
    assert found == {"float32", "float16", "bfloat16"}
