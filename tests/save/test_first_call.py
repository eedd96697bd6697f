"""The command that calls a saved kernel once."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kmint_tui.save.first_call import call, command
from kmint_tui.save.own_reference import Argument, Judged, Number, Range, ReferenceFile, Signature
from kmint_tui.save.support import Support
from referee.ops import catalogue
from referee.ops.signatures import KINDS
from referee.reference.inputs import Dim

OPS = {op.kind: op for op in catalogue()}
MATRICES = Support(
    dtypes=("bfloat16",), max_columns=640, heads=(), padded=True, large=True, nonfinite=True
)
HEADS = Support(
    dtypes=("bfloat16", "float32"),
    max_columns=128,
    heads=(64, 128),
    padded=True,
    large=True,
    nonfinite=True,
)


def arguments(expression: str) -> tuple[Any, ...]:
    """The values of the call's arguments."""
    found: tuple[Any, ...] = eval(expression, {"torch": torch, "f": lambda *given: given})
    return found


@pytest.mark.parametrize("kind", sorted(OPS))
@pytest.mark.parametrize("able", [MATRICES, HEADS], ids=["columns", "heads"])
def test_a_call_fits_the_signature(kind: str, able: Support) -> None:
    """Every argument has the shape and the dtype of its parameter, within the judged sizes."""
    given = arguments(call(OPS[kind], "f", able, gpu=False))
    columns = able.heads[0] if able.heads else 640
    sizes = {"M": 8, "N": columns, "H": columns // 2, "1": 1}
    usual = torch.float32 if able is HEADS else torch.bfloat16
    dtypes = {"x": usual, "int8": torch.int8, "int64": torch.int64}
    assert [(tuple(one.shape), one.dtype) for one in given] == [
        (tuple(sizes[symbol] for symbol in parameter.shape), dtypes[parameter.dtype])
        for parameter in KINDS[kind].parameters
    ]


def test_on_a_gpu_every_tensor_is_there() -> None:
    for kind, op in OPS.items():
        text = call(op, "f", MATRICES, gpu=True)
        assert text.count("device='cuda'") == len(KINDS[kind].parameters)


def test_a_call_of_a_kernel_for_a_users_reference() -> None:
    """Least sizes, zeros where a tensor may hold indices, and a number where it has no default."""
    tensors = (Argument((Dim("B"), 2, Dim("B", times=3)), "float16"), Argument((4,), "int64"))
    numbers = (Number("eps", 1, None, (0.5, 1.0)), Number("cap", 3, float("inf"), (1.0,)))
    signature = Signature(tensors, (("B", Range(5, None)),))
    able = Judged(
        reference=ReferenceFile("mine.py:f", "0" * 64),
        names=("x", "eps", "index", "cap"),
        signatures=(signature,),
        numbers=numbers,
    )
    text = call(OPS["unary"], "f", able, gpu=False).replace("device='cuda'", "device='cpu'")
    x, eps, index, cap = arguments(text)
    assert (tuple(x.shape), x.dtype, eps, cap) == ((5, 2, 15), torch.float16, 0.5, float("inf"))
    assert torch.equal(index, torch.zeros(4, dtype=torch.int64))


def test_a_folder_is_imported_or_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative folder of plain names is a package; others, and names of installed ones, are not."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert "from my_kernels.sub.f import f;" in command(Path("my_kernels/sub/f.py"), "f()")
    for folder in (tmp_path / "a b", Path("my-kernels"), Path("torch"), Path("json/x"), Path("..")):
        entered, program = command(folder / "f.py", "f()").split(" && ")
        assert shlex.split(entered) == ["cd", str(folder)]
        assert shlex.split(program)[:2] == ["python", "-c"] and "from f import f;" in program
    assert command(Path("f.py"), "f()").startswith("python -c")


def test_an_environment_that_is_not_active_is_called_by_its_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    assert shlex.split(command(Path("f.py"), "f()"))[:2] == [sys.executable, "-c"]
