"""Integers that number something take every number that the reference takes, the first and the last
among them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from referee.ops.task import Task
from referee.reference.numbering import numbering
from referee.reference.words import drawn_values
from tests.referee.own_reference import rejecting, task

FEW = "torch.tensor([3, 17, 5, 40, 11, 8, 2, 30])"
LOGITS = "torch.randn(8, 64)"


def drawn(judged: Task, position: int) -> Tensor:
    """All values of an operand in cells of redrawn ones."""
    cells = [cell for cell in judged.cells if not cell.name.endswith("-itself")]
    return torch.cat(
        [judged.inputs(cell, seed)[position].flatten() for cell in cells for seed in range(3)]
    )


@pytest.mark.parametrize(
    ("arguments", "body", "inputs", "position", "count"),
    [
        ("x, y", "F.cross_entropy(x, y, reduction='none')", f"{LOGITS}, {FEW}", 1, 64),
        ("x, y", "F.cross_entropy(x, y)", f"{LOGITS}, {FEW}", 1, 64),
        ("t, i", "F.embedding(i, t)", f"torch.randn(50, 16), {FEW}", 1, 50),
        ("t, i", "t[i]", f"torch.randn(50, 16), {FEW}.int().view(2, 4)", 1, 50),
        ("x, i", "x.gather(1, i)", f"{LOGITS}, {FEW}.view(8, 1)", 1, 64),
        # The table is as long as the rows are many: the number of another dimension is tried too.
        ("x, i", "x[torch.arange(8), i]", f"torch.randn(8, 41), {FEW}", 1, 41),
        # The dimension is one of the output.
        ("x, i", "torch.zeros(48, 16).index_add(0, i, x)", f"torch.randn(8, 16), {FEW}", 1, 48),
        # One of the table's dimensions is smaller than what it numbers.
        ("t, i", "F.embedding(i, t)", f"torch.randn(70, 45), {FEW}", 1, 70),
        ("t, i", "t[i]", f"torch.randn(80, 64, 45), {FEW}", 1, 80),
        # Shown as they are by the example, and as a mask seems.
        ("t, i", "t[i]", "torch.randn(5, 16), torch.tensor([0, 1, 1, 0])", 1, 5),
        # As many as there are numbers.
        ("t, i", "t[i]", "torch.randn(8, 16), torch.tensor([2, 5, 5, 1, 6, 3, 2, 4])", 1, 8),
    ],
)
def test_the_first_and_the_last_are_met(
    tmp_path: Path, arguments: str, body: str, inputs: str, position: int, count: int
) -> None:
    judged = task(tmp_path, arguments, body, inputs)
    for cell in judged.cells:
        if not cell.name.endswith("-itself"):
            met = judged.inputs(cell, 1)[position]
            assert (int(met.min()), int(met.max())) == (0, count - 1)
    assert len(set(drawn(judged, position).tolist())) > count / 2
    assert f"i 0 to {count - 1}" in drawn_values(judged.required, judged.given).replace(
        "y 0", "i 0"
    )


@pytest.mark.parametrize(
    ("arguments", "body", "inputs", "position", "least", "largest"),
    [
        ("x, n", "x * n[:, None]", f"torch.randn(8, 64), {FEW}", 1, 2, 40),
        # A length: more than there are is as good as all.
        ("x, n", "(x * (torch.arange(64) < n[:, None])).sum(1)", f"{LOGITS}, {FEW}", 1, 2, 40),
        # Larger numbers change the shape.
        ("x, n", "x.new_ones(int(n.max())) * x.sum()", f"torch.randn(8, 41), {FEW}", 1, 2, 40),
        ("x, n", "x[:, 0] + n", f"torch.randn(8, 64), {FEW} - 20", 1, -18, 20),
        # One of two rows: a mask is that too.
        ("t, i", "t[i]", "torch.randn(2, 16), torch.tensor([0, 1, 0, 0])", 1, 0, 1),
        # One or two numbers are as in the example.
        ("t, i", "t[i]", "torch.randn(50, 8), torch.tensor([7, 9])", 1, 7, 9),
        # The elements have different limits.
        (
            "i, t",
            "F.embedding(i + torch.arange(4) * 16, t).sum(1)",
            "torch.randint(2, 14, (12, 4)), torch.randn(64, 8)",
            0,
            2,
            13,
        ),
        (
            "i, t",
            "t[i[:, 0], i[:, 1]]",
            "torch.randint(2, 30, (20, 2)), torch.randn(48, 32)",
            0,
            2,
            29,
        ),
        (
            "i, t, u",
            "t[i[:, 0]] + u[i[:, 1]]",
            "torch.tensor([[3, 4], [5, 6]]), torch.randn(20, 2), torch.randn(19, 2)",
            0,
            3,
            6,
        ),
        # Each could be larger, but not both.
        (
            "t, i, j",
            "t[i] + t[j] + 0 * torch.arange(80)[i.max() + j.max()]",
            "torch.randn(64, 4), torch.arange(2, 10), torch.arange(2, 10)",
            1,
            2,
            9,
        ),
        # Counted from one: none of them would be the last one.
        (
            "x, n",
            "x[torch.arange(4), n - 1]",
            "torch.randn(4, 16, 17), torch.tensor([3, 16, 7, 9])",
            1,
            3,
            16,
        ),
        # Torch looks at the columns of a sparse matrix only where it is asked to.
        pytest.param(
            "r, c, v, x",
            "torch.sparse_csr_tensor(r, c, v, (4, 30)) @ x",
            "torch.tensor([0, 2, 4, 6, 8]), torch.tensor([3, 9, 1, 4, 2, 5, 3, 8]), torch.randn(8), torch.randn(30, 6)",
            1,
            1,
            9,
            marks=pytest.mark.filterwarnings("ignore:Sparse CSR"),
        ),
        # Fewer than any dimension that is larger.
        (
            "x, n",
            "torch.tensor([1.0, 2.0, 3.0])[n] * x[:, 0]",
            "torch.randn(8, 64), torch.tensor([0, 1, 0, 1, 1, 1, 0, 0])",
            1,
            0,
            1,
        ),
    ],
)
def test_what_numbers_nothing_stays_as_in_the_example(
    tmp_path: Path, arguments: str, body: str, inputs: str, position: int, least: int, largest: int
) -> None:
    met = drawn(task(tmp_path, arguments, body, inputs), position)
    assert int(met.min()) >= least and int(met.max()) <= largest


def test_what_is_ignored_still_is(tmp_path: Path) -> None:
    judged = task(
        tmp_path,
        "x, y",
        "F.cross_entropy(x, y, reduction='none')",
        f"{LOGITS}, {FEW}.index_fill(0, torch.tensor([2]), -100)",
    )
    for cell in judged.cells:
        if not cell.name.endswith("-itself"):
            labels = judged.inputs(cell, 2)[1]
            assert {63, 0, -100} <= set(labels.tolist()) and set(labels.tolist()) - {-100} <= set(
                range(64)
            )
    assert "0 to 63, some -100" in drawn_values(judged.required, judged.given)
    assert rejecting(
        judged, lambda x, y: -torch.log_softmax(x, -1)[torch.arange(8), y.clamp(min=0)], 1
    )

    def right(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        picked = -torch.log_softmax(x, -1)[torch.arange(8), y.clamp(min=0)]
        return torch.where(y < 0, 0.0, picked)

    assert not rejecting(judged, right, 1)


def test_labels_too_large_for_their_type_are_not_tried(tmp_path: Path) -> None:
    met = drawn(
        task(
            tmp_path,
            "t, i",
            "t[i.long()]",
            "torch.randn(300, 4), torch.tensor([3, 200], dtype=torch.uint8)",
        ),
        1,
    )
    assert int(met.max()) <= 200


@pytest.mark.parametrize("wrong", [0, 63])
def test_a_kernel_that_is_wrong_for_one_class_is_found(tmp_path: Path, wrong: int) -> None:
    judged = task(tmp_path, "x, y", "F.cross_entropy(x, y, reduction='none')", f"{LOGITS}, {FEW}")

    def answer(x: Tensor, y: Tensor) -> Tensor:
        return torch.where(y == wrong, 0.0, -torch.log_softmax(x, -1)[torch.arange(8), y])

    assert all(rejecting(judged, answer, seed) for seed in range(6))


@pytest.mark.parametrize(
    ("elsewhere", "found", "largest"), [(False, "index:50", 50), (True, "", 49)]
)
def test_no_number_too_large_is_tried_on_another_device(
    elsewhere: bool, found: str, largest: int
) -> None:
    seen = []

    def reference(table: Tensor, index: Tensor) -> Tensor:
        seen.append(int(index.max()))
        if elsewhere:
            table.to("meta")
        return table[index]

    assert (
        numbering(reference, (torch.randn(50, 4), torch.tensor([3, 17, 9])), [(3, 4)], 1) == found
    )
    assert max(seen) == largest


def test_a_kernel_that_stores_where_it_has_to_add_is_found(tmp_path: Path) -> None:
    judged = task(
        tmp_path, "x, i", "torch.zeros(4096, 16).index_add(0, i, x)", f"torch.randn(8, 16), {FEW}"
    )

    def stored(x: Tensor, i: Tensor) -> Tensor:
        out = torch.zeros(4096, 16)
        out[i] = x
        return out

    assert all(len(rejecting(judged, stored, seed)) >= 5 for seed in range(4))


@pytest.mark.parametrize(
    ("arguments", "body", "inputs"),
    [
        ("x, n", "x.repeat_interleave(n, 0)", "torch.randn(4, 8), torch.tensor([1, 3, 2, 4])"),
        (
            "x, n",
            "torch.cat([x[b, :k] for b, k in enumerate(n.tolist())])",
            "torch.randn(4, 9, 8), torch.tensor([3, 7, 2, 5])",
        ),
        ("x, n", "x.repeat_interleave(n, 0)", "torch.randn(4, 9000), torch.tensor([1, 3, 2, 4])"),
        ("x", "x[x[:, 0] > 0]", "torch.randn(8, 6)"),
        ("x", "x[x > 0]", "torch.randn(200, 200)"),
        ("x, k", "x[k > 2]", "torch.randn(8, 6), torch.tensor([1, 5, 3, 2, 0, 4, 1, 3])"),
    ],
)
def test_numbers_that_change_the_answers_shape_are_left_out(
    tmp_path: Path, arguments: str, body: str, inputs: str
) -> None:
    judged = task(tmp_path, arguments, body, inputs)
    for cell in judged.cells:
        for seed in range(3):
            assert judged.eager(*judged.inputs(cell, seed)).shape == cell.outputs[0].shape


def test_many_numbers_below_zero_take_no_time_to_find() -> None:
    asked = []
    weight = torch.randint(-128, 128, (64, 4096), dtype=torch.int32)
    assert (
        numbering(lambda *_: asked.append(1), (torch.randn(4, 256), weight), [(4, 4096)], 1) == ""
        and not asked
    )


def test_the_last_number_is_tried_in_every_place() -> None:
    table, numbers = torch.randn(64, 2), torch.tensor([3, 4, 5, 6])
    assert numbering(lambda i, t: t[i], (numbers, table), [(4, 2)], 0) == "index:64"
    assert numbering(lambda i, t: t[i + torch.arange(4) * 16], (numbers, table), [(4, 2)], 0) == ""


STORED = "torch.zeros(256, 16).index_copy(0, i, x)"
ADDED = "torch.zeros(256, 16).index_add(0, i, x)"
PERMUTED = "torch.randn(256, 16), torch.randperm(256)"


@pytest.mark.parametrize(
    ("arguments", "body", "inputs", "count", "width"),
    [
        ("x, i", STORED, PERMUTED, 256, 256),
        # Free places of a cache.
        ("x, i", STORED, "torch.randn(60, 16), torch.randperm(256)[:60]", 256, 60),
        (
            "c, x, i",
            "c.index_put((i,), x)",
            "torch.randn(96, 16), torch.randn(96, 16), torch.randperm(96)",
            96,
            96,
        ),
        (
            "x, i",
            "torch.zeros(8, 64).scatter(1, i, x)",
            "torch.randn(8, 16), torch.rand(8, 64).argsort(1)[:, :16]",
            64,
            16,
        ),
        (
            "x, i",
            "torch.zeros(64, 64).scatter(1, i, x)",
            "torch.randn(64, 64), torch.rand(64, 64).argsort(1)",
            64,
            64,
        ),
    ],
)
def test_places_that_are_stored_to_come_once_each(
    tmp_path: Path, arguments: str, body: str, inputs: str, count: int, width: int
) -> None:
    judged = task(tmp_path, arguments, body, inputs)
    seen = set()
    for cell in judged.cells:
        for seed in range(3):
            rows = judged.inputs(cell, seed)[-1].reshape(-1, width)
            assert all(len(set(row)) == width for row in rows.tolist())
            assert cell.name.endswith("-itself") or (int(rows.min()), int(rows.max())) == (
                0,
                count - 1,
            )
            seen.add(tuple(rows.flatten().tolist()))
    assert len(seen) > len(judged.cells)
    assert f"i 0 to {count - 1}, none of them twice" in drawn_values(judged.required, judged.given)


@pytest.mark.parametrize(
    ("arguments", "body", "inputs"),
    [
        ("x, i", ADDED, PERMUTED),
        ("x, i", ADDED, "torch.randn(256, 16).half(), torch.randperm(256)"),
        (
            "c, x, i",
            "c.index_add(0, i, x)",
            "torch.randn(96, 16), torch.randn(96, 16), torch.randperm(96)",
        ),
        ("x, i", "x[i]", PERMUTED),
        ("x, i", "x.masked_fill(x > 1, -torch.inf)[i]", PERMUTED),
        ("x, i", "x[i] @ x.T", PERMUTED),
        ("x, i", "x.gather(1, i)", "torch.randn(64, 64), torch.rand(64, 64).argsort(1)"),
        (
            "x, i",
            "torch.zeros(8, 64).scatter_add(1, i, x)",
            "torch.randn(8, 16), torch.rand(8, 64).argsort(1)[:, :16]",
        ),
        ("x, y", "F.cross_entropy(x, y)", "torch.randn(64, 64), torch.randperm(64)"),
        # So few are different by chance.
        ("x, i", STORED, f"torch.randn(8, 16), {FEW}"),
    ],
)
def test_what_is_read_or_added_up_may_come_twice(
    tmp_path: Path, arguments: str, body: str, inputs: str
) -> None:
    judged = task(
        tmp_path, arguments, body.replace("zeros(256, 16)", "zeros(256, 16, dtype=x.dtype)"), inputs
    )
    for cell in judged.cells:
        if not cell.name.endswith("-itself"):
            met = judged.inputs(cell, 1)[-1]
            assert len(set(met.flatten().tolist())) < met.numel() and int(met.min()) == 0


def test_another_store_order_is_right_and_a_missing_store_is_not(tmp_path: Path) -> None:
    """A kernel that stores in another order is right and one that leaves a place out is not."""
    judged = task(tmp_path, "x, i", STORED, PERMUTED)

    def backwards(x: Tensor, i: Tensor) -> Tensor:
        out = torch.zeros(256, 16)
        out[i.flip(0)] = x.flip(0)
        return out

    def without_last(x: Tensor, i: Tensor) -> Tensor:
        out = backwards(x, i)
        out[255] = 0
        return out

    assert not any(rejecting(judged, backwards, seed) for seed in range(4))
    assert all(rejecting(judged, without_last, seed) for seed in range(4))
