"""Where the elements of a user's examples lie: kept, so that a kernel that reads them as if
contiguous is found out.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from referee.answers.compare import compare
from referee.reference.unusable import UnusableReference
from referee.reference.words import drawn_values
from tests.referee.own_reference import load_user
from tests.referee.own_reference import task as own_task
from tests.referee.reference.test_reference_files import run_all_cells, write


@pytest.mark.parametrize(
    ("made", "strides", "offset"),
    [
        ("torch.randn(96, 40).t()", (1, 40), 0),
        ("torch.randn(40, 96)[:, 3:43]", (96, 1), 3),
        ("torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)", (60, 1, 15, 3), 0),
        ("(torch.rand(9, 8) > 0.5)[:, ::2]", (8, 2), 0),
        ("torch.randn(1, 64)[:, 5:]", (59, 1), 1),
    ],
    ids="transposed slice channels_last bool offset".split(),
)  # fmt: skip
def test_inputs_lie_as_in_the_example(
    tmp_path: Path, made: str, strides: tuple[int, ...], offset: int
) -> None:
    text = f"import torch\ndef f(x): return x.float() * 1.0\ndef get_inputs(): return [{made}]\n"
    task = load_user(write(tmp_path, text), None, "cpu")
    for cell in task.cells:
        (x,) = task.inputs(cell, 2)
        assert (cell.inputs[0].strides, cell.inputs[0].offset) == (strides, offset)
        assert (x.stride(), x.storage_offset()) == (strides, offset)
    run_all_cells(task)
    assert drawn_values(task.required, task.given).endswith("and the examples as they are")


def test_an_output_may_lie_as_an_input_of_its_shape(tmp_path: Path) -> None:
    text = "import torch\ndef f(x): return torch.softmax(x, -1), x[:, ::2], x.sum(-1)\ndef get_inputs(): return [torch.randn(96, 40).t()]\n"
    task = load_user(write(tmp_path, text), None, "cpu")
    assert [spec.strides for spec in task.cells[0].outputs] == [(1, 40), (48, 1), (1,)]


def test_an_example_with_shared_memory_is_made_contiguous(tmp_path: Path) -> None:
    text = "import torch\ndef f(x, y): return x * y\ndef get_inputs(): return [torch.randn(1, 64).expand(16, 64), torch.randn(64)]\n"
    task = load_user(write(tmp_path, text), None, "cpu")
    assert task.cells[-1].inputs[0].strides == (64, 1)
    assert drawn_values(task.required, task.given).endswith(
        "as they are, but made contiguous where elements share memory: x"
    )


def test_a_wrong_answer_is_told_with_the_strides(tmp_path: Path) -> None:
    text = "import torch\ndef f(x): return torch.softmax(x, -1)\ndef get_inputs(): return [torch.randn(96, 40).t()]\n"
    task = load_user(write(tmp_path, text), None, "cpu")
    for cell in task.cells:
        (x,) = task.inputs(cell, 1)
        read = x.as_strided((40, 96), (96, 1))
        found = compare(task, cell, (x,), (torch.softmax(read, -1),))
        # Logits of 3e-6 change a probability by less than the rounding of log(96).
        assert found.status == ("pass" if cell.name.endswith(("zero", "tiny")) else "fail")
        assert found.status == "pass" or found.detail.endswith(
            "; `x` is not contiguous: its strides are (1, 40)"
        )


@pytest.mark.parametrize(
    ("example", "body", "words"),
    [
        ("torch.eye(3).to_sparse()", "x.to_dense()", "x is sparse"),
        ("torch.ones(3, device='meta')", "x * 2", "x has no values"),
        ("torch.eye(3)", "(x * 2).to_sparse()", "out is sparse"),
    ],
)
def test_what_lies_in_no_memory_is_refused(
    tmp_path: Path, example: str, body: str, words: str
) -> None:
    with pytest.raises(UnusableReference, match=words):
        own_task(tmp_path, "x", body, example)


def test_a_reference_that_names_no_arguments_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "reference.py"
    file.write_text("import torch\nf = torch.square\nEXAMPLES = [(torch.ones(3),)]\n")
    with pytest.raises(UnusableReference, match="wrap it in a function"):
        load_user(file, "f", "cpu")


def test_strides_of_a_text_are_kept_where_elements_lie_apart(tmp_path: Path) -> None:
    """As for examples: an expanded operand is made contiguous; smaller sizes keep the order of the
    dimensions.
    """
    file = write(tmp_path, "import torch\ndef f(x): return torch.softmax(x, -1)\n")
    for text, strides in (
        ("x=f32[8,4](1,8)", (1, 8)),
        ("x=f32[8,4](0,1)", (4, 1)),
        ("x=f32[4096,4096](1,4096)", (1, 3)),
    ):
        task = load_user(file, None, "cpu", text)
        assert task.cells[0].inputs[0].strides == strides
        (x,) = task.inputs(task.cells[0], 1)
        assert x.stride() == strides
