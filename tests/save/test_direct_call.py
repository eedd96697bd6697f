"""The direct launch of a saved function: the answers and errors of its operator, and no other calls."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.saved_block import load
from bench.saved_calls import Nothing, taking_cpu_tensors
from tests.save.conftest import BY_KIND, OPAQUE, op_name
from tests.save.direct import File, assert_same, outcome, save_for_cpu
from tests.save.several import save_several
from tests.save.test_quick_checks import changed
from tests.save.test_saved_project import flat_arguments

NAMES = (*BY_KIND.values(), *OPAQUE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("direct")
    save_for_cpu(NAMES, made)
    return made


@pytest.fixture
def files(folder: Path) -> Callable[[str], File]:
    """A saved file by its operation, with an empty table of kept calls."""
    return lambda op: File(folder / f"{op}.py", op)


@pytest.fixture
def softmax(files: Callable[[str], File]) -> File:
    return files("softmax")


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_call_is_not_checked_again(
    files: Callable[[str], File], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file, given = files(op_name(name)), flat_arguments(op_name(name))
    wanted = file.module.reference(*given)
    torch.testing.assert_close(file.direct(*given), wanted)
    for check in ("_usual", "_check", "_check_layout", "_kernel_of"):
        monkeypatch.setattr(file.module, check, None)
    torch.testing.assert_close(file.direct(*(one.clone() for one in given)), wanted)


@pytest.mark.parametrize("name", NAMES)
def test_leading_dimensions_and_one_row(files: Callable[[str], File], name: str) -> None:
    file = files(op_name(name))
    given = flat_arguments(op_name(name))
    rows = given[0].shape[0]
    for lead in ((1, rows), (rows, 1), (1, rows, 1)):
        shaped = [
            one.reshape(*lead, *one.shape[1:]) if one.shape[0] == rows else one for one in given
        ]
        torch.testing.assert_close(file.direct(*shaped), file.module.reference(*shaped))
    if all(one.dim() == 1 or one.shape[0] == rows for one in given):
        single = [one[0] if one.shape[0] == rows else one for one in given]
        torch.testing.assert_close(file.direct(*single), file.module.reference(*single))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("copy", [False, True])
def test_it_refuses_what_the_operator_refuses(
    files: Callable[[str], File], monkeypatch: pytest.MonkeyPatch, name: str, copy: bool
) -> None:
    file, usual = files(op_name(name)), flat_arguments(op_name(name))
    file.direct(*usual)
    refused = 0
    for place, tensor in enumerate(usual):
        for other in changed(tensor):
            given = [*usual[:place], other, *usual[place + 1 :]]
            found = [outcome(file.function, *given, copy=copy) for _ in range(2)]
            with monkeypatch.context() as patch:
                patch.setattr(file.module, "_key", lambda *_: None)
                wanted = outcome(file.function, *given, copy=copy)
            refused += isinstance(wanted, tuple)
            for one in found:
                assert_same(one, wanted)
    assert refused > 4 * len(usual)


def test_a_changed_stride_dtype_or_size_is_a_new_key(softmax: File) -> None:
    wide = torch.randn(4, 96)
    views = [wide[:, :64], wide[:, :64].clone(), wide[:, :64].half(), wide[:, :63], wide[:3, :64]]
    for number, view in enumerate(views, start=1):
        for _ in range(2):
            torch.testing.assert_close(softmax.direct(view), torch.softmax(view, -1))
        assert len(softmax.module._KEPT) == number
    # Another place in memory, and values that are no multiple of 16 bytes away, change nothing.
    assert softmax.direct(wide[:, 1:65]).shape == (4, 64)
    assert len(softmax.module._KEPT) == len(views)
    for wrong in (wide.t()[:64], wide[:, ::2], wide[:1].expand(4, 96)):
        for _ in range(2):
            with pytest.raises(ValueError, match="rows at equal distances; pass copy=True"):
                softmax.function(wrong)


def test_the_table_is_bounded(softmax: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax.module, "_MOST_KEPT", 8)
    for rows in (*range(1, 30), 3, 29):
        x = torch.randn(rows, 16)
        torch.testing.assert_close(softmax.direct(x), torch.softmax(x, -1))
        assert 0 < len(softmax.module._KEPT) <= 8


def test_threads_share_the_table(softmax: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax.module, "_MOST_KEPT", 5)
    inputs = [torch.randn(1 + number % 9, 16 + number % 7) for number in range(400)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(softmax.function, inputs))
    finally:
        sys.setswitchinterval(before)
    for one, x in zip(found, inputs, strict=True):
        torch.testing.assert_close(one, torch.softmax(x, -1))
    # Each thread may add one kind of call between the check of the size and the next.
    assert len(softmax.module._KEPT) <= 5 + 8


def test_gradients_take_the_operator(softmax: File) -> None:
    x = torch.randn(3, 8, requires_grad=True)
    found = softmax.by_operator(x)
    (given,) = torch.autograd.grad(found.square().sum(), x)
    (wanted,) = torch.autograd.grad(torch.softmax(x, -1).square().sum(), x)
    torch.testing.assert_close(given, wanted)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            found = softmax.direct(x)
        assert not found.requires_grad
        torch.testing.assert_close(found, torch.softmax(x.detach(), -1))
    softmax.direct(torch.nn.Parameter(x.detach(), requires_grad=False))
    softmax.by_operator(torch.nn.Parameter(x.detach()))


def test_copies_are_not_kept(files: Callable[[str], File]) -> None:
    file = files("softmax")
    turned = torch.randn(8, 3).t()
    for _ in range(2):
        torch.testing.assert_close(file.by_operator(turned, copy=True), torch.softmax(turned, -1))
        with pytest.raises(ValueError, match="pass copy=True"):
            file.function(turned)
    assert not file.module._KEPT
    torch.testing.assert_close(
        file.function(turned, 0, copy=True), torch.softmax(turned, 0), msg="dim"
    )


def test_a_file_by_shape_keeps_the_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = (("64x1024:float32", 1), ("1x4096:float32", 2))
    path = save_several(("online_softmax", "rows_softmax"), shapes, tmp_path).files[0]
    path.write_text(taking_cpu_tensors(path.read_text(encoding="utf-8")), encoding="utf-8")
    module: Any = load(path)
    for kernel in ("_kernel_1", "_kernel_2"):
        monkeypatch.setattr(module, kernel, Nothing())
    for shape, wanted in (((64, 1024), module._run_1), ((1, 4096), module._run_2)):
        for _ in range(2):
            assert module.softmax(torch.randn(shape)).shape == shape
        assert list(module._KEPT.values())[-1] is wanted
    monkeypatch.setattr(module, "_kernel_for", None)
    assert module.softmax(torch.randn(64, 1024)).shape == (64, 1024)


_PROGRAM = """
import sys
import torch
from bench.saved_block import load
from pathlib import Path
from tests.save.test_saved_project import flat_arguments
for op in sys.argv[2:]:
    module, given = load(Path(sys.argv[1]) / f"{op}.py"), flat_arguments(op)
    rows = given[0].shape[0]
    deep = [one.reshape(1, *one.shape) if one.shape[0] == rows else one for one in given]
    for tensors in (given, given, deep):
        found = getattr(module, op)(*tensors)
        torch.testing.assert_close(found, module.reference(*tensors), rtol=1e-2, atol=1e-3)
    assert len(module._KEPT) == 2, op
print("all")
"""


def test_the_kernels_are_launched_directly(folder: Path) -> None:
    """Triton's interpreter runs the real kernels, in a process where it is on from the start."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(folder), *map(op_name, NAMES)],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "all\n", done.stderr
