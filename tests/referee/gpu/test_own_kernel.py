"""The referee's own kernels: compiled once for each kind of arguments that Triton tells apart, and launched with all of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from referee.measuring.streaming import SHAPES, _launch, _stream
from referee.replaying.own_kernel import OwnKernel, Pointer

WHOLE = torch.zeros(64, dtype=torch.int64)


class Compiler:
    """Stands in for a Triton function, and for what it compiles to: notes who was launched with what."""

    def __init__(self) -> None:
        self.compiled: list[tuple[Any, ...]] = []
        self.launched: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def first(*arguments: Any, num_warps: int, **constants: int) -> Compiler:
            self.compiled.append((grid, arguments, constants, num_warps))
            return self

        def again(*arguments: Any) -> None:
            self.launched.append((grid, arguments))

        return again if len(grid) == 3 else first


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (3, 5, True),
        (16, 4096, True),
        (3, 16, False),
        (3, 1, False),
        (0, 16, True),
        (3, 2**31 + 3, False),
        (2**31 + 3, 2**63 - 1, True),
        (-5, 3, True),
        (WHOLE, WHOLE[2:], True),
        (WHOLE, WHOLE[1:], False),
        (WHOLE, WHOLE.to(torch.int32), False),
        (WHOLE, None, False),
        (None, None, True),
    ],
)
def test_a_kernel_is_compiled_for_every_kind_of_argument_and_once(one: Any, other: Any, same: bool) -> None:
    made = Compiler()
    kernel = OwnKernel(made, warps=4)
    kernel.launch((7,), (one, 3), {"BLOCK": 8, "TURNS": 2})
    kernel.launch((9, 5), (other, 3), {"BLOCK": 8, "TURNS": 2})
    assert made.compiled[0] == ((7,), (one, 3), {"BLOCK": 8, "TURNS": 2}, 4)
    assert len(made.compiled) == (1 if same else 2)
    if same:
        assert [grid for grid, _ in made.launched] == [(9, 5, 1)]
        assert made.launched[0][1][0] is other and made.launched[0][1][1:] == (3, 8, 2)


def test_a_pointer_is_of_the_kind_of_a_tensor_there_and_its_address_is_passed() -> None:
    made = Compiler()
    kernel = OwnKernel(made, warps=4)
    kernel.launch((7,), (WHOLE,), {})
    for address in (256, 512, 264):
        kernel.launch((7,), (Pointer(address, torch.int64),), {})
    kernel.launch((7,), (Pointer(256, torch.int32),), {})
    assert [given for _, given, _, _ in made.compiled] == [(WHOLE,), (Pointer(264, torch.int64),), (Pointer(256, torch.int32),)]
    assert [given for _, given in made.launched] == [(256,), (512,)]


def test_other_constants_are_another_kernel() -> None:
    made = Compiler()
    kernel = OwnKernel(made, warps=4)
    for block in (8, 16, 8):
        kernel.launch((7,), (3,), {"BLOCK": block})
    assert [constants for _, _, constants, _ in made.compiled] == [{"BLOCK": 8}, {"BLOCK": 16}]
    assert made.launched == [((7, 1, 1), (3, 8))]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_first_launch_and_later_ones_do_the_same() -> None:
    for (block, warps), read in ((SHAPES[0], 3 * 4099), (SHAPES[1], 4096)):
        source = torch.randint(-1000, 1000, (read,), dtype=torch.int32, device="cuda")
        written = 4099 if read % 4099 == 0 else 4096
        expected = source.view(-1, written).sum(0)
        for _ in range(3):
            target = torch.zeros(written, dtype=torch.int32, device="cuda")
            _launch(source, target, block, warps)
            assert torch.equal(target, expected.to(torch.int32))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("op", ["rmsnorm", "softmax"])
def test_once_a_cell_is_prepared_timing_it_compiles_nothing_of_the_referees(
    op: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.handmade import bench_cell, direct
    from bench.smoke import Smoke
    from referee.measuring.baselines import Baselines
    from referee.measuring.measurement import COMPILE
    from referee.measuring.own_kernels import compile_own
    from referee.ops.task import load

    smoke = Smoke(tmp_path)
    compile_own(load(op, "gpu"), bench_cell(op))
    names: list[str] = []
    monkeypatch.setattr(triton.knobs.runtime, "jit_post_compile_hook", lambda **given: names.append(given["fn"].name))
    smoke.timing(op, op, Baselines({COMPILE: direct(op)}, {}, {}), 7, least_rounds=40, most_rounds=80)
    own = ("_mix", "_add_up", "_stream")
    assert [name for name in names if name.endswith(own)] == []
    # Nothing is told of only where nothing is compiled: this block is no other test's, so Triton has not compiled it yet.
    block = {"rmsnorm": 16, "softmax": 32}[op]
    OwnKernel(_stream, warps=1).launch((1,), (torch.zeros(4, dtype=torch.int32, device="cuda"),) * 2 + (4, 4), {"SLABS": 1, "BLOCK": block})
    assert len([name for name in names if name.endswith(own)]) == 1


@pytest.mark.parametrize(
    ("says", "becomes"),
    [
        ("Triton Error [CUDA]: an illegal memory access was encountered", torch.AcceleratorError),
        ("Triton Error [CUDA]: out of memory", RuntimeError),
        ("something else", RuntimeError),
    ],
)
@pytest.mark.parametrize("launches", [1, 2])
def test_a_context_that_a_kernel_has_ended_is_told_as_torch_tells_it(says: str, becomes: type[Exception], launches: int) -> None:
    """So whoever judges takes it for that kernel's fault, and not for the referee's."""
    made = Compiler()
    kernel = OwnKernel(made, warps=4)

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError(says)

    if launches == 2:
        kernel.launch((7,), (WHOLE,), {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compiler, "__getitem__", lambda *_: fails)
        with pytest.raises(RuntimeError, match=re.escape(says)) as caught:
            kernel.launch((7,), (WHOLE,), {})
    assert type(caught.value) is becomes
