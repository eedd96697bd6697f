"""The reference that is written into a saved file computes what the referee's own reference
computes, to the bit.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from kmint_tui.save.reference_code import reference_function
from referee.ops import Op, cells, get
from referee.ops.reference import eager
from referee.ops.values import draw
from tests.sampling import operations

OPS = (*operations(start=3), get("add_layernorm_mish_selu"), get("rmsnorm_gelu_tanh"))


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_same_bits_as_the_referee(op: Op) -> None:
    space: dict[str, object] = {"torch": torch, "F": F, "Tensor": torch.Tensor}
    exec(reference_function(op), space)
    reference = space["reference"]
    assert callable(reference)
    for cell in cells(op, profile="cpu"):
        inputs = draw(cell, 7)
        wanted, found = eager(op)(*inputs), reference(*inputs)
        assert found.dtype == wanted.dtype
        assert torch.equal(found.nan_to_num(), wanted.nan_to_num()), cell.name
